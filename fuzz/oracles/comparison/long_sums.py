"""Finds outputs whose errors have one sign in all rows, in cases where walks of long sums explain each error alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from fuzz.oracles.comparison.bits import Outputs
from fuzz.oracles.comparison.elements import ElementComparison, compare_elements
from fuzz.oracles.comparison.expected import (
    BEFORE_THOROUGH,
    STAGES,
    ExpectedOutputs,
    evaluate_order_errors,
    evaluate_reference,
    evaluate_without_walks,
)
from fuzz.oracles.comparison.shift import Shift, find_shift, may_be_shifted, relative_errors
from fuzz.oracles.execution.examination import Examination
from fuzz.reference.envelope import Expected

__all__ = ["ShiftedOutput", "find_shifts", "may_have_shifts"]


@dataclass(frozen=True)
class ShiftedOutput:
    """An output whose errors have one sign: what is expected, with bounds that hold no walks, and the comparison."""

    shift: Shift
    expected: Expected
    compared: ElementComparison


def may_have_shifts(outputs: Outputs, expected: ExpectedOutputs, compared: Mapping[str, ElementComparison]) -> bool:
    """Whether some output may be shifted; `compared` are with bounds of few members that hold no walks."""
    return any(
        may_be_shifted(relative_errors(outputs[name], one, compared[name]), one.value) for name, one in expected.items()
    )


def find_shifts(
    exam: Examination, index: int, outputs: Outputs, exact: Mapping[str, torch.Tensor] | None = None
) -> dict[str, ShiftedOutput]:
    """The shifted outputs of one call by name, about exact values where there are some.

    Of an output that agrees with all members none is found unless walks are what its bound needs: without them each
    error over bound would be 1 at most.
    """
    if exam.target.contract.kind != "envelope":
        return {}
    found: dict[str, ShiftedOutput] = {}
    # Bounds of few members are narrower and cheap: they say first where there is nothing to find.
    for stage in range(BEFORE_THOROUGH, len(STAGES)):
        evaluate = evaluate_reference if stage == BEFORE_THOROUGH else evaluate_without_walks
        found = find_shifted_outputs(exam, index, outputs, evaluate(exam, index, stage), exact)
        if not found:
            break
    return found


def find_shifted_outputs(
    exam: Examination,
    index: int,
    outputs: Outputs,
    expected: ExpectedOutputs,
    exact: Mapping[str, torch.Tensor] | None,
) -> dict[str, ShiftedOutput]:
    """The shifted outputs by the bounds of `expected`, which hold no walks."""
    if exact is not None:
        expected = {name: replace(one, value=exact[name].to(one.value.device)) for name, one in expected.items()}
    compared = {name: compare_elements(outputs[name], one, exam.precision) for name, one in expected.items()}
    if not may_have_shifts(outputs, expected, compared):
        return {}
    orders, found = evaluate_order_errors(exam, index), {}
    for name, one in expected.items():
        errors, bound = relative_errors(outputs[name], one, compared[name]), compared[name].bound
        walks = torch.where(torch.isfinite(bound), orders[name].to(bound.device) / bound, 0.0)
        if may_be_shifted(errors, one.value) and (shift := find_shift(errors, walks, one.value)):
            found[name] = ShiftedOutput(shift, one, compared[name])
    return found
