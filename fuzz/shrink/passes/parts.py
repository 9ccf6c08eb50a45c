"""Passes over ragged batches: parts taken out or shortened with the rows that they hold, the other parts as they are.

A smaller total alone shortens the last part, and fewer parts alone lengthen it: either changes what the parts hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fuzz.model import edit
from fuzz.model.case import Call, Case
from fuzz.model.dims import Size, evaluate
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.dtypes import from_bits, to_bits
from fuzz.model.recipes import Exact, exact
from fuzz.shrink.passes.dims import candidate_sizes, resize
from fuzz.target.prefix_sums import PrefixSumArgument
from fuzz.target.spec import Target


@dataclass(frozen=True)
class Ragged:
    """A ragged batch of one call: the name and values of its prefix sums, the dims of its rows and of its parts."""

    call: int
    name: str
    rows: Size
    parts: Size
    sums: np.ndarray

    @property
    def count(self) -> int:
        """How many parts there are."""
        return len(self.sums) - 1

    @property
    def lengths(self) -> list[int]:
        """How many rows each part has."""
        return [int(length) for length in np.diff(self.sums)]

    def row_numbers(self, part: int) -> np.ndarray:
        """The numbers of a part's rows."""
        return np.arange(self.sums[part], self.sums[part + 1])


def find_ragged(case: Case, target: Target) -> Iterator[Ragged]:
    """Every argument that divides a dim of its call into parts."""
    for index, call in enumerate(case.calls):
        for name, declared in target.tensors.items():
            if isinstance(declared, PrefixSumArgument) and name in call.arguments and len(declared.shape) == 1:
                rows = next((dim for dim in target.sizes if dim.name == declared.total), None)
                parts = next((dim for dim in target.sizes if _counts(dim, declared.shape[0], call)), None)
                if rows and parts:
                    yield Ragged(index, name, rows, parts, _numbers(call, name))


def _counts(dim: Size, shape: str, call: Call) -> bool:
    """Whether one less of a dim is one element less."""
    fewer = {**call.dims, dim.name: call.dims[dim.name] - 1}
    return evaluate(shape, fewer) == evaluate(shape, call.dims) - 1


def _numbers(call: Call, name: str) -> np.ndarray:
    value = call.tensors[name]
    return np.asarray(from_bits(value.bits(call.dims), named_dtype(value.dtype)), dtype=np.int64).reshape(-1)


def fewer_parts(case: Case, target: Target) -> Iterator[Case]:
    """Each part alone, then each part taken out, with its rows."""
    for ragged in find_ragged(case, target):
        every = range(ragged.count)
        rows = [ragged.row_numbers(part) for part in every]
        alone = [[rows[part]] for part in every] if ragged.count > 1 else []
        others = [[rows[other] for other in every if other != part] for part in every] if ragged.count > 2 else []
        for parts in (*alone, *others):
            yield from keep_parts(case, target, ragged, parts)


def shorter_parts(case: Case, target: Target) -> Iterator[Case]:
    """Each part without some of its last rows."""
    for ragged in find_ragged(case, target):
        rows = [ragged.row_numbers(part) for part in range(ragged.count)]
        for part, own in enumerate(rows):
            for size in candidate_sizes(len(own), Size("length", 0, len(own)), by_powers=True):
                yield from keep_parts(case, target, ragged, [*rows[:part], own[:size], *rows[part + 1 :]])


def resize_parts(case: Case, target: Target, ragged: Ragged, lengths: Sequence[int]) -> Case:
    """The case with parts of these lengths, of which some are repeated rows; unchanged where the rows are too many."""
    if list(lengths) == ragged.lengths:
        return case
    rows = (ragged.row_numbers(part) for part in range(ragged.count))
    parts = [np.resize(own if len(own) else [0], size) for own, size in zip(rows, lengths, strict=True)]
    return next(keep_parts(case, target, ragged, parts), case)


def keep_parts(case: Case, target: Target, ragged: Ragged, parts: Sequence[np.ndarray]) -> Iterator[Case]:
    """The case with such parts, each given as its rows, if it is legal; the values of recipes are made anew."""
    call, kept = case.calls[ragged.call], np.concatenate(parts)
    count = call.dims[ragged.parts.name] - ragged.count + len(parts)
    dims = {**call.dims, ragged.parts.name: count, ragged.rows.name: len(kept)}
    if any(dim.clamp(dims[dim.name]) != dims[dim.name] for dim in (ragged.rows, ragged.parts)):
        return
    changed = resize(case, target, ragged.call, dims)
    users = [value for value in call.tensors.values() if value.uses(ragged.rows.name)]
    if all(isinstance(value.values, Exact) for value in users):
        cut = edit.resize(edit.keep_slices(call, ragged.rows.name, kept), dims)
        changed = replace(changed, calls=case.with_call(ragged.call, cut).calls)
    kind, sums = named_dtype(call.tensors[ragged.name].dtype), np.cumsum([0, *map(len, parts)])
    yield edit.with_values(changed, ragged.call, ragged.name, exact(to_bits(sums, kind), kind))
