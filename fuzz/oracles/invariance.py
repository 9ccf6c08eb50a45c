"""invariance: a row computed alone, in any split, at any offset and with other neighbours has the same bits.

A target that does not promise bits promises the envelope, and then it is drift beyond that which counts.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fuzz.case import Argument, Call, Case, Split
from fuzz.dims import resolve
from fuzz.dtypes import dtype as named_dtype
from fuzz.finding import Finding
from fuzz.oracles.base import Examination, compare_bits, compare_values
from fuzz.oracles.envelope import bounds
from fuzz.target import Target
from fuzz.values import exact, generate, recipe

NEIGHBOURS = recipe("normal", 20011)


class Invariance:
    name = "invariance"
    always = False

    def applies(self, target: Target, case: Case) -> bool:
        return bool(target.batch or target.rows) and case.split is not None and len(case.calls) == 1

    def examine(self, exam: Examination) -> Finding | None:
        split, call = exam.case.split, exam.case.last
        assert split is not None
        batch = exam.target.batch or next(iter(exam.target.rows.values()))
        if split.start + split.length > call.dims[batch]:
            return None
        again = exam.rerun(resized(call, batch, split), words=neighboured(call, batch, split))
        if again is None:
            return None
        pairs = {}
        for name, whole in exam.returned.calls[-1].outputs.items():
            part = again[name]
            if self._by_rows(exam, name, whole.shape, part.shape, batch, split):
                rows = whole[split.start : split.start + split.length]
                pairs[name] = (rows, part[split.before : split.before + split.length])
        if exam.target.invariance == "envelope":
            rows = slice(split.start, split.start + split.length)
            allowed = {name: bound[rows] for name, bound in bounds(exam).items() if name in pairs}
            return compare_values("invariance", _told(split), pairs, allowed)
        return compare_bits("invariance", _told(split), pairs)

    def _by_rows(
        self, exam: Examination, name: str, whole: tuple[int, ...], part: tuple[int, ...], batch: str, split: Split
    ) -> bool:
        """Whether an output has one row for each row of the batch: as the target says, or as its shape does."""
        if exam.target.rows:
            return name in exam.target.rows
        resized_rows = split.before + split.length + split.after
        moved = resized_rows != exam.case.last.dims[batch]
        return moved and len(whole) > 0 and whole[0] == exam.case.last.dims[batch] and part[0] == resized_rows


def resized(call: Call, batch: str, split: Split) -> Call:
    """The call with as many rows as the split's batch has."""
    return replace(call, dims={**call.dims, batch: split.before + split.length + split.after})


def neighboured(call: Call, batch: str, split: Split) -> dict[str, np.ndarray]:
    """Words for the resized call: the split's rows of every argument that has them, between other rows."""
    found = {}
    for name, value in call.tensors.items():
        words = value.words(call.dims)
        if value.shape and value.shape[0] == batch and 0 not in value.layout.expand:
            rows = words[split.start : split.start + split.length]
            words = np.concatenate([_others(value, call, split.before), rows, _others(value, call, split.after)])
        found[name] = words
    return found


def second_call(target: Target, case: Case) -> Call | None:
    """The call that a case's split is compared with, its values listed; None where no rows are split off."""
    if case.split is None or not (target.batch or target.rows):
        return None
    batch = target.batch or next(iter(target.rows.values()))
    call = resized(case.last, batch, case.split)
    for name, words in neighboured(case.last, batch, case.split).items():
        value = call.tensors[name]
        call = call.with_argument(name, replace(value, values=exact(words, named_dtype(value.dtype))))
    return call


def _others(value: Argument, call: Call, rows: int) -> np.ndarray:
    shape = (rows, *value.layout.stored(resolve(value.shape, call.dims))[1:])
    kind = named_dtype(value.dtype)
    if kind.kind != "float" or math.prod(shape) == 0:
        return np.zeros(shape, dtype=kind.word)
    return np.asarray(generate(NEIGHBOURS, shape, kind))


def _told(split: Split) -> str:
    rows = f"row {split.start}" if split.length == 1 else f"rows {split.start}..{split.start + split.length - 1}"
    if not split.before + split.after:
        return f"when {rows} of the batch is computed alone"
    return f"when {rows} of the batch has {split.before} other rows before and {split.after} after"
