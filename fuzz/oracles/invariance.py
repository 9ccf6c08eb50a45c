"""invariance: a row computed alone, in any split, at any offset and with other neighbours has the same bits.

A target that does not promise bits promises the envelope, and then it is drift beyond that which counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch

from fuzz.model.case import Argument, Call, Case, Split
from fuzz.model.dims import resolve
from fuzz.model.dtypes import DType
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.finding import Finding
from fuzz.model.recipes import exact, generate, recipe
from fuzz.model.recipes.torch_values import from_bits
from fuzz.oracles.base import Asking, Rerun, Several, answered, values_of
from fuzz.oracles.comparison.bits import Outputs, Pairs, compare_bits, compare_values
from fuzz.oracles.comparison.envelope import bounds
from fuzz.oracles.examination import Examination
from fuzz.target.spec import Target

NEIGHBOURS = recipe("normal", 20011)
Frame = dict[str, tuple[np.ndarray, np.ndarray] | None]


class Invariance:
    name = "invariance"
    always = False

    def applies(self, target: Target, case: Case) -> bool:
        return bool(target.batch or target.rows) and case.split is not None and len(case.calls) == 1

    def examine(self, exam: Examination) -> Finding | None:
        return answered(exam, self.asks(exam))

    def asks(self, exam: Examination) -> Asking:
        split, call = exam.plan.split, exam.plan.last
        assert split is not None
        batch = batch_of(exam.target)
        if split.start + split.length > call.dims[batch]:
            return None
        bits, pairs = exam.target.invariance != "envelope", rows_compared(exam)
        other, framed = exam.shared("framed", lambda: (resized(call, batch, split), frame(call, batch, split)))
        again = yield Rerun(other, words=neighboured(framed, split, exam.words), pairs=pairs if bits else None)
        if again is None:
            return None
        compared = pairs(exam.returned.calls[-1].outputs, again)
        if bits:
            return compare_bits("invariance", _told(split), compared)
        inside = slice(split.start, split.start + split.length)
        allowed = {name: bound[inside] for name, bound in bounds(exam).items() if name in compared}
        return compare_values("invariance", _told(split), compared, allowed)

    def asks_together(self, exams: Sequence[Examination]) -> Iterator[Several]:
        exam = exams[0]
        split, call, batch = exam.plan.split, exam.plan.last, batch_of(exam.target)
        assert split is not None
        if split.start + split.length > call.dims[batch]:
            return
        values = dict(values_of(exams))
        for name, others in frame(call, batch, split).items():
            if others:
                mine = values[name]
                before, after = (company(words, name, call, mine) for words in others)
                values[name] = torch.cat([before, mine.narrow(1, split.start, split.length), after], 1)
        pairs = rows_compared(exam) if exam.target.invariance != "envelope" else None
        yield Several(Rerun(resized(call, batch, split), pairs=pairs), range(len(exams)), values)


def company(words: np.ndarray, name: str, call: Call, beside: torch.Tensor) -> torch.Tensor:
    """The same other rows for every replica of a stack."""
    rows = from_bits(words, named_dtype(call.tensors[name].dtype), beside.device)
    return rows.expand(len(beside), *rows.shape)


def batch_of(target: Target) -> str:
    """The dim that counts rows."""
    return target.batch or next(iter(target.rows.values()))


def rows_compared(exam: Examination) -> Callable[[Outputs, Outputs], Pairs]:
    """The split's rows of each output that has one for each row of the batch, in both runs."""
    split = exam.plan.split
    assert split is not None
    rank = {name: whole.dim() for name, whole in exam.returned.calls[-1].outputs.items()}
    sizes = exam.plan.last.dims[batch_of(exam.target)], split.before + split.length + split.after

    def pairs(first: Outputs, again: Outputs) -> Pairs:
        found = {}
        for name, whole in first.items():
            part, rows = again[name], whole.dim() - rank[name]
            if by_rows(exam.target, name, whole.shape[rows:], part.shape[rows:], sizes):
                mine = whole.narrow(rows, split.start, split.length)
                found[name] = (mine, part.narrow(rows, split.before, split.length))
        return found

    return pairs


def by_rows(target: Target, name: str, whole: tuple[int, ...], part: tuple[int, ...], sizes: tuple[int, int]) -> bool:
    """Whether an output has one row for each row of the batch: as the target says, or as its shape does.

    `sizes` are those of the batch, in the case and in the rerun.
    """
    if target.rows:
        return name in target.rows
    return sizes[0] != sizes[1] and len(whole) > 0 and (whole[0], part[0]) == sizes


def resized(call: Call, batch: str, split: Split) -> Call:
    """The call with as many rows as the split's batch has."""
    return replace(call, dims={**call.dims, batch: split.before + split.length + split.after})


def frame(call: Call, batch: str, split: Split) -> Frame:
    """The other rows before and after those of the split, by tensor of the call; None for one without rows."""
    found: Frame = {}
    for name, value in call.tensors.items():
        by_row = value.shape and value.shape[0] == batch and 0 not in value.layout.expand
        found[name] = (_others(value, call, split.before), _others(value, call, split.after)) if by_row else None
    return found


def neighboured(framed: Frame, split: Split, words_of: Callable[[str], np.ndarray]) -> dict[str, np.ndarray]:
    """Words for the resized call: the split's rows of every argument that has them, between other rows.

    `words_of` gives those of a tensor of the call, of its stored shape.
    """
    found = {}
    for name, others in framed.items():
        words = words_of(name)
        if others:
            words = np.concatenate([others[0], words[split.start : split.start + split.length], others[1]])
        found[name] = words
    return found


def split_call(target: Target, case: Case) -> Call | None:
    """The call that a case's split is compared with, its values listed; None where no rows are split off."""
    if case.split is None or not (target.batch or target.rows):
        return None
    batch, last = batch_of(target), case.last
    call = resized(last, batch, case.split)
    framed = frame(last, batch, case.split)
    for name, words in neighboured(framed, case.split, lambda name: last.tensors[name].bits(last.dims)).items():
        value = call.tensors[name]
        call = call.with_argument(name, replace(value, values=exact(words, named_dtype(value.dtype))))
    return call


def _others(value: Argument, call: Call, rows: int) -> np.ndarray:
    shape = (rows, *value.layout.stored(resolve(value.shape, call.dims))[1:])
    kind = named_dtype(value.dtype)
    if kind.kind != "float" or math.prod(shape) == 0:
        return np.zeros(shape, dtype=kind.unsigned)
    return _neighbours(shape, kind)


@lru_cache(maxsize=64)
def _neighbours(shape: tuple[int, ...], kind: DType) -> np.ndarray:
    return np.asarray(generate(NEIGHBOURS, shape, kind))


def _told(split: Split) -> str:
    rows = f"row {split.start}" if split.length == 1 else f"rows {split.start}..{split.start + split.length - 1}"
    if not split.before + split.after:
        return f"when {rows} of the batch is computed alone"
    return f"when {rows} of the batch has {split.before} other rows before and {split.after} after"
