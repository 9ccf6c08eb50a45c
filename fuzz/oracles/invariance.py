"""Checks that a row has the same bits computed alone, in any split, at any offset and among any other rows.

A target that does not promise bits promises the envelope; then only drift beyond the error bounds is a finding. One
that promises bits, but not across layouts, is asked for them where every tensor is contiguous: copies of what is not
contiguous leave a single row as it is, whatever its stride.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np
import torch

from fuzz.errors import UsageError
from fuzz.model import oracle_specs
from fuzz.model.case import Argument, Call, Case, Split
from fuzz.model.dims import resolve
from fuzz.model.dtypes import DType
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.finding import Finding
from fuzz.model.recipes import exact, generate, recipe
from fuzz.model.recipes.torch_values import from_bits, to_bits
from fuzz.oracles.base import RerunOracle, name_promise
from fuzz.oracles.comparison.batch_rows import movable_rows, row_axes
from fuzz.oracles.comparison.bits import Outputs, Pairs, compare_bits, compare_values, differing_rows
from fuzz.oracles.comparison.error_bounds import output_bounds
from fuzz.oracles.execution.examination import Examination, Values, select_rows, stacked_values
from fuzz.oracles.execution.rerun import Rerun, run_again
from fuzz.oracles.layout import make_contiguous, promises_bits
from fuzz.oracles.script_check import SavedFinding, ScriptCheck, check_size, compare_two_runs
from fuzz.target.legal import legal_split
from fuzz.target.spec import Target

OTHER_VALUES = recipe("normal", 20011)
"""The values of rows that stand beside those of the split."""


RUN_SPLIT = '''
def run_twice():
    """The outputs, and those of the same rows in another batch."""
    first, second = run_call(), run_call(-1)
    return first, {name: second[name][OTHER_ROWS] for name in OUTPUTS}
'''


class InvarianceOracle(RerunOracle):
    spec = oracle_specs.INVARIANCE

    def applies(self, target: Target, case: Case) -> bool:
        if not target.batch_dim or case.split is None or len(case.calls) > 1:
            return False
        return movable_rows(target, case.last) is not None

    def reruns(self, exams: Sequence[Examination]) -> Iterator[Rerun]:
        split, call, batch = split_of(exams[0]), exams[0].plan.last, batch_dim(exams[0].target)
        if split.start + split.length <= call.dims[batch]:
            values = split_values(stacked_values(exams), call, batch, split)
            pairs = pair_rows(exams[0], split)
            inside = slice(split.start, split.start + split.length)
            again, rows = resize(call, batch, split), range(len(exams))
            if exams[0].target.invariance == "envelope":
                yield Rerun(rows, values, again, pairs, self._compare, bound_of=lambda bound: bound[:, inside])
            else:
                wrong = partial(differing_where_contiguous, split=split)
                yield Rerun(rows, values, again, pairs, self._compare, wrong=wrong)

    def script_check(self, saved: SavedFinding) -> ScriptCheck:
        split, case = legal_split(saved.entry.case.split, saved.target), saved.entry.case
        assert split is not None
        if split.start + split.length > case.last.dims[batch_dim(saved.target)]:
            raise UsageError("no script can be made: the split has more rows than the batch")
        check_size(resize(case.last, batch_dim(saved.target), split))
        rows, others = slice(split.start, split.start + split.length), slice(split.before, split.before + split.length)
        call = split_call(saved.target, case)
        return compare_two_runs(saved.finding, RUN_SPLIT, rows, call, OTHER_ROWS=others)

    def _compare(self, exam: Examination, pairs: Pairs) -> Finding | None:
        split = split_of(exam)
        keyword = "rows" if exam.target.rows else "batch"
        if exam.target.invariance != "envelope":
            finding = in_batch(compare_bits(self.name, circumstance(split), pairs), split)
            return name_promise(finding, exam.target, keyword, "invariance='envelope'")
        inside = slice(split.start, split.start + split.length)
        stages = output_bounds(exam)
        bounds = ({name: bound[inside] for name, bound in each.items() if name in pairs} for each in stages)
        drift = in_batch(compare_values(self.name, circumstance(split), pairs, bounds), split)
        return name_promise(drift, exam.target, self.name)


def in_batch(finding: Finding | None, split: Split) -> Finding | None:
    """A finding in the split's rows, with the indices that its elements have in the whole batch."""
    if finding is None:
        return None
    moved = (replace(one, index=(one.index[0] + split.start, *one.index[1:])) for one in finding.elements)
    return replace(finding, elements=tuple(moved))


def differing_where_contiguous(exams: Sequence[Examination], split: Split) -> list[int]:
    """Which replicas' rows of the split have other bits also where every tensor is contiguous, by their indices.

    Of others their layout decides. All of them where layouts are promised not to matter, or all are contiguous already.
    """
    plan, target = exams[0].plan, exams[0].target
    call, batch, every = make_contiguous(plan.last), batch_dim(target), range(len(exams))
    if promises_bits(target) or call == plan.last:
        return list(every)
    pairs = pair_rows(exams[0], split)
    values = {name: part.expand(len(exams), *call.shape(name)) for name, part in stacked_values(exams).items()}
    whole = Rerun(every, values, call, pairs, no_finding)
    part = Rerun(every, split_values(values, call, batch, split), resize(call, batch, split), pairs, no_finding)
    first, again = map(list, run_again([(exams, whole), (exams, part)]))
    agreeing: set[int] = set()
    for rows, outputs in first:
        for others, other in again:
            both = sorted({*rows} & {*others})
            if both:
                found = pairs(_of_rows(outputs, rows, both), _of_rows(other, others, both))
                agreeing.update({*both} - {both[place] for place in differing_rows(found)})
    return [row for row in every if row not in agreeing]


