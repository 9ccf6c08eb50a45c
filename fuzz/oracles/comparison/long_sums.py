"""Finds wrong outputs in cases where walks of long sums explain each error alone.

Either the errors have one sign in all rows (bias.py), or those of a row do not move together (row_errors.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from fuzz.backends.guarded_memory import DTYPE_NAMES
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.oracles.comparison.bias import Bias, find_bias, may_be_biased, relative_errors
from fuzz.oracles.comparison.bits import Outputs
from fuzz.oracles.comparison.elements import SYMPTOMS, ElementComparison, compare_elements, error_bounds
from fuzz.oracles.comparison.expected import (
    BEFORE_THOROUGH,
    STAGES,
    THOROUGH,
    ExpectedOutputs,
    evaluate_member_errors,
    evaluate_order_errors,
    evaluate_reference,
    evaluate_without_walks,
)
from fuzz.oracles.comparison.row_errors import Row, RowErrors, find_uneven_row, may_be_uneven
from fuzz.oracles.execution.examination import Examination
from fuzz.reference.envelope import Expected, MemberErrors, Precision

__all__ = ["WrongOutput", "find_wrong_together", "may_be_wrong_together"]


@dataclass(frozen=True)
class WrongOutput:
    """An output whose elements are wrong together: how, what is expected, with bounds that hold no walks, and where."""

    how: Bias | Row
    expected: Expected
    compared: ElementComparison

    @property
    def ratio(self) -> float:
        return self.how.ratio if isinstance(self.how, Row) else abs(self.how.mean) / self.how.limit

    def describe(self, name: str) -> str:
        """How, as a clause after what a long sum may do to elements alone."""
        if isinstance(self.how, Row):
            return (
                f"but all elements of row {self.how.number} of {name} share the same sums, and apart from what moves "
                f"them together they err {self.how.ratio:.2g} times as much as a kernel may"
            )
        return (
            f"but all {self.how.elements} of {name} are too {'large' if self.how.mean > 0 else 'small'} "
            f"{'in size ' if self.how.by_size else ''}by {abs(self.how.mean):.2g} of a short sum's bound on the "
            f"average, where random roundings give at most {self.how.limit:.2g}"
        )


def may_be_wrong_together(
    outputs: Outputs, expected: ExpectedOutputs, compared: Mapping[str, ElementComparison]
) -> bool:
    """Whether elements of some output may be; `compared` are with bounds of few members that hold no walks."""
    return any(
        may_be_biased(relative_errors(outputs[name], one, compared[name]), one.value)
        or may_be_uneven(outputs[name], compared[name].symptom)
        for name, one in expected.items()
    )


def find_wrong_together(
    exam: Examination, index: int, outputs: Outputs, exact: Mapping[str, torch.Tensor] | None = None
) -> dict[str, WrongOutput]:
    """The outputs of one call whose elements are wrong together by name, about exact values where there are some.

    Of an output that agrees with all members none is found unless walks are what its bound needs: without them each
    error over bound would be 1 at most.
    """
    if exam.target.contract.kind != "envelope":
        return {}
    found: dict[str, WrongOutput] = {}
    # Bounds of few members are narrower and cheap: they say first where there is nothing to find.
    for stage in (BEFORE_THOROUGH, *range(STAGES.index(THOROUGH), len(STAGES))):
        evaluate = evaluate_reference if stage == BEFORE_THOROUGH else evaluate_without_walks
        found = find_by_stage(exam, index, outputs, evaluate(exam, index, stage), stage, exact)
        if not found:
            break
    return found


def find_by_stage(
    exam: Examination,
    index: int,
    outputs: Outputs,
    expected: ExpectedOutputs,
    stage: int,
    exact: Mapping[str, torch.Tensor] | None,
) -> dict[str, WrongOutput]:
    """Those by the bounds of `expected`, which hold no walks."""
    if exact is not None:
        expected = {name: replace(one, value=exact[name].to(one.value.device)) for name, one in expected.items()}
    compared = {name: compare_elements(outputs[name], one, exam.precision) for name, one in expected.items()}
    if not may_be_wrong_together(outputs, expected, compared):
        return {}
    orders, found = evaluate_order_errors(exam, index), {}
    members: Mapping[str, MemberErrors] | None = None
    for name, one in expected.items():
        errors, bound = relative_errors(outputs[name], one, compared[name]), compared[name].bound
        walks = torch.where(torch.isfinite(bound), orders[name].to(bound.device) / bound, 0.0)
        if may_be_biased(errors, one.value) and (bias := find_bias(errors, walks, one.value)):
            found[name] = WrongOutput(bias, one, compared[name])
        elif may_be_uneven(outputs[name], compared[name].symptom):
            members = evaluate_member_errors(exam, index, stage) if members is None else members
            if members and (
                row := find_uneven(outputs[name], one, compared[name], walks, members[name], exam.precision)
            ):
                found[name] = WrongOutput(row, one, mark_row(compared[name], row))
    return found


def find_uneven(
    output: torch.Tensor,
    expected: Expected,
    compared: ElementComparison,
    walks: torch.Tensor,
    members: MemberErrors,
    precision: Precision,
) -> Row | None:
    """The row of an output whose errors do not move together, if there is one."""
    bound, value = compared.bound, expected.value
    usable, count = torch.isfinite(bound) & (bound > 0) & torch.isfinite(value), bound.numel() // bound.shape[-1]

    def rows(tensor: torch.Tensor) -> torch.Tensor:
        """(.., *shape) in units of the bound, as (.., rows, elements)."""
        scaled = torch.where(usable, tensor.to(bound.device), 0.0)
        return scaled.reshape(*tensor.shape[: tensor.dim() - bound.dim()], count, bound.shape[-1])

    kind = named_dtype(DTYPE_NAMES[output.dtype])
    floor = error_bounds(replace(expected, spread=torch.zeros_like(bound)), kind, precision)[2]
    steps, inputs = (rows(some.to(bound.device) / bound) for some in (members.steps, members.inputs))
    errors = rows(relative_errors(output, expected, compared))
    return find_uneven_row(
        RowErrors(errors, rows(walks), steps, inputs, rows(floor / bound), rows(value / bound), rows(1 / bound))
    )


def mark_row(compared: ElementComparison, row: Row) -> ElementComparison:
    """The comparison in which those elements of the row are wrong whose residuals exceed their bounds."""
    # Contiguous, whatever the reference's result is, so that rows are views.
    symptom, ratio = (
        torch.zeros_like(one, memory_format=torch.contiguous_format) for one in (compared.symptom, compared.ratio)
    )
    residual = row.residual.abs()
    values = torch.where(residual > 1, 1 + SYMPTOMS.index("value"), 0)
    symptom.view(-1, len(residual))[row.number] = values.to(symptom.dtype)
    ratio.view(-1, len(residual))[row.number] = residual.to(ratio.dtype)
    return ElementComparison(symptom, compared.bound, ratio)
