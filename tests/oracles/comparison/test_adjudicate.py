"""The rules by which the kernel or the reference is found wrong, on numbers chosen for them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from mpmath import mp, mpf

from fuzz.backends import BACKENDS
from fuzz.backends.execute import run
from fuzz.errors import TargetError, Unadjudicated
from fuzz.model.case import Argument, Call, Case
from fuzz.model.finding import VERDICTS, Finding, Verdict
from fuzz.model.oracle_specs import SYMPTOMS
from fuzz.model.provenance import Provenance
from fuzz.model.recipes import Exact, recipe
from fuzz.oracles.accuracy import AccuracyOracle
from fuzz.oracles.comparison.adjudicate import adjudicate, evaluate_exact_outputs, find_faults
from fuzz.oracles.comparison.screening import screen
from fuzz.oracles.execution.examination import Examination
from fuzz.reference import exact
from fuzz.reference.envelope import Expected, make_precision
from fuzz.reference.exact import evaluate_exact
from fuzz.target.arguments import option, size, tensor
from fuzz.target.contract import ulps
from fuzz.target.spec import declare

CPU = make_precision("libm")
N = size("N", 1, 64)
NAN, INF = float("nan"), float("inf")
Outputs = dict[str, torch.Tensor]


@pytest.mark.parametrize(
    ("out", "value", "exact", "kernel", "reference"),
    [
        (1.0, 1.0, 1.0, False, False),
        (1.1, 1.0, 1.0, True, False),
        (1.1, 1.0, 1.1, False, True),
        (1.1, 1.0, 1.05, True, False),
        (-1.0, 1.0, 1.0, True, False),
        (NAN, 1.0, 1.0, True, False),
        (1.0, NAN, 1.0, False, True),
        (1.1, NAN, 1.0, False, True),
        (1.0, NAN, NAN, True, False),
        (INF, 1e30, 1e50, False, True),
        (1.0, INF, INF, True, False),
        (2.0, 1.0, INF, False, False),
        (2.0, 1.0, NAN, False, False),
    ],
)
def test_sides_of_one_element(out: float, value: float, exact: float, kernel: bool, reference: bool) -> None:
    expected = Expected(torch.tensor([value]).double(), torch.tensor([1e-9]).double(), torch.tensor([1e-18]).double())
    found = find_faults(torch.tensor([out]), expected, np.array([mpf(exact)], dtype=object), CPU)
    assert [bool(side) for side in found] == [kernel, reference]


def test_whole_numbers_are_equal_or_wrong() -> None:
    value = torch.tensor([3, 3, 3])
    expected = Expected(value, torch.zeros(3).double(), None)
    kernel, reference = find_faults(torch.tensor([4, 3, 4]), expected, np.array([3, 3, 4]), CPU)
    assert kernel.tolist() == [True, False, False] and reference.tolist() == [False, False, True]


def examined(
    launcher: Callable[..., Outputs],
    reference: Callable[..., Outputs],
    *words: int,
    options: Mapping[str, float] = MappingProxyType({}),
    **more: Any,
) -> Examination:
    arguments = {"x": tensor(N), **{name: option(value) for name, value in options.items()}}
    target = declare(launcher, **arguments, dtypes=("float32",), reference=reference, **more)
    x = Argument(("N",), "float32", Exact(words, "float32"))
    case = Case("t", (Call({"N": len(words)}, {"x": x}, options),))
    return Examination(target, launcher, case, BACKENDS["cpu"], run(target, launcher, case.calls, BACKENDS["cpu"]))


def words(*values: float) -> list[int]:
    return [int(word) for word in np.array(values, np.float32).view(np.uint32)]


def stable(x: torch.Tensor) -> Outputs:
    return dict(y=x * torch.special.erfc(-x))


def twice_too_large(x: torch.Tensor) -> Outputs:
    return dict(y=2 * x * torch.special.erfc(-x))


def unstable(x: torch.Tensor) -> Outputs:
    return dict(y=x * (1 + torch.erf(x)))


def test_an_output_that_float64_cannot_confirm_is_settled_by_its_exact_value() -> None:
    found = AccuracyOracle().check_case(examined(stable, unstable, *words(-6.5, 1.0)))
    assert found is not None and (found.symptom, found.elements[0].index, found.disagreeing) == ("reference", (0,), 1)
    assert AccuracyOracle().check_case(examined(stable, stable, *words(-6.5, 1.0))) is None
    assert AccuracyOracle().check_case(examined(unstable, unstable, *words(-6.5, 1.0))) is None


def test_an_option_may_be_what_float32_holds_of_it() -> None:
    """Neither bounds nor exact values say that 1 - 0.999 has to be known better than float32's 0.999 allows."""

    def momentum(x: torch.Tensor, b: float) -> Outputs:
        return dict(y=(1 - b) * x)

    def in_float32(x: torch.Tensor, b: float) -> Outputs:
        return dict(y=(1 - torch.tensor(b, dtype=torch.float32)) * x)

    def wrong(x: torch.Tensor, b: float) -> Outputs:
        return dict(y=(1 - b) * x * (1 + 2.0**-14))

    given = words(*(number / 7 for number in range(1, 40)))
    for launcher in (momentum, in_float32):
        assert AccuracyOracle().check_case(examined(launcher, momentum, *given, options={"b": 0.999})) is None
    exam = examined(wrong, momentum, *given, options={"b": 0.999})
    found = AccuracyOracle().check_case(exam)
    assert found is not None and adjudicate(exam, found, 10.0).name == "kernel"