def no_finding(exam: Examination, pairs: Pairs) -> None:
    """Of a rerun that is compared with another one, not with the first run."""


def _of_rows(outputs: Outputs, rows: Sequence[int], some: Sequence[int]) -> Outputs:
    """The outputs of some of the rows that they are of."""
    return select_rows(outputs, [rows.index(row) for row in some])


def batch_dim(target: Target) -> str:
    """The dim that counts rows, of a target that promises something of them."""
    assert target.batch_dim is not None
    return target.batch_dim


def split_of(exam: Examination) -> Split:
    """The split of an examined case, in a batch of a size that is declared."""
    split = legal_split(exam.plan.split, exam.target)
    assert split is not None
    return split


def pair_rows(exam: Examination, split: Split) -> Callable[[Outputs, Outputs], Pairs]:
    """Pairs the split's rows of each output that has one for each row of the batch, in both runs."""
    rank = {name: output.dim() for name, output in exam.outputs.items()}
    sizes = exam.plan.last.dims[batch_dim(exam.target)], split.before + split.length + split.after

    def pairs(first: Outputs, again: Outputs) -> Pairs:
        found = {}
        for name, whole in first.items():
            part, dim = again[name], whole.dim() - rank[name]
            if has_rows(exam.target, name, whole.shape[dim:], part.shape[dim:], sizes):
                rows = whole.narrow(dim, split.start, split.length)
                found[name] = (rows, part.narrow(dim, split.before, split.length))
        return found

    return pairs


def has_rows(target: Target, name: str, whole: tuple[int, ...], part: tuple[int, ...], sizes: tuple[int, int]) -> bool:
    """Whether an output has one row for each row of the batch: as the target declares, or as its shapes show.

    `sizes` are those of the batch, in the case and in the rerun.
    """
    if target.rows:
        return name in target.rows
    return sizes[0] != sizes[1] and len(whole) > 0 and (whole[0], part[0]) == sizes


def resize(call: Call, batch: str, split: Split) -> Call:
    """The call with as many rows as the split's batch has."""
    return replace(call, dims={**call.dims, batch: split.before + split.length + split.after})


def split_values(values: Values, call: Call, batch: str, split: Split) -> Values:
    """Values for the resized call: the split's rows of every argument that has them, between other rows.

    `values` are (replicas, *stored shape) by tensor of the call.
    """
    found: dict[str, torch.Tensor] = {}
    axes = row_axes(call, batch) or {}
    for name, value in call.tensors.items():
        found[name] = values[name]
        if name in axes and axes[name] not in value.layout.expand:
            axis = axes[name]
            rows = values[name].narrow(1 + axis, split.start, split.length)
            before, after = (other_rows(value, call, axis, count, rows) for count in (split.before, split.after))
            found[name] = torch.cat([before, rows, after], 1 + axis)
    return found


def other_rows(value: Argument, call: Call, axis: int, count: int, beside: torch.Tensor) -> torch.Tensor:
    """So many other rows of an argument along an axis, the same for every replica; indices are 0."""
    stored = value.layout.stored(resolve(value.shape, call.dims))
    shape = (*stored[:axis], count, *stored[axis + 1 :])
    kind = named_dtype(value.dtype)
    plain = kind.kind != "float" or math.prod(shape) == 0
    words = np.zeros(shape, dtype=kind.unsigned) if plain else _normal_words(shape, kind)
    return from_bits(words, kind, beside.device).expand(len(beside), *shape)


@lru_cache(maxsize=64)
def _normal_words(shape: tuple[int, ...], kind: DType) -> np.ndarray:
    return np.asarray(generate(OTHER_VALUES, shape, kind))


def split_call(target: Target, case: Case) -> Call | None:
    """The call that a case's split is compared with, its values listed; None where no rows are split off."""
    split = legal_split(case.split, target)
    if split is None or not (target.batch or target.rows):
        return None
    batch, last = batch_dim(target), case.last
    stored = {
        name: from_bits(value.bits(last.dims)[None], named_dtype(value.dtype)) for name, value in last.tensors.items()
    }
    call = resize(last, batch, split)
    for name, values in split_values(stored, last, batch, split).items():
        value = call.tensors[name]
        call = call.with_argument(name, replace(value, values=exact(to_bits(values[0]), named_dtype(value.dtype))))
    return call


def circumstance(split: Split) -> str:
    """When results differ, in words."""
    rows = f"row {split.start}" if split.length == 1 else f"rows {split.start}..{split.start + split.length - 1}"
    if not split.before + split.after:
        return f"when {rows} of the batch is computed alone"
    return f"when {rows} of the batch has {split.before} other rows before and {split.after} after"
