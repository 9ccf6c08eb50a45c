"""scaling: what must hold exactly whatever the rounding.

- `linear`: arguments in which the outputs are linear. Times a power of two, every output is that times as large, bit
  for bit, as long as nothing underflows on the way, which is asked of the reference.
- `shifts`: arguments to which a number can be added, the same everywhere, without changing any output.
- `batch` or `rows`: rows in reverse order give their results in reverse order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from fuzz.backends.memory import DTYPE_NAMES
from fuzz.model.case import Case
from fuzz.model.dtypes import DType, from_bits, to_bits
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.finding import Finding
from fuzz.model.recipes import exact
from fuzz.oracles.base import Asking, Rerun, Several, answered, chosen, together, values_of
from fuzz.oracles.comparison.bits import Outputs, Pairs, compare_bits
from fuzz.oracles.comparison.elements import overflow_threshold
from fuzz.oracles.comparison.expected import STAGES, THOROUGH, evaluate_reference
from fuzz.oracles.examination import Examination
from fuzz.target.spec import Target

FACTORS = (8.0, 0.125)
SHIFTS = (4.0, -64.0)
NO_ROUNDING = 2.0**-900
"""A unit roundoff so small that only underflow is left of the envelope."""
Change = Callable[[Any], Any]
Words = dict[str, np.ndarray]


class Scaling:
    name = "scaling"
    always = False

    def applies(self, target: Target, case: Case) -> bool:
        promised = target.linear or target.shifts or target.batch or target.rows
        return bool(promised) and target.deterministic and len(case.calls) == 1

    def examine(self, exam: Examination) -> Finding | None:
        return answered(exam, self.asks(exam))

    def asks(self, exam: Examination) -> Asking:
        for name in exam.target.linear:
            for factor in FACTORS:
                found = yield from self._scaled(exam, name, factor)
                if found:
                    return found
        for name in exam.target.shifts:
            for shift in SHIFTS:
                found = yield from self._shifted(exam, name, shift)
                if found:
                    return found
        return (yield from self._permuted(exam))

    def asks_together(self, exams: Sequence[Examination]) -> Iterator[Several]:
        exam, values = exams[0], values_of(exams)
        linear = [(name, factor, self._times(exam, factor), *by_factor(factor))
                  for name in exam.target.linear for factor in FACTORS]  # fmt: skip
        shifts = [(name, shift, together, *by_shift(shift)) for name in exam.target.shifts for shift in SHIFTS]
        for name, number, pairs, change, undo in (*linear, *shifts):
            moved, exactly = changed_together(exam, name, values[name], change, undo)
            places = exactly.nonzero().flatten().tolist()
            if places:
                rerun = Rerun(pairs=pairs, step=f"{number} {name}")
                yield Several(rerun, places, chosen({**values, name: moved}, places))
        reverse = self._reverse(exam)
        if reverse:
            turned = {name: part.flip(1) if name in reverse[0] else part for name, part in values.items()}
            yield Several(Rerun(pairs=reverse[1], step="rows"), range(len(exams)), turned)

    def _times(self, exam: Examination, factor: float) -> Callable[[Outputs, Outputs], Pairs]:
        """Floating outputs with what is due, times the factor, wherever that is exact."""

        def pairs(first: Outputs, again: Outputs) -> Pairs:
            found = {}
            for output, before in first.items():
                if before.is_floating_point():
                    got, due = again[output].double(), before.double() * factor
                    found[output] = (torch.where(self._inexact(exam, output, got, due, factor), due, got), due)
            return found

        return pairs

    def _scaled(self, exam: Examination, name: str, factor: float) -> Asking:
        words, pairs = changed(exam, name, *by_factor(factor)), self._times(exam, factor)
        again = (yield Rerun(words=words, pairs=pairs, step=f"{factor} {name}")) if words else None
        if again is None:
            return None
        compared = pairs(exam.returned.calls[-1].outputs, again)
        if all(bool(((got == due) | (got.isnan() & due.isnan())).all()) for got, due in compared.values()):
            return None
        assert words is not None
        touched = underflow(exam, words, name)
        unlike = {output: (got.cpu(), due.cpu()) for output, (got, due) in compared.items()}
        unlike = {output: (torch.where(touched[output], due, got), due) for output, (got, due) in unlike.items()}
        what = f"than {factor:g} times as much when {name} is {factor:g} times as large"
        return compare_bits("scaling", what, unlike, "scale")

    def _inexact(
        self, exam: Examination, output: str, got: torch.Tensor, due: torch.Tensor, factor: float
    ) -> torch.Tensor:
        """Elements so large or small that no power of two goes through them exactly.

        Where terms cancel, a sum of the kernel's may be subnormal though none of the reference's is: what that loses
        can turn the rounding of a small result.
        """
        kind = format_of(exam, output)
        small = max(2 * kind.smallest_normal, exam.precision.eta / exam.precision.u**2)
        least = torch.minimum(got.abs(), due.abs() / max(factor, 1.0))
        return (due.abs() >= overflow_threshold(kind)) | (least < small)

    def _shifted(self, exam: Examination, name: str, shift: float) -> Asking:
        words = changed(exam, name, *by_shift(shift))
        again = (yield Rerun(words=words, pairs=together, step=f"{shift} {name}")) if words else None
        if again is None:
            return None
        pairs = together(again, exam.returned.calls[-1].outputs)
        return compare_bits("scaling", f"when {shift:g} is added to every element of {name}", pairs, "shift")

    def _permuted(self, exam: Examination) -> Asking:
        reverse = self._reverse(exam)
        if reverse is None:
            return None
        turned, pairs = reverse
        words = {name: exam.words(name) for name in exam.plan.last.tensors}
        words |= {name: words[name][::-1].copy() for name in turned}
        again = yield Rerun(words=words, pairs=pairs, step="rows")
        if again is None:
            return None
        compared = pairs(exam.returned.calls[-1].outputs, again)
        return compare_bits("scaling", "when the rows stand in reverse order", compared, "permutation")

    def _reverse(self, exam: Examination) -> tuple[set[str], Callable[[Outputs, Outputs], Pairs]] | None:
        """The tensors of the plan that have rows, and what is due once they are turned; None for fewer than two."""
        call = exam.plan.last
        batch = exam.target.batch or next(iter(exam.target.rows.values()), "")
        rows = call.dims.get(batch, 1)
        if rows < 2:
            return None
        turned = {
            name
            for name, value in call.tensors.items()
            if value.shape and value.shape[0] == batch and 0 not in value.layout.expand
        }
        alone = sum(size == rows for size in call.dims.values()) == 1
        rank = {}
        for output, first in exam.returned.calls[-1].outputs.items():
            by_rows = output in exam.target.rows if exam.target.rows else alone and first.shape[:1] == (rows,)
            if by_rows:
                rank[output] = first.dim()

        def pairs(first: Outputs, again: Outputs) -> Pairs:
            return {output: (again[output].flip(-dims), first[output]) for output, dims in rank.items()}

        return turned, pairs


def by_factor(factor: float) -> tuple[Change, Change]:
    """Times the factor, and back."""
    return lambda x: x * factor, lambda x: x / factor


def by_shift(shift: float) -> tuple[Change, Change]:
    """Plus the shift, and back."""
    return lambda x: x + shift, lambda x: x - shift


def changed_together(
    exam: Examination, name: str, values: torch.Tensor, change: Change, undo: Change
) -> tuple[torch.Tensor, torch.Tensor]:
    """One argument of stacked replicas changed, and in which of them `changed` would do that."""
    count = len(values)
    if not values.is_floating_point():
        return values, torch.zeros(count, dtype=torch.bool)
    kind, before = named_dtype(DTYPE_NAMES[values.dtype]), values.double()
    after = change(before)
    moved = after.to(values.dtype)
    exactly = torch.isfinite(before) & (moved.double() == after) & (undo(after) == before)
    if exam.precision.tensor_cores:
        for one in (before, after):
            exactly &= (one == 0) | (one.abs() >= kind.smallest_normal)
    return moved, exactly.reshape(count, -1).all(1)


def changed(exam: Examination, name: str, change: Change, undo: Change) -> Words | None:
    """The call's words with one argument changed; None where that would round a value, or one is not finite.

    Tensor cores align subnormal operands as if they were normal: a change of exponent is not exact to them.
    """
    kind = named_dtype(exam.plan.last.tensors[name].dtype)
    if kind.kind != "float":
        return None
    values = np.asarray(from_bits(exam.words(name), kind))
    if not np.isfinite(values).all():
        return None
    moved = np.asarray(change(values))
    if exam.precision.tensor_cores and (subnormal(values, kind) or subnormal(moved, kind)):
        return None
    words = to_bits(moved, kind)
    if not np.array_equal(from_bits(words, kind), moved) or not np.array_equal(undo(moved), values):
        return None
    return {name: words}


def subnormal(values: np.ndarray, kind: DType) -> bool:
    """Whether one of the values is."""
    return bool(((values != 0) & (np.abs(values) < kind.smallest_normal)).any())


def format_of(exam: Examination, output: str) -> DType:
    return named_dtype(DTYPE_NAMES[exam.returned.calls[-1].outputs[output].dtype])


def underflow(exam: Examination, words: Words, name: str) -> Outputs:
    """Which elements underflow or overflow may move, in either run, on the way or at the end.

    There nothing is exact: even a little of it, far below the last bit of what it is added to, can break a tie.
    """
    usual = exam.precision
    precision = replace(usual, u=NO_ROUNDING, nan_below=usual.eta / (2 * usual.u))
    call = exam.case.last
    value = call.tensors[name]
    listed = replace(value, values=exact(words[name], named_dtype(value.dtype)))
    scaled = replace(exam, plan=exam.case.with_call(0, call.with_argument(name, listed)), row=0)
    first, second = (evaluate_reference(one, 0, STAGES.index(THOROUGH), precision=precision) for one in (exam, scaled))
    found = {}
    for output, one in first.items():
        kind = format_of(exam, output)
        least = torch.minimum(one.value.abs(), second[output].value.abs())
        tiny = least < 2 * kind.smallest_normal if kind.is_float else one.value == one.value
        found[output] = (tiny | (one.spread > 0) | (second[output].spread > 0)).cpu()
    return found
