"""Checks identities that hold exactly whatever the rounding.

- `linear`: arguments in which the outputs are linear. Times a power of two, every output is that times as large, bit
  for bit, as long as nothing underflows on the way; the reference shows where that may happen.
- `shifts`: arguments to which a number can be added, the same everywhere, without changing any output.
- `batch` or `rows`: rows in reverse order give their results in reverse order, where their bits are promised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from fuzz.backends.guarded_memory import DTYPE_NAMES
from fuzz.errors import UsageError
from fuzz.model import oracle_specs
from fuzz.model.case import Call, Case
from fuzz.model.dtypes import DType, overflow_threshold
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.finding import Finding
from fuzz.model.recipes import exact
from fuzz.model.recipes.torch_values import from_bits, to_bits
from fuzz.oracles.base import RerunOracle, name_promise
from fuzz.oracles.comparison.batch_rows import movable_rows
from fuzz.oracles.comparison.bits import Outputs, Pairs, compare_bits
from fuzz.oracles.comparison.expected import STAGES, THOROUGH, ExpectedOutputs, evaluate_reference
from fuzz.oracles.execution.examination import Examination, Values, select_rows, stacked_values
from fuzz.oracles.execution.rerun import Rerun
from fuzz.oracles.script_check import SavedFinding, ScriptCheck, compare_two_runs
from fuzz.target.spec import Target

FACTORS = (8.0, 0.125)
SHIFTS = (4.0, -64.0)
NO_ROUNDING = 2.0**-900
"""A unit roundoff so small that only underflow is left of the envelope."""


@dataclass(frozen=True)
class Change:
    """What is done to every element of an argument: it is multiplied by a power of two, or a number is added."""

    argument: str
    number: float
    scales: bool

    def apply(self, values: torch.Tensor) -> torch.Tensor:
        return values * self.number if self.scales else values + self.number

    def undo(self, values: torch.Tensor) -> torch.Tensor:
        return values / self.number if self.scales else values - self.number


RUN_REVERSED = '''
def run_twice():
    """The outputs, and those of the rows in reverse order, reversed again."""
    first, inputs = run_call(), every_tensor()
    second = run_call(changed={name: refilled(inputs[name], inputs[name].flip(axis)) for name, axis in BY_ROWS.items()})
    return first, {name: second[name].flip(0) for name in OUTPUTS}
'''
RUN_CHANGED = '''
def check():
    """Compares elements of the outputs with those after every element of an argument was scaled or shifted."""
    first = run_call()
    for name, number in CHANGES:
        value = every_tensor()[name]
        second = run_call(changed={name: refilled(value, value * number if SCALES else value + number)})
        for output, index in ELEMENTS:
            one, two = first[output][index].double(), second[output][index].double()
            if not equal_values(one * number if SCALES else one, two):
                yield f"{output}{list(index)} is {one.item()}, and with {name} changed {two.item()}"
'''


class ScalingOracle(RerunOracle):
    spec = oracle_specs.SCALING

    def applies(self, target: Target, case: Case) -> bool:
        promised = (
            target.linear or target.shifts or promises_rows(target) and movable_rows(target, case.last) is not None
        )
        return bool(promised) and target.deterministic and len(case.calls) == 1

    def reruns(self, exams: Sequence[Examination]) -> Iterator[Rerun]:
        target, values = exams[0].target, stacked_values(exams)
        # An argument that may be None is not there in every plan.
        scaled = [Change(name, factor, True) for name in target.linear if name in values for factor in FACTORS]
        shifted = [Change(name, shift, False) for name in target.shifts if name in values for shift in SHIFTS]
        for change in (*scaled, *shifted):
            changed, exactly = change_values(exams[0], change, values[change.argument])
            rows = exactly.nonzero().flatten().tolist()
            if rows:
                yield self._rerun_changed(exams[0], change, rows, {**values, change.argument: changed})
        if row_order := reverse_rows(exams[0]) if promises_rows(target) else None:
            axes, pairs = row_order
            values = {name: part.flip(1 + axes[name]) if name in axes else part for name, part in values.items()}
            yield Rerun(range(len(exams)), values, exams[0].plan.last, pairs, self._compare_permuted)

    def script_check(self, saved: SavedFinding) -> ScriptCheck:
        finding, target = saved.finding, saved.target
        if finding.symptom == "permutation" and (target.batch or target.rows):
            axes = reversed_axes(target, saved.entry.case.last)
            return compare_two_runs(finding, RUN_REVERSED, BY_ROWS=axes or {})
        scales = finding.symptom == "scale"
        promised = [(name, factor) for name in target.linear for factor in FACTORS]
        if not scales:
            promised = [(name, shift) for name in target.shifts for shift in SHIFTS]
        changes = [finding.change] if finding.change else promised
        if not changes:
            raise UsageError(f"no script can be made: {target.name} promises nothing of a {finding.symptom}")
        elements = [(element.output, element.index) for element in finding.elements]
        return ScriptCheck(RUN_CHANGED, {"CHANGES": changes, "SCALES": scales, "ELEMENTS": elements})

    def _rerun_changed(self, exam: Examination, change: Change, rows: Sequence[int], values: Values) -> Rerun:
        pairs = pair_scaled(exam, change) if change.scales else pair_unchanged

        def compare(exam: Examination, pairs: Pairs) -> Finding | None:
            return self._compare_changed(exam, change, pairs)

        return Rerun(rows, select_rows(values, rows), exam.plan.last, pairs, compare)

    def _compare_changed(self, exam: Examination, change: Change, pairs: Pairs) -> Finding | None:
        name, number = change.argument, change.number
        if not change.scales:
            circumstance = f"when {number:g} is added to every element of {name}"
            finding = compare_bits(self.name, circumstance, pairs, "shift")
            return with_change(name_promise(finding, exam.target, "shifts"), change)
        if all(bool(((got == due) | (got.isnan() & due.isnan())).all()) for got, due in pairs.values()):
            return None
        circumstance = f"than {number:g} times as much when {name} is {number:g} times as large"
        pairs = {output: (got.cpu(), due.cpu()) for output, (got, due) in pairs.items()}
        finding = None
        for inexact in may_underflow(exam, change):
            pairs = {output: (torch.where(inexact[output], due, got), due) for output, (got, due) in pairs.items()}
            finding = compare_bits(self.name, circumstance, pairs, "scale")
            if finding is None:
                break
        return with_change(name_promise(finding, exam.target, "linear"), change)

    def _compare_permuted(self, exam: Examination, pairs: Pairs) -> Finding | None:
        finding = compare_bits(self.name, "when the rows stand in reverse order", pairs, "permutation")
        return name_promise(finding, exam.target, "rows" if exam.target.rows else "batch", "invariance='envelope'")


def promises_rows(target: Target) -> bool:
    """Whether rows are to have the same bits in any batch."""
    return target.batch_dim is not None and target.invariance == "bitwise"


def with_change(finding: Finding | None, change: Change) -> Finding | None:
    """The finding with the change that shows it."""
    return replace(finding, change=(change.argument, change.number)) if finding else None


def pair_scaled(exam: Examination, change: Change) -> Callable[[Outputs, Outputs], Pairs]:
    """Pairs floating outputs with those of the first run times the factor, wherever that is exact.

    The gradient of the argument itself stays as it is: that of what is linear in an argument does not depend on it.
    """
    own_gradient = f"d{change.argument}" if exam.target.differentiable else ""

    def pairs(first: Outputs, again: Outputs) -> Pairs:
        found = {}
        for output, before in first.items():
            if before.is_floating_point():
                factor = 1.0 if output == own_gradient else change.number
                scaled = before.double() * factor
                inexact = scales_inexactly(exam, output, again[output].double(), scaled, factor)
                due = scaled.to(before.dtype)
                found[output] = (torch.where(inexact, due, again[output]), due)
        return found

    return pairs


def pair_unchanged(first: Outputs, again: Outputs) -> Pairs:
    """Pairs every output of the rerun with that of the first run."""
    return {name: (again[name], first[name]) for name in first}


def scales_inexactly(
    exam: Examination, output: str, got: torch.Tensor, due: torch.Tensor, factor: float
) -> torch.Tensor:
    """Elements so large or small that no power of two goes through them exactly.

    Where terms cancel, a sum of the kernel's may be subnormal though none of the reference's is: what that loses
    can turn the rounding of a small result.
    """
    kind = output_format(exam, output)
    small = max(2 * kind.smallest_normal, exam.precision.eta / exam.precision.u**2)
    least = torch.minimum(got.abs(), due.abs() / max(factor, 1.0))
    return (due.abs() >= overflow_threshold(kind)) | (least < small)


def reverse_rows(exam: Examination) -> tuple[dict[str, int], Callable[[Outputs, Outputs], Pairs]] | None:
    """The axes along which tensors of the plan are reversed, and what pairs outputs then; None below two rows, and
    where not every tensor has rows that can be moved.
    """
    call = exam.plan.last
    rows = call.dims.get(exam.target.batch_dim or "", 1)
    axes = reversed_axes(exam.target, call)
    if rows < 2 or axes is None:
        return None
    alone = sum(size == rows for size in call.dims.values()) == 1
    rank = {}
    for output, first in exam.outputs.items():
        has_rows = output in exam.target.rows if exam.target.rows else alone and first.shape[:1] == (rows,)
        if has_rows:
            rank[output] = first.dim()

    def pairs(first: Outputs, again: Outputs) -> Pairs:
        return {output: (again[output].flip(-dims), first[output]) for output, dims in rank.items()}

    return axes, pairs


def reversed_axes(target: Target, call: Call) -> dict[str, int] | None:
    """The axis that counts rows in each tensor that has distinct rows; None where rows cannot be moved."""
    axes = movable_rows(target, call)
    if axes is None:
        return None
    return {name: axis for name, axis in axes.items() if axis not in call.tensors[name].layout.expand}


def change_values(exam: Examination, change: Change, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """An argument of stacked replicas changed, and for which of them nothing was rounded and everything is finite.

    Tensor cores align subnormal operands as if they were normal: a change of exponent is not exact to them.
    """
    count = len(values)
    if not values.is_floating_point():
        return values, torch.zeros(count, dtype=torch.bool)
    kind, before = named_dtype(DTYPE_NAMES[values.dtype]), values.double()
    after = change.apply(before)
    changed = after.to(values.dtype)
    exactly = torch.isfinite(before) & (changed.double() == after) & (change.undo(after) == before)
    if exam.precision.tensor_cores:
        for operand in (before, after):
            exactly &= (operand == 0) | (operand.abs() >= kind.smallest_normal)
    return changed, exactly.reshape(count, values[0].numel()).all(1)


def output_format(exam: Examination, output: str) -> DType:
    return named_dtype(DTYPE_NAMES[exam.outputs[output].dtype])


def may_underflow(exam: Examination, change: Change) -> Iterator[Outputs]:
    """The elements that underflow or overflow may move, on the way or at the end: in the first run, then in either.

    There nothing is exact: even a little of it, far below the last bit of what it is added to, can break a tie.
    """
    usual = exam.precision
    precision = replace(usual, u=NO_ROUNDING, nan_below=usual.eta / (2 * usual.u))
    stage = STAGES.index(THOROUGH)
    inexact = touched_elements(exam, evaluate_reference(exam, 0, stage, precision=precision))
    yield inexact
    call, name = exam.case.last, change.argument
    value = call.tensors[name]
    kind = named_dtype(value.dtype)
    changed = to_bits(change.apply(from_bits(exam.words(name), kind)))
    listed = replace(value, values=exact(changed, kind))
    scaled = replace(exam, plan=exam.case.with_call(0, call.with_argument(name, listed)), row=0)
    second = touched_elements(exam, evaluate_reference(scaled, 0, stage, precision=precision))
    yield {output: mask | second[output] for output, mask in inexact.items()}


def touched_elements(exam: Examination, expected: ExpectedOutputs) -> Outputs:
    """The elements that are tiny, or that a member has moved; all of an output that is no float."""
    found = {}
    for output, one in expected.items():
        kind = output_format(exam, output)
        tiny = one.value.abs() < 2 * kind.smallest_normal if kind.is_float else one.value == one.value
        found[output] = (tiny | (one.spread > 0)).cpu()
    return found