def test_replicas_in_doubt_are_not_cleared_together() -> None:
    exams = [examined(stable, unstable, *words(x)) for x in (-6.5, 1.0)]
    screen(exams)
    assert [exam.cleared for exam in exams] == [False, True]


def test_a_sum_that_cancels_is_nobodys_fault() -> None:
    """Added from the ends inward the terms cancel first; in float64, from one end, the 1 is lost."""

    def inward(x: torch.Tensor) -> Outputs:
        return dict(y=(x + x.flip(0))[: (len(x) + 1) // 2].sum(0, keepdim=True))

    def in_order(x: torch.Tensor) -> Outputs:
        return dict(y=torch.cumsum(x, 0)[-1:])

    exam = examined(inward, in_order, *words(2.0**100, 1.0, 0.0, 0.0, -(2.0**100)))
    assert float(exam.returned.calls[0].outputs["y"]) == 1
    assert AccuracyOracle().check_case(exam) is None


def test_the_exact_value_of_a_target_may_be_its_own() -> None:
    """The reference is wrong on purpose; `exact=` says so."""

    def exact(x: Any) -> Mapping[str, Any]:
        return dict(y=x * mp.erfc(-x))

    exam = examined(stable, lambda x: dict(y=x), *words(2.0), exact=exact)
    found = AccuracyOracle().check_case(exam)
    assert found is not None and found.symptom == "value"
    verdict = adjudicate(exam, found, 10.0)
    assert verdict.name == "reference" and verdict.finding is not None
    assert verdict.finding.elements[0].exact.startswith("3.99064")


def test_an_output_of_which_the_reference_is_right_is_not_counted() -> None:
    def launcher(x: torch.Tensor) -> Outputs:
        return dict(stable(x), h=x * 1)

    exam = examined(launcher, lambda x: dict(y=x, h=x), *words(2.0), exact=lambda x: dict(y=x * mp.erfc(-x), h=x))
    found = AccuracyOracle().check_case(exam)
    assert found is not None and found.message.startswith("y: 1 of 1 elements wrong")
    wrong = adjudicate(exam, found, 10.0).finding
    assert wrong is not None and (wrong.symptom, wrong.disagreeing, wrong.compared) == ("reference", 1, 1)


def test_exact_values_must_be_those_of_the_outputs() -> None:
    exam = examined(stable, stable, *words(2.0), exact=lambda x: dict(z=x))
    with pytest.raises(Unadjudicated, match="no output 'y' of shape"):
        evaluate_exact_outputs(exam, 0, 1.0)
    with pytest.raises(TargetError, match="exact= goes with a reference"):
        declare(stable, x=tensor(N), exact=stable)


def test_a_promise_of_ulps_is_adjudicated_by_it() -> None:
    def rough(x: torch.Tensor) -> Outputs:
        return dict(y=torch.exp(x) * (1 + 2.0**-22))

    exam = examined(rough, lambda x: dict(y=torch.exp(x)), *words(2.0), contract=ulps(2))
    found = AccuracyOracle().check_case(exam)
    assert found is not None and adjudicate(exam, found, 10.0).name == "kernel"


def test_a_baselines_bits_are_not_adjudicated() -> None:
    exam = examined(stable, stable, *words(2.0))
    found = Finding("accuracy", ("y",), "bits", "other bits")
    assert adjudicate(exam, found, 1.0).text == "unadjudicated (it was compared with a baseline's bits)"


def test_without_mpmath_the_verdict_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fuzz.reference.exact", None)
    found = Finding("accuracy", ("y",), "value", "wrong")
    verdict = adjudicate(examined(twice_too_large, stable, *words(2.0)), found, 1.0)
    assert verdict == Verdict("unadjudicated", "mpmath is not installed", finding=found)


def test_without_an_exact_value_only_what_is_far_off_a_certain_reference_is_a_finding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "fuzz.reference.exact", None)
    found = Finding("accuracy", ("y",), "value", "wrong")

    def a_little_wrong(x: torch.Tensor) -> Outputs:
        return dict(y=(x * torch.special.erfc(-x.double()) * (1 + 2.0**-16)).float())

    verdicts = {
        (kernel, reference, x): adjudicate(examined(kernel, reference, *words(x)), found, 1.0).name
        for kernel, reference, x in (
            *((a_little_wrong, stable, 2.0), (twice_too_large, unstable, -6.5), (twice_too_large, stable, -6.5)),
        )
    }
    assert list(verdicts.values()) == ["undecided", "undecided", "unadjudicated"]


@pytest.mark.parametrize("verdict", [Verdict("kernel", digits=100), Verdict("unadjudicated", "no rule for x")])
def test_an_entry_recalls_the_verdict_that_it_tells(verdict: Verdict) -> None:
    assert Provenance.parse(Provenance("cpu", verdict=verdict).fields()).verdict == verdict
    assert Provenance.parse({"verdict": "guilty", "digits": "many"}).adjudication == Verdict("unadjudicated")


def test_a_verdict_is_one_of_a_list() -> None:
    assert (
        VERDICTS == ("kernel", "reference", "undecided", "unadjudicated", "pending")
        and "reference" in SYMPTOMS["accuracy"]
    )
    with pytest.raises(ValueError, match="no verdict 'maybe'"):
        Verdict("maybe")


@pytest.mark.parametrize("axis", [0, 1])
def test_of_a_large_call_the_rows_that_disagree_are_adjudicated_alone(
    axis: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What else there is would take more time than there is. Rows may be any dim of an argument."""
    shape = [size("C", 1, 1000)]
    shape.insert(axis, size("R", 1, 1000))

    def right(x: torch.Tensor) -> Outputs:
        return dict(y=torch.softmax(x.movedim(axis, 0), -1))

    def softmax(x: torch.Tensor) -> Outputs:
        y = right(x)["y"]
        y[300, 2] *= 1.001
        return dict(y=y)

    target = declare(softmax, x=tensor(*shape), batch=shape[axis], reference=right)
    x = Argument(tuple(one.name for one in shape), "float32", recipe("normal", 1))
    case = Case("t", (Call({"R": 400, "C": 100}, {"x": x}),))
    exam = Examination(target, softmax, case, BACKENDS["cpu"], run(target, softmax, case.calls, BACKENDS["cpu"]))
    found = AccuracyOracle().check_case(exam)
    assert found is not None and [element.index for element in found.elements] == [(300, 2)]
    seen: list[int] = []

    def evaluate(reference: Any, inputs: Mapping[str, Any], **limits: Any) -> Any:
        seen.append(inputs["x"].numel())
        return evaluate_exact(reference, inputs, **limits)

    monkeypatch.setattr(exact, "evaluate_exact", evaluate)
    verdict = adjudicate(exam, found, 30.0)
    assert (verdict.name, seen) == ("kernel", [100])
    assert verdict.finding is not None and verdict.finding.elements[0].exact[:8] == verdict.finding.elements[0].want[:8]


@pytest.mark.parametrize(("factor", "name"), [(0.99, "kernel"), (1.0, "undecided")])
def test_a_sum_of_too_many_terms_for_exact_values_is_decided_by_intervals(factor: float, name: str) -> None:
    """A million terms: 1 % is some twenty times the bound of a float32 sum in sequence."""

    def total(x: torch.Tensor) -> Outputs:
        return dict(y=(x.double().sum() * factor).float())

    target = declare(total, x=tensor(size("N", 1, 1 << 21)), reference=lambda x: dict(y=x.sum()))
    x = Argument(("N",), "float32", recipe("normal", 1))
    case = Case("t", (Call({"N": 1 << 20}, {"x": x}),))
    exam = Examination(target, total, case, BACKENDS["cpu"], run(target, total, case.calls, BACKENDS["cpu"]))
    found = AccuracyOracle().check_case(exam) or Finding("accuracy", ("y",), "value", "it may be wrong")
    verdict = adjudicate(exam, found, 30.0)
    assert (verdict.name, verdict.reason, verdict.proof) == (name, "", "intervals")
