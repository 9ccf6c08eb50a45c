"""Smaller dims: by halves from above, then everything small from below, where the first hit is the smallest.

A size that is smaller may need other values to show the same bug; small sizes are tried with a battery of recipes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product

import numpy as np

from fuzz.model.case import Argument, Call, Case, Split
from fuzz.model.dims import Size, names, resolve
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.layout import CONTIGUOUS
from fuzz.model.recipes import Exact, Recipe, exact, recipe
from fuzz.shrink.passes.defaults import plain_layouts
from fuzz.shrink.passes.values import WRITTEN
from fuzz.target.spec import Target

SMALL = 4
"""Sizes tried exhaustively from below, for every dim at once; fewer where there are many dims."""
TRIALS = 4096
"""Combinations of sizes, at most."""
LARGEST, PLACES = 1 << 18, 32
"""Elements of the largest tensor of which slices are kept, and places that they are taken from, about."""
BATTERY = (
    recipe("normal", 1),
    recipe("normal", 2),
    recipe("integers", 1),
    recipe("mean_shift", 1, mean=12),
    recipe("exponents", 1, width=12),
    recipe("normal", 3, exponent=-6),
    recipe("normal", 4, exponent=4),
    recipe("normal", 5, exponent=1),
    recipe("normal", 6, exponent=2),
    recipe("normal", 7, exponent=2),
    recipe("normal", 8, exponent=2),
)
"""Values that small sizes are tried with, for all floating arguments at once."""


def halve_dims(case: Case, target: Target) -> Iterator[Case]:
    """Each dim of each call lowered: to its least, to half, and by ever smaller steps."""
    for index, call in enumerate(case.calls):
        for dim in target.sizes:
            for size in _lower(call.dims[dim.name], dim):
                yield resized(case, target, index, {**call.dims, dim.name: size})


def lower_dims(case: Case, target: Target) -> Iterator[Case]:
    """As halve_dims, each smaller size with values of the battery: those that are left may not show the bug."""
    for smaller in halve_dims(case, target):
        for values in BATTERY:
            yield filled(smaller, values)


def rows_as_neighbours(case: Case, target: Target) -> Iterator[Case]:
    """The split's rows as the whole batch, and as many other rows in the second run as the batch had."""
    batch = target.batch or next(iter(target.rows.values()), None)
    split = case.split
    if split is None or batch is None or case.last.dims[batch] <= split.length:
        return
    others = case.last.dims[batch] - split.length
    smaller = resized(case, target, len(case.calls) - 1, {**case.last.dims, batch: split.length})
    smaller = replace(smaller, split=Split(0, split.length, 0, others))
    yield smaller
    for values in BATTERY:
        yield filled(smaller, values)


def drop_slices(case: Case, target: Target) -> Iterator[Case]:
    """Runs of rows, columns and so on taken out of every tensor that has the dim, the rest as it is."""
    for index, call in enumerate(case.calls):
        for dim in target.sizes:
            if not all(isinstance(value.values, Exact) for value in call.tensors.values() if _uses(value, dim)):
                continue
            size = call.dims[dim.name]
            run = size // 2
            while run:
                for start in range(0, size, run):
                    kept = np.delete(np.arange(size), np.s_[start : start + run])
                    left = len(kept)
                    if left >= dim.low and left % dim.multiple == 0:
                        smaller = _with_slices(case, index, dim, kept)
                        batch = target.batch or next(iter(target.rows.values()), "")
                        fits = batch != dim.name or case.split is None
                        yield smaller if fits else replace(smaller, split=_fitting(case.split, left))
                run //= 2


