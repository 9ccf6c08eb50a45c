"""Each diagnosis is made of the mistake that it names, and of no other; a good kernel has none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch

from fuzz import option, size, target, tensor
from fuzz.backends import backend
from fuzz.backends.execute import run
from fuzz.model.case import Argument, Call, Case
from fuzz.model.layout import Layout
from fuzz.model.recipes import recipe
from fuzz.oracles.accuracy import AccuracyOracle
from fuzz.oracles.diagnosis import DiagnosisContext, diagnose, make_context
from fuzz.oracles.diagnosis.input_precision import describe_input_precision
from fuzz.oracles.execution.examination import Examination
from fuzz.target.spec import Target
from fuzz.triage.conditions import describe_conditions

M, N = size("M", 1, 64), size("N", 1, 64)
Outputs = Mapping[str, torch.Tensor]


def right(x: torch.Tensor, w: torch.Tensor) -> Outputs:
    return dict(y=(x * w).contiguous(), total=x.sum(0), mean=x.mean(0))


def made(mistake: Callable[[Outputs, torch.Tensor], dict[str, torch.Tensor]], **more: Any) -> Target:
    @target(x=tensor(M, N), w=tensor(N), dtypes=("float32", "bfloat16"), reference=right, **more)
    def kernel(x: torch.Tensor, w: torch.Tensor) -> Outputs:
        due = right(x.double(), w.double())
        changed = mistake(due, x)
        return {name: value.to(x.dtype) for name, value in {**due, **changed}.items()}

    found: Target = kernel
    return found


def case(rows: int = 12, columns: int = 12, dtype: str = "float32", calls: int = 1) -> Case:
    def call(seed: int) -> Call:
        arguments = {
            "x": Argument(("M", "N"), dtype, recipe("normal", seed)),
            "w": Argument(("N",), dtype, recipe("normal", seed + 50)),
        }
        return Call({"M": rows, "N": columns}, arguments, {})

    return Case("kernel", tuple(call(seed) for seed in range(1, calls + 1)))


def context_of(kernel: Target, of: Case) -> DiagnosisContext:
    cpu = backend("cpu")
    return make_context(Examination(kernel, kernel.launcher, of, cpu, run(kernel, kernel.launcher, of.calls, cpu)))


def told(kernel: Target, of: Case, least: Case | None = None) -> tuple[str, ...]:
    return diagnose(context_of(kernel, of), context_of(kernel, least or of))


def truncate(due: Outputs, x: torch.Tensor) -> dict[str, torch.Tensor]:
    bits = due["y"].float().view(torch.int32) & ~0xFFFF
    return dict(y=bits.view(torch.float32))


def put(value: torch.Tensor, places: Any, wrong: float = 7.25) -> torch.Tensor:
    value = value.clone()
    value[places] += wrong
    return value


MISTAKES: list[tuple[Callable[[Outputs, torch.Tensor], dict[str, torch.Tensor]], Case, tuple[str, ...]]] = [
    (
        lambda due, x: dict(total=due["mean"], mean=due["total"]),
        case(),
        ("total equals the reference's mean", "mean equals the reference's total"),
    ),
    (lambda due, x: dict(y=due["y"].T.contiguous()), case(), ("y is transposed",)),
    (lambda due, x: dict(y=due["y"].T.reshape(due["y"].shape)), case(6, 10), ("y is transposed",)),
    (lambda due, x: dict(y=-due["y"]), case(), ("y is negated",)),
    (lambda due, x: dict(mean=due["mean"] * 12 / 11), case(), ("mean is M/(M-1) times what it should be",)),
    (lambda due, x: dict(mean=due["mean"] * 12 / 16), case(), ("mean is M/next_pow2(M) times what it should be",)),
    (lambda due, x: dict(y=due["y"] * 2), case(), ("y is 2 times what it should be",)),
    (lambda due, x: dict(y=due["y"] * 0.6931471805599453), case(), ("y is ln 2 times what it should be",)),
    (lambda due, x: dict(y=due["y"] * 1.37), case(), ("y is 1.37 times what it should be",)),
    (lambda due, x: dict(y=due["y"] * (1 - 2.0**-16)), case(), ("y is (1 - 1.5e-05) times what it should be",)),
    (lambda due, x: dict(total=torch.zeros_like(due["total"])), case(), ("total is 0 in every element",)),
    (
        lambda due, x: dict(y=put(due["y"], (slice(None), slice(9, None)))),
        case(),
        ("y is wrong only from column 9 of 12 on (36 of 36 elements there, 0 of 108 elsewhere)",),
    ),
    (
        lambda due, x: dict(y=put(due["y"], 11)),
        case(),
        ("y is wrong only in row 11 (the last) of 12 (12 of 12 elements",),
    ),
    (lambda due, x: dict(total=put(due["total"], slice(0, 3))), case(), ("total is wrong only up to element 2 of 12",)),
    (lambda due, x: dict(y=torch.where(x < -1, -due["y"], due["y"])), case(), ("y is wrong only for x <= ",)),
    (truncate, case(dtype="bfloat16"), ("y is truncated instead of rounded to bfloat16",)),
    (lambda due, x: dict(y=due["y"].bfloat16().float()), case(), ("y is rounded to bfloat16, and it is float32",)),
    (lambda due, x: dict(y=due["y"].half().float()), case(), ("y is rounded to float16, and it is float32",)),
]


@pytest.mark.parametrize(("mistake", "of", "wanted"), MISTAKES)
def test_a_mistake_is_named(
    mistake: Callable[[Outputs, torch.Tensor], dict[str, torch.Tensor]], of: Case, wanted: tuple[str, ...]
) -> None:
    found = told(made(mistake), of)
    assert len(found) == len(wanted)
    for text, start in zip(found, wanted, strict=True):
        assert text.startswith(start)


def test_zeros_that_the_least_case_does_not_have_are_not_named() -> None:
    kernel = made(lambda due, x: dict(total=due["total"] * 0 if len(x) == 1 else due["total"] + 1))
    assert told(kernel, case(1, 1)) == ("total is 0 in every element",)
    assert told(kernel, case(1, 1), case(2, 1)) == ()


@pytest.mark.parametrize(
    ("power", "least", "wanted"),
    [
        (0.5, case(1, 1), "y is 16 times what it should be"),
        (0.5, case(12, 4), "y is 8 times what it should be"),
        (0.0, case(1, 1), "y is 16 times what it should be"),
    ],
)
def test_a_factor_is_that_of_the_case_that_is_shown(power: float, least: Case, wanted: str) -> None:
    kernel = made(lambda due, x: dict(y=due["y"] * 16 / x.shape[1] ** power))
    assert told(kernel, case(12, 2), least) == (wanted,)


def test_values_of_one_size_have_a_common_factor_by_chance() -> None:
    kernel = made(lambda due, x: dict(total=due["total"] + 0.4))
    of_ones = case(1, 2).with_call(
        0, case(1, 2).last.with_argument("x", Argument(("M", "N"), "float32", recipe("ones", 0)))
    )
    assert told(kernel, of_ones) == told(kernel, case(12, 12), of_ones) == ()


def test_a_factor_of_the_least_case_keeps_the_name_that_the_unshrunk_one_gives_it() -> None:
    kernel = made(lambda due, x: dict(mean=due["mean"] * len(x) / (len(x) - 1 or 1)))
    assert told(kernel, case(12, 3), case(2, 1)) == ("mean is M/(M-1) times what it should be",)


def test_what_the_least_case_is_too_small_to_show_is_said_to_be_of_the_unshrunk_one() -> None:
    kernel = made(lambda due, x: dict(y=put(due["y"], (slice(None), slice(-3, None)))))
    (sentence,) = told(kernel, case(), case(1, 1))
    assert sentence.startswith("in the unshrunk case (M=12 N=12): y is wrong only from column 9 of 12 on (36 of 36 ")


def test_what_is_nearly_right_is_not_another_output() -> None:
    seen = context_of(made(lambda due, x: dict(mean=due["total"])), case())
    loose = replace(seen, bound={**seen.bound, "total": torch.full_like(seen.bound["total"], 1e9)})
    assert diagnose(seen, seen) == ("mean equals the reference's total",)
    assert diagnose(loose, loose) == ("mean is M times what it should be",)


def test_an_infinity_is_not_truncated() -> None:
    kernel = made(lambda due, x: dict(y=torch.where(x == x.max(), torch.inf, truncate(due, x)["y"].double())))
    exact = made(lambda due, x: dict(y=torch.where(x == x.max(), torch.inf, due["y"])))
    assert told(kernel, case(dtype="bfloat16"))[0].startswith("y is truncated")
    assert not any("truncated" in text for text in told(exact, case(1, 2, dtype="bfloat16")))


def test_a_sign_that_flips_in_a_region_is_named_as_such() -> None:
    found = told(made(lambda due, x: dict(y=torch.where(x < -1, -due["y"], due["y"]))), case())
    assert found[0].endswith(", where its sign is flipped")


def test_unwritten_elements_are_counted() -> None:
    @target(x=tensor(M, N), w=tensor(N), dtypes=("float32",), reference=lambda x, w: dict(y=x * w))
    def forgets(x: torch.Tensor, w: torch.Tensor) -> Outputs:
        y = torch.empty(x.shape)
        y[1:] = (x * w)[1:]
        return dict(y=y)

    assert told(forgets, case()) == ("12 of 144 elements of y were never written",)


def test_what_an_earlier_call_left_is_named() -> None:
    kept: list[Outputs] = []

    def remembers(due: Outputs, x: torch.Tensor) -> dict[str, torch.Tensor]:
        kept.append(due)
        return dict(y=kept[0]["y"])

    assert told(made(remembers), case(calls=2)) == ("the wrong elements of y are those of call 1",)


def test_a_good_kernel_has_no_diagnosis() -> None:
    for dtype in ("float32", "bfloat16"):
        assert told(made(lambda due, x: {}), case(dtype=dtype)) == ()


def test_what_could_not_be_made_plain_is_what_triggers() -> None:
    @target(x=tensor(M, N), w=tensor(N), eps=option(1e-5, 1e-12), dtypes=("float32", "bfloat16"))
    def kernel(x: torch.Tensor, w: torch.Tensor, eps: float) -> Outputs:
        return dict(y=x)

    plain = {"x": Argument(("M", "N"), "float32", recipe("ones")), "w": Argument(("N",), "float32", recipe("ones"))}
    odd = {
        "x": Argument(("M", "N"), "bfloat16", recipe("ones"), Layout(order=(1, 0))),
        "w": Argument(("N",), "float32", recipe("ones")),
    }
    first = Call({"M": 1, "N": 1}, plain, {"eps": 1e-5})
    least = Case("kernel", (first, Call({"M": 2, "N": 2}, odd, {"eps": 1e-12})))
    assert describe_conditions(Case("kernel", (first,)), kernel, lambda case: True) == ()
    assert describe_conditions(least, kernel, lambda case: True) == (
        "only after another call",
        "only with x in bfloat16",
        "where x is transposed, not where it is contiguous",
        "only with eps=1e-12",
    )


def test_nothing_is_said_to_be_needed_that_was_not_tried_without() -> None:
    @target(x=tensor(N), k=option(1, 2, 4), many=option(*range(9)), dtypes=("float32", "bfloat16", "float16"))
    def kernel(x: torch.Tensor, k: int, many: int) -> Outputs:
        return dict(y=x)

    x = Argument(("N",), "bfloat16", recipe("ones"), Layout(step=2))
    least = Case("kernel", (Call({"N": 1}, {"x": x}, {"k": 2, "many": 8}),))
    assert describe_conditions(least, kernel, lambda case: False) == ()

    def agrees(case: Case) -> bool:
        return (
            case.last.arguments["x"].dtype == "float32" or case.last.options["k"] == 1 or case.last.options["many"] < 8
        )

    assert describe_conditions(least, kernel, agrees) == (
        "with x in bfloat16, not in float32",
        "with k=2, not with k=1",
        "with many=8, not with many=0 or with many=1 or with many=2 or with many=3",
    )


def precise(x: torch.Tensor, w: torch.Tensor) -> Outputs:
    return dict(y=torch.expm1(x * w * w).contiguous())


@pytest.mark.parametrize(
    ("slip", "dtype", "declared", "hinted"),
    [
        (1.0, "bfloat16", "float32", True),
        (1.0, "bfloat16", "inputs", False),
        (1.5, "bfloat16", "float32", False),
        (1.0, "float32", "float32", False),
    ],
)
def test_a_value_that_is_stored_in_the_dtype_of_the_inputs_is_named_where_it_explains_everything(
    slip: float, dtype: str, declared: str, hinted: bool
) -> None:
    def kernel(x: torch.Tensor, w: torch.Tensor) -> Outputs:
        stored = (x.float() * w.float()).bfloat16().float()
        return dict(y=(torch.expm1(stored * w.float()) * slip).to(x.dtype))

    shape = dict(x=tensor(M, N), w=tensor(N))
    declaration: Target = target(**shape, dtypes=("float32", "bfloat16"), reference=precise, accumulate=declared)(
        kernel
    )
    of, cpu = case(dtype=dtype), backend("cpu")
    exam = Examination(declaration, declaration.launcher, of, cpu, run(declaration, kernel, of.calls, cpu))
    hint = describe_input_precision(exam, exam)
    assert bool(hint) == hinted
    assert not hinted or hint in AccuracyOracle().diagnose(exam, exam) and 'accumulate="inputs"' in hint


def test_nan_is_not_explained_by_a_value_that_is_rounded_to_infinity() -> None:
    def doubled(x: torch.Tensor) -> Outputs:
        return dict(y=x * 2)

    def kernel(x: torch.Tensor) -> Outputs:
        return dict(y=x * 2 * torch.nan)

    declaration: Target = target(x=tensor(N), dtypes=("float16",), reference=doubled)(kernel)
    large = Argument(("N",), "float16", recipe("constant", 1, mantissa=3, exponent=14))
    of, cpu = Case("kernel", (Call({"N": 2}, {"x": large}, {}),)), backend("cpu")
    exam = Examination(declaration, declaration.launcher, of, cpu, run(declaration, kernel, of.calls, cpu))
    assert describe_input_precision(exam, exam) == ""
