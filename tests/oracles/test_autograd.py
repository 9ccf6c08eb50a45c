"""The autograd oracle: each graph shows the mistake that it is there for; honest functions and clear errors pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fuzz.backends import BACKENDS
from fuzz.backends.execute import run
from fuzz.model.case import Argument, Call, Case
from fuzz.model.finding import Finding
from fuzz.model.layout import Layout
from fuzz.model.recipes import recipe
from fuzz.oracles.autograd import AutogradOracle, Baseline, GraphContext, check_context
from fuzz.oracles.execution import autograd_graphs
from fuzz.oracles.execution.examination import Examination
from fuzz.run.fuzzer import Fuzzer
from fuzz.run.options import RunOptions
from fuzz.run.watcher import Watcher
from fuzz.target.arguments import option, size, tensor
from fuzz.target.inputs import seed_cases
from fuzz.target.loader import load, load_planted
from fuzz.target.spec import Launcher, Target, declare

M, N = size("M", 1, 64), size("N", 1, 64)
Outputs = dict[str, torch.Tensor]


def function(forward: Callable[..., Any], backward: Callable[..., Any]) -> Launcher:
    """A launcher that calls an autograd function of these two."""
    methods = dict(forward=staticmethod(forward), backward=staticmethod(backward))
    made = type("Made", (torch.autograd.Function,), methods)

    def launcher(x: torch.Tensor, weight: torch.Tensor) -> Outputs:
        return {"y": made.apply(x, weight)}  # type: ignore[attr-defined]

    return launcher


def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    ctx.save_for_backward(x, weight)
    return x * weight


def backward(ctx: Any, dy: torch.Tensor) -> Any:
    x, weight = ctx.saved_tensors
    return dy * weight, (dy * x).sum(0)


def asked(launcher: Launcher, layout: Layout | None = None, **more: Any) -> Finding | None:
    """What the oracle says of a product of every row with the weight."""
    target = declare(
        launcher, x=tensor(M, N), weight=tensor(N), dtypes=("float32",), differentiable={"y": tensor(M, N)},
        **{"reference": lambda x, weight: dict(y=x * weight), **more},
    )  # fmt: skip
    x, dy = (Argument(("M", "N"), "float32", recipe("normal", seed), layout or Layout()) for seed in (1, 2))
    weight = Argument(("N",), "float32", recipe("normal", 3))
    case = Case(target.name, (Call({"M": 3, "N": 4}, {"x": x, "weight": weight}, {}, {"y": dy}),))
    exam = examination(target, launcher, case)
    assert AutogradOracle().applies(target, case)
    return AutogradOracle().check_case(exam)


def examination(target: Target, launcher: Launcher, case: Case) -> Examination:
    outcome = run(target, launcher, case.calls, BACKENDS["cpu"])
    return Examination(target, launcher, case, BACKENDS["cpu"], outcome)


def honest_refusal(ctx: Any, dy: torch.Tensor) -> Any:
    if hasattr(ctx, "spent"):
        raise RuntimeError("the gradient was computed in place; a second backward needs inplace=False")
    ctx.spent = True
    return backward(ctx, dy)


@pytest.mark.parametrize("layout", [None, Layout(expand=(0,)), Layout(order=(1, 0)), Layout(pad=2, offset=1)])
@pytest.mark.parametrize("gradient", [backward, honest_refusal])
def test_honest_functions_pass(layout: Layout | None, gradient: Callable[..., Any]) -> None:
    assert asked(function(forward, gradient), layout) is None


def test_a_function_of_torchs_own_operations_passes() -> None:
    """Its gradient of x is the cotangent's own memory, and so is no alias that it has to declare."""
    launcher = lambda x, weight: dict(y=x + weight)  # noqa: E731
    assert asked(launcher, reference=lambda x, weight: dict(y=x + weight)) is None