def keep_slices(case: Case, target: Target) -> Iterator[Case]:
    """Of tensors too large to be written out as many rows, columns and so on as can be, from several places."""
    if case.split is not None:
        return
    for index, call in enumerate(case.calls):
        counts = {name: math.prod(value.layout.stored(call.shape(name))) for name, value in call.tensors.items()}
        if not WRITTEN < max(counts.values(), default=0) <= LARGEST:
            continue
        for dim in target.sizes:
            size = call.dims[dim.name]
            using = [counts[name] for name, value in call.tensors.items() if _uses(value, dim)]
            kept = WRITTEN * size // max([*using, 1]) // dim.multiple * dim.multiple
            if not dim.low <= kept < size:
                continue
            for start in range(0, size - kept // 2, max(kept // 2, size // PLACES, 1)):
                end = min(start + kept, size)
                yield _with_slices(case, index, dim, np.arange(end - kept, end))


def _uses(value: Argument, dim: Size) -> bool:
    return any(dim.name in names(text) for text in value.shape)


def _with_slices(case: Case, index: int, dim: Size, kept: np.ndarray) -> Case:
    """The case with these slices of a dim alone; dims that only enter an expression keep their leading part."""
    call = case.calls[index]
    dims = {**call.dims, dim.name: len(kept)}
    for name, value in call.tensors.items():
        if not _uses(value, dim):
            continue
        bits = value.bits(call.dims)
        for axis, text in enumerate(value.shape):
            if text == dim.name and axis not in value.layout.expand:
                bits = np.take(bits, kept, axis)
        cut = bits[tuple(slice(0, size) for size in value.layout.stored(resolve(value.shape, dims)))]
        call = call.with_argument(name, replace(value, values=exact(cut, named_dtype(value.dtype))))
    return case.with_call(index, replace(call, dims=dims))


def smallest_dims(case: Case, target: Target) -> Iterator[Case]:
    """All combinations of small sizes, by total elements, with the case's own values and with the battery."""
    for total, trial in sorted(_order(case, trial) for trial in _trials(case, target)):
        if total > case.elements():
            return
        smaller = case
        for index, dims in enumerate(trial):
            smaller = resized(smaller, target, index, dict(zip(case.calls[index].dims, dims, strict=True)))
        yield smaller
        yield from plain_layouts(smaller, target)
        for base in {base.key: base for base in (smaller, all_contiguous(smaller))}.values():
            for values in BATTERY:
                yield filled(base, values)


def _trials(case: Case, target: Target) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Sizes for each call: the small ones of every dim, as many as leave no more than TRIALS combinations."""
    for count in range(SMALL, 1, -1):
        ranges = [_small(target, call.dims, count) for call in case.calls]
        if math.prod(len(sizes) for each in ranges for sizes in each) <= TRIALS:
            yield from product(*(product(*each) for each in ranges))
            return


def _order(case: Case, trial: tuple[tuple[int, ...], ...]) -> tuple[int, tuple[tuple[int, ...], ...]]:
    total = 0
    for call, sizes in zip(case.calls, trial, strict=True):
        dims = dict(zip(call.dims, sizes, strict=True))
        total += sum(math.prod(resolve(value.shape, dims)) for value in call.tensors.values())
    return total, trial


def _small(target: Target, dims: Mapping[str, int], count: int) -> list[list[int]]:
    """For each dim its `count` least sizes, and the one it has where that is larger."""
    ranges = []
    for dim in target.sizes:
        least = dim.clamp(dim.low)
        # Beyond the case's own size too: one dim may grow where another shrinks more.
        most = dim.clamp(least + (count - 1) * dim.multiple)
        ranges.append([*range(least, most + 1, dim.multiple), *([dims[dim.name]] if dims[dim.name] > most else [])])
    return ranges


def _lower(size: int, dim: Size) -> Iterator[int]:
    least = dim.clamp(dim.low)
    step = size - least
    while step > 0:
        smaller = dim.clamp(size - step)
        if smaller < size:
            yield smaller
        step //= 2


def resized(case: Case, target: Target, index: int, dims: dict[str, int]) -> Case:
    """The case with other dims for one call: recipes make as many values, exact bits are cut to fit."""
    call = case.calls[index]
    for name, value in call.tensors.items():
        if isinstance(value.values, Exact):
            call = call.with_argument(name, replace(value, values=_cut(value, call, dims)))
    made = case.with_call(index, replace(call, dims=dims))
    batch = target.batch or next(iter(target.rows.values()), None)
    return replace(made, split=_fitting(made.split, dims[batch])) if batch else made


def _cut(value: Argument, call: Call, dims: dict[str, int]) -> Exact:
    """The bits of the leading part that remains, the last pattern repeated where a dim grew."""
    bits = value.bits(call.dims)
    shape = value.layout.stored(resolve(value.shape, dims))
    kept = bits[tuple(slice(0, size) for size in shape)]
    if kept.shape != shape:
        flat = [int(pattern) for pattern in kept.reshape(-1)] or [0]
        return Exact(tuple((flat * math.prod(shape))[: math.prod(shape)]), value.dtype)
    return Exact(tuple(int(pattern) for pattern in kept.reshape(-1)), value.dtype)


def _fitting(split: Split | None, rows: int) -> Split | None:
    """The split moved into the rows that are left."""
    if split is None:
        return None
    start = min(split.start, max(rows - 1, 0))
    return replace(split, start=start, length=max(min(split.length, rows - start), 1))


def all_contiguous(case: Case) -> Case:
    """The case with every tensor contiguous; exact bits of an expanded tensor stay, and may not fit."""
    for index, call in enumerate(case.calls):
        for name, value in call.tensors.items():
            if isinstance(value.values, Recipe):
                call = call.with_argument(name, replace(value, layout=CONTIGUOUS))
        case = case.with_call(index, call)
    return case


def filled(case: Case, values: Recipe) -> Case:
    """The case with every floating argument made by one recipe, each from a seed of its own."""
    for index, call in enumerate(case.calls):
        for place, (name, value) in enumerate(call.tensors.items()):
            if value.is_float:
                seeded = replace(values, seed=values.seed + 100 * place)
                call = call.with_argument(name, replace(value, values=seeded))
        case = case.with_call(index, call)
    return case
