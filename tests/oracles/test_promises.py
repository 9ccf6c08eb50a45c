"""What a target may promise of its values, and that a promise nothing checks is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fuzz import size, target, tensor, ulps
from fuzz.backends import BACKENDS, backend
from fuzz.backends.execute import run
from fuzz.errors import TargetError
from fuzz.model.case import Argument, Call, Case, Split
from fuzz.model.dims import Size
from fuzz.model.dtypes import DTYPES
from fuzz.model.layout import Layout
from fuzz.model.outcome import Returned
from fuzz.model.recipes import exact, recipe
from fuzz.oracles import SAMPLED
from fuzz.oracles.comparison.bits import compare_values
from fuzz.oracles.comparison.elements import compare_elements
from fuzz.oracles.comparison.expected import evaluate_reference
from fuzz.oracles.examine import examine
from fuzz.oracles.execution.examination import Examination, stacked_values
from fuzz.oracles.scaling import Change, change_values
from fuzz.reference.envelope import Expected, make_precision
from fuzz.target.contract import Contract
from fuzz.target.promises import describe_promise
from fuzz.target.spec import Target
from fuzz.worker.protocol import Examine, Report

M, N = size("M", 1, 64), size("N", 1, 64)
Outputs = Mapping[str, torch.Tensor]


def matrix(made: Target, name: str = "normal", split: Split | None = None, **params: int) -> Case:
    arguments = {
        key: Argument(value.shape, "float32", recipe(name, place, **params), Layout(order=(1, 0)))
        for place, (key, value) in enumerate(made.tensors.items(), 1)
    }
    return Case(made.name, (Call({"M": 5, "N": 7}, arguments, {}),), split)


def judged(made: Target, case: Case) -> Report:
    cpu = backend("cpu")
    outcome = run(made, made.launcher, case.calls, cpu)
    request = Examine(case, tuple(oracle.name for oracle in SAMPLED), everything=True)
    return examine(Examination(made, made.launcher, case, cpu, outcome), request)


def fired(made: Target, case: Case) -> list[tuple[str, str]]:
    return [(found.oracle, found.symptom) for found in judged(made, case).findings]


def made(launcher: Any, **more: Any) -> Target:
    more = {"reference": lambda x: dict(y=2 * x), **more}
    found: Target = target(x=tensor(M, N), **{"dtypes": ("float32",), **more})(launcher)
    return found


def twice(x: torch.Tensor) -> Outputs:
    return dict(y=(2 * x).contiguous())


def two_ulps_off(x: torch.Tensor) -> Outputs:
    return dict(y=(2 * x).contiguous().view(torch.int32).add(2).view(torch.float32))


def test_ulps_count_from_the_correctly_rounded_value() -> None:
    assert fired(made(two_ulps_off, contract=ulps(2)), matrix(made(twice))) == []
    assert ("accuracy", "value") in fired(made(two_ulps_off, contract=ulps(1)), matrix(made(twice)))
    assert fired(made(twice, contract=ulps(0)), matrix(made(twice))) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_zero_has_the_unit_of_the_smallest_numbers(dtype: torch.dtype) -> None:
    """Half a unit in the last place at 0 is half the smallest subnormal, not that of numbers beside 1/2."""
    nothing = Expected(torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64), None)
    for contract in (Contract("envelope"), ulps(1)):
        assert compare_elements(torch.tensor([2.0**-10], dtype=dtype), nothing, make_precision("libm"), contract).wrong
        assert not compare_elements(torch.zeros(1, dtype=dtype), nothing, make_precision("libm"), contract).wrong


def test_a_baseline_is_compared_bit_by_bit() -> None:
    bits = dict(contract="bitwise", baseline=twice, reference=None)
    assert fired(made(twice, **bits), matrix(made(twice))) == []
    assert ("accuracy", "bits") in fired(made(two_ulps_off, **bits), matrix(made(twice)))


def test_a_baseline_is_compared_call_by_call() -> None:
    seen = []

    def worse_each_time(x: torch.Tensor) -> Outputs:
        seen.append(x)
        return two_ulps_off(x) if len(seen) == 2 else twice(x)

    one = matrix(made(twice))
    report = judged(
        made(worse_each_time, contract="bitwise", baseline=twice, reference=None), replace(one, calls=one.calls * 3)
    )
    assert [(found.oracle, found.symptom, found.call) for found in report.findings] == [("accuracy", "bits", 1)]


def test_a_baseline_with_other_outputs_is_the_targets_fault() -> None:
    other = made(twice, contract="bitwise", baseline=lambda x: dict(z=x.clone()), reference=None)
    with pytest.raises(TargetError, match="the baseline returns"):
        judged(other, matrix(other))


def depends_on_rows(x: torch.Tensor) -> Outputs:
    y = (2 * x).contiguous()
    return dict(y=y.view(torch.int32).add(x.shape[0] % 2).view(torch.float32))


def test_wider_bounds_are_asked_for_only_where_narrower_ones_are_exceeded() -> None:
    def bounds(asked: list[float]) -> Iterator[Outputs]:
        for bound in (0.1, 1.0, 10.0):
            asked.append(bound)
            yield dict(y=torch.full((2,), bound))

    for other, known, wrong in ((1.1, [0.1], False), (2.5, [0.1, 1.0], False), (99.0, [0.1, 1.0, 10.0], True)):
        asked: list[float] = []
        pair = torch.tensor([1.0, 1.0]), torch.tensor([1.0, other])
        finding = compare_values("layout", "when asked again", dict(y=pair), bounds(asked))
        assert (finding is not None, asked) == (wrong, known)


def test_anything_is_allowed_where_the_envelope_is_unbounded() -> None:
    pair = torch.tensor([torch.inf, 1.0]), torch.tensor([torch.nan, 1.0])
    for bound, wrong in ((torch.inf, False), (1.0, True)):
        bounds = [dict(y=torch.full((2,), bound))]
        assert (compare_values("layout", "when asked again", dict(y=pair), bounds) is not None) is wrong


@pytest.mark.parametrize(
    ("one", "other", "bound"),
    [(torch.inf, 0.0, 32760.0), (torch.inf, -torch.inf, 65520.0), (torch.inf, 65504.0, 8.0)],
    ids=["zero", "opposite", "largest"],
)
def test_what_overflows_counts_as_the_least_number_that_does(one: float, other: float, bound: float) -> None:
    """In float16: both runs may be inside the bound of a number between them, but not of one less."""
    pair = (torch.tensor([one], dtype=torch.float16), torch.tensor([other], dtype=torch.float16))
    for each, wrong in ((bound, False), (bound * 0.99, True)):
        bounds = [dict(y=torch.full((1,), each, dtype=torch.float64))]
        assert (compare_values("parity", "in another order", dict(y=pair), bounds) is not None) is wrong


def test_drift_inside_the_envelope_is_allowed_where_bits_are_not_promised() -> None:
    split = Split(1, 2)
    loose = dict(reference=lambda x: dict(y=x / 3 * 6), batch=M)
    strict = made(depends_on_rows, **loose)
    assert ("invariance", "bits") in fired(strict, matrix(strict, split=split))
    assert fired(made(depends_on_rows, invariance="envelope", **loose), matrix(strict, split=split)) == []

    def far(x: torch.Tensor) -> Outputs:
        return dict(y=2 * x * (1 + 1e-3 * (x.shape[0] % 2)))

    drifting = made(far, invariance="envelope", **loose)
    assert ("invariance", "drift") in fired(drifting, matrix(strict, split=split))


@pytest.mark.parametrize("invariance", ["bitwise", "envelope"])
def test_elements_that_differ_in_another_batch_have_their_index_in_the_whole_one(invariance: str) -> None:
    def far(x: torch.Tensor) -> Outputs:
        return dict(y=2 * x * (1 + 1e-3 * (x.shape[0] % 2)))

    rows = made(far, invariance=invariance, batch=M)
    (found,) = [one for one in judged(rows, matrix(rows, split=Split(3, 2))).findings if one.oracle == "invariance"]
    assert {one.index[0] for one in found.elements} <= {3, 4} and found.elements[0].index == (3, 0)


def test_layouts_may_move_a_result_inside_the_envelope_where_bits_are_not_promised() -> None:
    def by_layout(x: torch.Tensor) -> Outputs:
        y = (2 * x).contiguous()
        return dict(y=y.view(torch.int32).add(int(x.is_contiguous())).view(torch.float32))

    loose = dict(reference=lambda x: dict(y=x / 3 * 6))
    strict = dict(layout="bitwise")
    assert ("layout", "bits") in fired(made(by_layout, **strict, **loose), matrix(made(twice)))
    assert fired(made(by_layout, **loose), matrix(made(twice))) == []
    atomics = dict(deterministic="it adds by atomics")
    assert fired(made(by_layout, **atomics, **strict, **loose), matrix(made(twice))) == []
    assert ("layout", "bits") not in fired(made(by_layout, **atomics, **strict), matrix(made(twice)))
    assert fired(made(by_layout, reference=None), matrix(made(twice))) == []


def test_rows_may_depend_on_a_layout_that_their_number_decides() -> None:
    """A single row is contiguous whatever its stride, so that a launcher which copies what is not does not copy it."""

    def copies(x: torch.Tensor) -> Outputs:
        y = (2 * x).contiguous()
        return dict(y=y.view(torch.int32).add(int(x.is_contiguous())).view(torch.float32))

    loose = dict(reference=lambda x: dict(y=x / 3 * 6), batch=M)
    split = Split(2, 1)
    assert fired(made(copies, **loose), matrix(made(twice), split=split)) == []
    strict = made(copies, layout="bitwise", **loose)
    assert ("invariance", "bits") in fired(strict, matrix(made(twice), split=split))
    assert ("invariance", "bits") in fired(made(depends_on_rows, **loose), matrix(made(twice), split=Split(1, 2)))


def test_a_message_names_the_promise_and_where_it_was_made() -> None:
    split = Split(1, 2)
    broken = made(depends_on_rows, reference=lambda x: dict(y=x / 3 * 6), batch=M)
    message = judged(broken, matrix(broken, split=split)).findings[0].message
    line = depends_on_rows.__code__.co_firstlineno
    assert f"promised by default (test_promises.py:{line}); invariance='envelope' promises less" in message

    @target(x=tensor(M, N), layout="bitwise", reference=lambda x: dict(y=x), dtypes=("float32",))
    def promises(x: torch.Tensor) -> Outputs:
        return dict(y=x)

    wanted = f'promised by layout="bitwise" (test_promises.py:{promises.launcher.__code__.co_firstlineno})'
    assert describe_promise(promises, "layout") == wanted
    assert describe_promise(promises, "dtypes").startswith('promised by dtypes=("float32",) (')


def test_rows_in_reverse_order_are_not_compared_where_the_envelope_is_promised() -> None:
    loose = made(depends_on_rows, batch=M, invariance="envelope", reference=lambda x: dict(y=x / 3 * 6))
    assert "scaling" not in judged(loose, matrix(loose)).examined


def test_an_intermediate_beyond_the_range_is_a_finding_where_the_full_range_is_promised() -> None:
    def overflows(x: torch.Tensor) -> Outputs:
        return dict(y=(x * 2.0**120 * 2.0**120 * 2.0**-200).contiguous())

    loose = dict(reference=lambda x: dict(y=x * 2.0**120 * 2.0**120 * 2.0**-200))
    assert fired(made(overflows, **loose), matrix(made(twice))) == []
    assert ("accuracy", "nonfinite") in fired(made(overflows, range="full", **loose), matrix(made(twice)))


def test_a_rounding_to_integers_decides_nothing_where_the_bound_reaches_the_tie() -> None:
    """10.5 is a tie: where it is computed, it may be a little less; where it is given, it rounds to 10."""
    values = np.array([10.5, 10.4, 9.5], np.float32).view(np.uint32)
    x = Argument(("M", "N"), "float32", exact(values, DTYPES["float32"]))
    case = Case("rounded", (Call({"M": 1, "N": 3}, {"x": x}, {}),))

    def half_down(x: torch.Tensor) -> Outputs:
        return dict(y=(x - 2.0**-20).round().to(torch.int8))

    computed = made(half_down, reference=lambda x: dict(y=(x / 3 * 3).round().to(torch.int8)))
    given = made(half_down, reference=lambda x: dict(y=x.round().to(torch.int8)))
    assert fired(computed, case) == [] and ("accuracy", "value") in fired(given, case)


def test_what_is_linear_scales_bit_by_bit() -> None:
    linear = dict(linear=("x",))
    assert fired(made(twice, **linear), matrix(made(twice))) == []

    def clamped(x: torch.Tensor) -> Outputs:
        return dict(y=(2 * x).clamp(-3.0, 3.0).contiguous())

    limited = made(clamped, reference=lambda x: dict(y=(2 * x).clamp(-3.0, 3.0)), **linear)
    finding = judged(limited, matrix(made(twice))).findings[-1]
    assert (finding.oracle, finding.symptom, finding.change) == ("scaling", "scale", ("x", 8.0))
    assert all(float(np.uint32(int(one.got_word, 16)).view(np.float32)) == float(one.got) for one in finding.elements)


def test_a_linear_argument_that_is_not_given_is_not_scaled() -> None:
    @target(
        x=tensor(M, N), y=tensor(M, N) | None, linear=("y",), dtypes=("float32",),
        reference=lambda x, y: dict(z=x if y is None else x * y),
    )  # fmt: skip
    def times(x: torch.Tensor, y: torch.Tensor | None) -> Outputs:
        return dict(z=x.clone() if y is None else x * y)

    given = matrix(times)
    left_out = replace(given.last, arguments={"x": given.last.arguments["x"]})
    assert fired(times, replace(given, calls=(left_out,))) == fired(times, given) == []


def test_underflow_does_not_count_against_what_is_linear() -> None:
    def through_tiny(x: torch.Tensor) -> Outputs:
        return dict(y=(x * 2.0**-140 * 2.0**100).contiguous())

    tiny = made(through_tiny, reference=lambda x: dict(y=x * 2.0**-140 * 2.0**100), linear=("x",))
    assert fired(tiny, matrix(tiny)) == []


def test_the_changed_values_are_not_evaluated_where_underflow_of_the_first_ones_explains_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def count(exam: Examination, *rest: Any, **more: Any) -> Any:
        asked.append(exam.case)
        return evaluate_reference(exam, *rest, **more)

    def through_tiny(x: torch.Tensor) -> Outputs:
        return dict(y=(x * 2.0**-140 * 2.0**100).contiguous())

    monkeypatch.setattr("fuzz.oracles.scaling.evaluate_reference", count)
    tiny = made(through_tiny, reference=lambda x: dict(y=x * 2.0**-140 * 2.0**100), linear=("x",))
    assert fired(tiny, matrix(tiny)) == []
    assert asked and all(case == matrix(tiny) for case in asked)


def test_underflow_that_breaks_a_tie_does_not_count_against_what_is_linear() -> None:
    """fma(x1, 1.5, x0 * 6e-45): the first product decides how the tie of the second is rounded, until it underflows."""
    little = 2.0**-147

    def fused(x: torch.Tensor) -> Outputs:
        first, second = (x[:, :1] * little).double(), 1.5 * x[:, 1:2].double()
        return dict(y=torch.nextafter(second, second + torch.sign(first)).float().contiguous())

    promised = dict(reference=lambda x: dict(y=x[:, :1] * little + x[:, 1:2] * 1.5), linear=("x",))
    tied = Argument(("M", "N"), "float32", exact(np.array([0x3F800000, 0x3FE7F3E6], np.uint32), DTYPES["float32"]))
    case = Case("fused", (Call({"M": 1, "N": 2}, {"x": tied}, {}),))
    assert fired(made(fused, **promised), case) == []


@pytest.mark.parametrize("name", ["cpu", "cuda"])
def test_operands_that_are_subnormal_are_not_scaled_where_tensor_cores_cut(name: str) -> None:
    def may_scale(word: int) -> bool:
        values = exact(np.array([word], np.uint16), DTYPES["float16"])
        tiny = Case("t", (Call({"M": 1, "N": 1}, {"x": Argument(("M", "N"), "float16", values)}, {}),))
        one = made(twice, dtypes=("float16",), linear=("x",))
        exam = Examination(one, twice, tiny, BACKENDS[name], Returned(()))
        return bool(change_values(exam, Change("x", 8.0, scales=True), stacked_values([exam])["x"])[1])

    assert may_scale(0x3C00) and may_scale(0x0009) is (name == "cpu")


def test_results_that_become_subnormal_do_not_count_against_what_is_linear() -> None:
    small = made(lambda x: dict(y=(x * 2.0**-14).half()), reference=lambda x: dict(y=x * 2.0**-14), linear=("x",))
    assert fired(small, matrix(made(twice))) == []


def test_what_may_be_shifted_keeps_its_bits() -> None:
    def centred(x: torch.Tensor) -> Outputs:
        return dict(y=(x - x.amax(-1, keepdim=True)).contiguous())

    def right(x: torch.Tensor) -> Mapping[str, torch.Tensor]:
        return dict(y=x - x.amax(-1, keepdim=True))

    whole = matrix(made(twice), "integers")
    assert fired(made(centred, reference=right, shifts=("x",)), whole) == []
    assert ("scaling", "shift") in fired(made(twice, shifts=("x",)), whole)


def test_rows_in_reverse_order_give_their_results_in_reverse_order() -> None:
    def first_row_counts(x: torch.Tensor) -> Outputs:
        return dict(y=(2 * x + (x - x[:1]) * 0 + torch.nextafter(x[:1], x[:1] + 1) - x[:1]).contiguous())

    assert fired(made(twice, batch=M), matrix(made(twice))) == []
    loose = made(first_row_counts, batch=M, reference=lambda x: dict(y=x / 3e-4 * 6e-4 + x[:1] / 3 * 6 - 2 * x[:1]))
    assert ("scaling", "permutation") in fired(loose, matrix(made(twice)))


REFUSED = [
    (dict(contract="exact"), "unknown contract 'exact'"),
    (dict(contract="bitwise"), "needs a baseline="),
    (dict(contract=ulps(1), reference=None), "needs a reference="),
    (dict(baseline=twice, reference=None), "contract='bitwise'"),
    (dict(invariance="envelope"), "needs batch= or rows="),
    (dict(invariance="often", batch=M), "invariance is one of bitwise, envelope"),
    (dict(layout="often"), "layout is one of bitwise, envelope"),
    (dict(range="all"), "range is one of working, full"),
    (dict(range="full", reference=None), "range='full' needs a reference="),
    (dict(linear=("y",)), "'y' is no tensor argument"),
    (dict(linear=("x",), reference=None), "linear= needs a reference="),
    (dict(batch=M, rows={"y": M}), "rows= goes without batch="),
    (dict(rows={"y": M, "w": N}), "its outputs are rows of one dim"),
]


@pytest.mark.parametrize(("promise", "message"), REFUSED)
def test_a_promise_that_nothing_checks_is_an_error(promise: dict[str, Any], message: str) -> None:
    with pytest.raises(TargetError) as error:
        made(twice, **promise)
    assert message in str(error.value)


def test_ulps_are_not_negative() -> None:
    with pytest.raises(TargetError, match="0 or more"):
        ulps(-1)


def column_sums(x: torch.Tensor) -> Outputs:
    """The sum of each column and the largest sum of pairs, which do not depend on the other columns."""
    return dict(sums=x.sum(0), pairs=torch.stack([x.double().sum(0), x.double().amax(0)], 1).float())


def favours_its_first_column(x: torch.Tensor) -> Outputs:
    sums = x.sum(0)
    sums[0] += 1
    return dict(sums=sums)


def by_columns(launcher: Any, *outputs: str) -> Target:
    def reference(x: torch.Tensor) -> Outputs:
        expected = dict(sums=x.sum(0), pairs=torch.stack([x.sum(0), x.amax(0)], 1))
        return {name: expected[name] for name in outputs}

    found: Target = target(x=tensor(M, N), dtypes=("float32",), rows=dict.fromkeys(outputs, N), reference=reference)(
        launcher
    )
    return found


@pytest.mark.parametrize("split", [None, Split(2, 3), Split(1, 4, before=2, after=1)])
def test_rows_are_taken_along_the_dim_that_counts_them(split: Split | None) -> None:
    # A sum over the first dim: the rows of the outputs are the columns of the argument.
    right = by_columns(column_sums, "sums", "pairs")
    assert fired(right, matrix(right, "integers", split)) == []


@pytest.mark.parametrize(("split", "oracle"), [(None, "scaling"), (Split(2, 3), "invariance")])
def test_a_row_along_another_dim_that_depends_on_its_place_is_found(split: Split | None, oracle: str) -> None:
    wrong = by_columns(favours_its_first_column, "sums")
    assert oracle in {name for name, _ in fired(wrong, matrix(wrong, "integers", split))}


def test_rows_are_not_moved_where_a_tensor_has_their_number_in_an_expression() -> None:
    def lengths(x: torch.Tensor, starts: torch.Tensor) -> Outputs:
        return dict(y=x * (starts[1:] - starts[:-1])[:, None])

    found = target(x=tensor(M, N), starts=tensor(M + 1), dtypes=("float32",), batch=M, reference=lengths)(lengths)
    x, starts = (Argument(shape, "float32", recipe("integers", 1)) for shape in (("M", "N"), ("M + 1",)))
    case = Case(found.name, (Call({"M": 5, "N": 7}, dict(x=x, starts=starts), {}),), Split(2, 2))
    assert fired(found, case) == []


@pytest.mark.parametrize("rows", [size("M", 4, 64, multiple_of=4), size("M", 3, 64)])
def test_a_split_is_computed_in_a_batch_of_a_size_that_is_declared(rows: Size) -> None:
    seen = []

    def blocks(x: torch.Tensor) -> Outputs:
        seen.append(len(x))
        return twice(x)

    declared = target(x=tensor(rows, N), batch=rows, dtypes=("float32",), reference=lambda x: dict(y=2 * x))(blocks)
    case = matrix(declared, split=Split(2, 1))
    whole = replace(case, calls=(replace(case.last, dims={"M": 8, "N": 7}),))
    assert fired(declared, whole) == []
    assert rows.clamp(1) in seen and all(rows.clamp(count) == count for count in seen)