def over_input(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    ctx.save_for_backward(x.clone(), weight)
    y = x * weight
    torch.as_strided(x.data, x.shape, x.stride()).fill_(0.5)
    return y


def over_cotangent(ctx: Any, dy: torch.Tensor) -> Any:
    x, weight = ctx.saved_tensors
    dweight = (dy * x).sum(0)
    return dy.data.mul_(weight), dweight


def behind_autograd(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    ctx.x, ctx.weight = x, weight
    return x * weight


def from_attributes(ctx: Any, dy: torch.Tensor) -> Any:
    return dy * ctx.weight, (dy * ctx.x).sum(0)


SHARED = torch.zeros(64)


def into_shared_memory(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    SHARED[: x.numel()] = x.reshape(-1)
    ctx.save_for_backward(weight)
    return x * weight


def from_shared_memory(ctx: Any, dy: torch.Tensor) -> Any:
    (weight,) = ctx.saved_tensors
    return dy * weight, (dy * SHARED[: dy.numel()].view(dy.shape)).sum(0)


def forgets_weight(ctx: Any, dy: torch.Tensor) -> Any:
    return backward(ctx, dy)[0], None


def weight_only_with_x(ctx: Any, dy: torch.Tensor) -> Any:
    dx, dweight = backward(ctx, dy)
    return dx, dweight if ctx.needs_input_grad[0] else dweight * 0


def weight_without_x_raises(ctx: Any, dy: torch.Tensor) -> Any:
    if not ctx.needs_input_grad[0]:
        raise RuntimeError("dx is None")
    return backward(ctx, dy)


def other_value_without_grad(x: torch.Tensor, weight: torch.Tensor) -> Outputs:
    product = function(forward, backward)(x, weight)["y"]
    return {"y": product if torch.is_grad_enabled() else product * 1.01}


def other_value_for_inference(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return forward(ctx, x, weight) * (1 if any(ctx.needs_input_grad) else 1.01)


def second_is_doubled(ctx: Any, dy: torch.Tensor) -> Any:
    ctx.factor = getattr(ctx, "factor", 0.5) * 2
    return tuple(ctx.factor * gradient for gradient in backward(ctx, dy))


def kept_memory(ctx: Any, dy: torch.Tensor) -> Any:
    dx, dweight = backward(ctx, dy)
    ctx.kept = ctx.kept.add_(0.5) if hasattr(ctx, "kept") else dweight
    return dx, ctx.kept if ctx.kept is dweight else dweight


IN_PLACE = dict(in_place=("x",))
MISTAKES: list[tuple[str, tuple[str, ...], Launcher, dict[str, Any]]] = [
    ("missing", ("dweight",), function(forward, forgets_weight), {}),
    ("raised", ("launcher",), function(forward, weight_without_x_raises), {}),
    ("subset", ("dweight",), function(forward, weight_only_with_x), {}),
    ("no-grad", ("y",), other_value_without_grad, {}),
    ("no-grad", ("y",), function(other_value_for_inference, backward), {}),
    ("before", ("before_x",), function(over_input, backward), IN_PLACE),
    ("after", ("after_y",), function(forward, over_cotangent), {}),
    ("twice", ("dx", "dweight"), function(forward, second_is_doubled), {}),
    ("twice", ("first_weight",), function(forward, kept_memory), {}),
    ("saved", ("dx", "dweight"), function(behind_autograd, from_attributes), {}),
    ("between", ("dweight",), function(into_shared_memory, from_shared_memory), {}),
]


@pytest.mark.parametrize(("symptom", "outputs", "launcher", "more"), MISTAKES)
def test_each_company_shows_its_mistake(
    symptom: str, outputs: tuple[str, ...], launcher: Launcher, more: dict[str, Any]
) -> None:
    found = asked(launcher, **more)
    assert found and (found.symptom, found.outputs) == (symptom, outputs), found


def test_the_reference_is_not_evaluated_where_no_gradient_is_missing() -> None:
    asked_of: list[torch.Tensor] = []

    def reference(x: torch.Tensor, weight: torch.Tensor) -> Outputs:
        asked_of.append(x)
        return dict(y=x * weight)

    assert asked(function(forward, backward), reference=reference) is None
    assert not asked_of
    assert asked(function(forward, forgets_weight), reference=reference)
    assert asked_of


def asked_of_two(
    backward: Callable[..., Any], materialize: bool = False, second: Callable[..., Any] = torch.square, **more: Any
) -> Finding | None:
    """What the oracle says of a = 2 x and b = second(x), whose backward gets None for an output that is not used."""

    def forward(ctx: Any, x: torch.Tensor) -> Any:
        ctx.set_materialize_grads(materialize)
        ctx.save_for_backward(x)
        return x * 2, second(x)

    methods = dict(forward=staticmethod(forward), backward=staticmethod(backward))
    made = type("Two", (torch.autograd.Function,), methods)

    def launcher(x: torch.Tensor) -> Outputs:
        a, b = made.apply(x)  # type: ignore[attr-defined]
        return {"a": a, "b": b}

    outputs = {"a": tensor(M, N), "b": tensor(M, N)}
    given: dict[str, Any] = {"reference": lambda x: dict(a=x * 2, b=second(x)), **more}
    target = declare(launcher, x=tensor(M, N), dtypes=("float32",), differentiable=outputs, **given)
    x, da, db = (Argument(("M", "N"), "float32", recipe("normal", seed)) for seed in (1, 2, 3))
    case = Case(target.name, (Call({"M": 3, "N": 4}, {"x": x}, {}, {"a": da, "b": db}),))
    return AutogradOracle().check_case(examination(target, launcher, case))


def both_gradients(ctx: Any, da: Any, db: Any) -> Any:
    (x,) = ctx.saved_tensors
    return da * 2 + db * x * 2


def each_that_is_given(ctx: Any, da: Any, db: Any) -> Any:
    (x,) = ctx.saved_tensors
    parts = [da * 2] if da is not None else []
    return sum([*parts, db * x * 2]) if db is not None else parts[0]


def wrong_without_a(ctx: Any, da: Any, db: Any) -> Any:
    return db * 3 if da is None else each_that_is_given(ctx, da, db)


def none_without_b(ctx: Any, da: Any, db: Any) -> Any:
    return None if db is None else each_that_is_given(ctx, da, db)


def steep(x: torch.Tensor) -> torch.Tensor:
    """Overflows, with its derivative, where x is not almost 0."""
    return torch.exp(10000 * x)


def steep_gradient(ctx: Any, da: Any, db: Any) -> Any:
    (x,) = ctx.saved_tensors
    return da * 2 + db * 10000 * steep(x)


def steep_where_given(ctx: Any, da: Any, db: Any) -> Any:
    (x,) = ctx.saved_tensors
    if db is None:
        return da * 2
    return db * 10000 * steep(x) + (0 if da is None else da * 2)


def wrong_without_steep(ctx: Any, da: Any, db: Any) -> Any:
    return da * 3 if db is None else steep_where_given(ctx, da, db)


def only_all(ctx: Any, da: Any, db: Any) -> Any:
    if da is None or db is None:
        raise NotImplementedError("all outputs have to be used")
    return both_gradients(ctx, da, db)


def test_one_of_several_outputs_is_used_alone() -> None:
    assert asked_of_two(both_gradients, materialize=True) is None
    assert asked_of_two(each_that_is_given) is None
    found = asked_of_two(wrong_without_a)
    assert found and (found.symptom, found.outputs, found.change) == ("output", ("dx",), ("b", 1.0))
    assert "dx is wrong where only output b is used in 12 of 12 elements" in found.message


def test_an_output_that_overflows_unused_has_no_gradient_or_0_times_infinity() -> None:
    assert asked_of_two(steep_where_given, second=steep) is None
    assert asked_of_two(steep_gradient, materialize=True, second=steep) is None
    found = asked_of_two(wrong_without_steep, second=steep)
    assert found and (found.symptom, found.outputs, found.change) == ("output", ("dx",), ("a", 1.0))


def test_a_gradient_that_is_none_for_one_output_alone_is_one_of_0() -> None:
    found = asked_of_two(none_without_b)
    assert found and (found.symptom, found.outputs, found.change) == ("output", ("dx",), ("a", 1.0))


def test_a_backward_that_fails_for_one_output_alone_is_found_and_one_that_means_it_is_not() -> None:
    found = asked_of_two(both_gradients)
    assert found and (found.symptom, found.outputs, found.change) == ("raised", ("launcher",), ("a", 1.0))
    assert "TypeError" in found.message and "where only output a is used" in found.message
    assert asked_of_two(only_all) is None


def test_without_a_reference_another_way_through_the_backward_may_have_other_bits() -> None:
    assert asked_of_two(wrong_without_a, reference=None) is None


def asked_with_option(forward: Callable[..., Any], backward: Callable[..., Any], on: bool, written: Any) -> Any:
    """What the oracle says where the option `inplace` is on or off, and the names of the inputs that were written."""
    product = function(forward, backward)
    target = declare(
        lambda x, weight, inplace: product(x, weight), name="product", x=tensor(M, N), weight=tensor(N),
        inplace=option(False, True), dtypes=("float32",), differentiable={"y": tensor(M, N)}, in_place=written,
        reference=lambda x, weight, inplace: dict(y=x * weight),
    )  # fmt: skip
    x, dy = (Argument(("M", "N"), "float32", recipe("normal", seed)) for seed in (1, 2))
    weight = Argument(("N",), "float32", recipe("normal", 3))
    call = Call({"M": 3, "N": 4}, {"x": x, "weight": weight}, {"inplace": on}, {"y": dy})
    exam = examination(target, target.launcher, Case(target.name, (call,)))
    return AutogradOracle().check_case(exam), [write.argument for write in exam.returned.calls[0].writes]


@pytest.mark.parametrize(
    ("methods", "name"), [((over_input, backward), "x"), ((forward, over_cotangent), "grad y")]
)  # fmt: skip
def test_a_write_that_an_option_asks_for_is_silent_and_any_other_is_found(methods: Any, name: str) -> None:
    assert asked_with_option(*methods, on=True, written={name: "inplace"}) == (None, [])
    found, written = asked_with_option(*methods, on=False, written={name: "inplace"})
    assert found and written == [name]
    found, written = asked_with_option(*methods, on=True, written=(name,))
    assert found and found.outputs == ("before_x" if name == "x" else "after_y",) and written == []


def test_other_mistakes_of_a_launcher_that_writes_when_asked_to_are_found() -> None:
    found, _ = asked_with_option(over_input, forgets_weight, on=True, written={"x": "inplace"})
    assert found and found.symptom == "missing"
    found, written = asked_with_option(over_input, over_cotangent, on=True, written={"x": "inplace"})
    assert found and found.outputs == ("after_y",) and written == ["grad y"]


def test_a_square_beside_an_input_that_is_written_over_is_wrong() -> None:
    target = declare(
        function(over_input, backward), x=tensor(M, N), weight=tensor(N), dtypes=("float32",),
        differentiable={"y": tensor(M, N)}, in_place=("x",), reference=lambda x, weight: dict(y=x * weight),
    )  # fmt: skip
    x = Argument(("M", "N"), "float32", recipe("ones"))
    weight = Argument(("N",), "float32", recipe("ones"))
    case = Case(target.name, (Call({"M": 1, "N": 1}, {"x": x, "weight": weight}, {}, {"y": x}),))
    exam = examination(target, target.launcher, case)
    found = check_context(Baseline(exam), GraphContext("beside", "", autograd_graphs.run_beside_consumers))
    assert found and (found.elements[0].output, found.elements[0].got, found.elements[0].want) == (
        "beside_x", "1.0", "2.0",
    )  # fmt: skip


def test_the_gradient_of_a_sum_is_the_cotangent_in_the_range_of_the_output() -> None:
    target = declare(
        function(forward, backward), x=tensor(M, N), weight=tensor(N), dtypes=("float16", "bfloat16"),
        differentiable={"y": tensor(M, N)}, reference=lambda x, weight: dict(y=x * weight),
    )  # fmt: skip
    x, weight = (Argument(dims, "float16", recipe("zeros")) for dims in (("M", "N"), ("N",)))
    beyond_float16 = Argument(("M", "N"), "bfloat16", recipe("constant", 1, mantissa=1, exponent=40))
    case = Case(target.name, (Call({"M": 1, "N": 1}, {"x": x, "weight": weight}, {}, {"y": beyond_float16}),))
    exam = examination(target, target.launcher, case)
    assert check_context(Baseline(exam), GraphContext("after", "", autograd_graphs.run_before_sums)) is None


def test_an_input_written_over_where_autograd_sees_it_ends_in_its_own_clear_error() -> None:
    def visible(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x.clone(), weight)
        y = x * weight
        x.detach().fill_(0.5)
        return y

    assert asked(function(visible, backward), in_place=("x",)) is None


def test_the_reported_gradient_before_a_cross_entropy_that_writes_over_its_input() -> None:
    """Liger #272: softmax, then cross entropy. The first row's gradient is 0.0017 .., not 2.1320e-05 .."""
    target = load("cross_entropy_function")
    launcher = load_planted(target, "gradient_over_input")[1]
    (case,) = seed_cases(target)
    exam = examination(target, launcher, case)
    graphs = autograd_graphs
    softmax = GraphContext(
        "before", "", graphs.run_after_producers, graphs.softmax_backward, adjacent_op="softmax before {}"
    )
    assert check_context(Baseline(examination(target, target.launcher, case)), softmax) is None
    found = check_context(Baseline(exam), softmax)
    assert found and found.outputs == ("before_logits",)
    got, want = ([float(getattr(one, side)) for one in found.elements] for side in ("got", "want"))
    assert got == pytest.approx([2.1320e-05, 3.4830e-05, 6.8024e-06, 6.7467e-05], rel=1e-4)
    assert want == pytest.approx([0.0017, 0.0029, 0.0003, 0.0055], abs=5e-5)
    assert "the gradient of the softmax before logits is wrong" in found.message
    assert "the forward wrote over its input: logits[0, 0] was 0.0796" in found.message


def test_where_the_target_may_write_its_input_autograd_alone_finds_the_gradient_over_it(tmp_path: Any) -> None:
    source = load("cross_entropy_function").path.read_text(encoding="utf-8")
    path = tmp_path / "cross_entropy_function.py"
    path.write_text(source.replace("    reference=reference,\n", '    reference=reference, in_place=("logits",),\n'))
    asked = RunOptions(str(path), "gradient_over_input", "cpu", cases=50, max_findings=1)
    bug = Fuzzer(asked, load(str(path)), "cpu", tmp_path / "corpus", Watcher(), {}).run().bugs[0]
    # With one class the producer's gradient is 0 and shows nothing; the square of the logits beside the call does.
    assert (bug.finding.oracle, bug.case.last.dims) == ("autograd", {"N": 1, "V": 1})
    assert bug.finding.symptom in ("before", "beside") and "wrote over" in bug.least.diagnosis[0]
    assert bug.rate.certain
