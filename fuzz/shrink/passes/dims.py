"""Passes towards smaller dims: by halves from above, then everything small from below, where the first hit is smallest.

A smaller size may need other values to show the same bug, so small sizes are also tried with the values of BATTERY.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product

import numpy as np

from fuzz.model import edit
from fuzz.model.case import Argument, Call, Case, Split
from fuzz.model.dims import Size, resolve
from fuzz.model.layout import CONTIGUOUS
from fuzz.model.recipes import Exact, Recipe, recipe
from fuzz.shrink.passes.defaults import plain_layouts
from fuzz.shrink.passes.values import MAX_WRITTEN_OUT
from fuzz.target.spec import Target

SMALL_SIZES = 4
"""Sizes tried exhaustively from below, for every dim at once; fewer where there are many dims."""
MAX_COMBINATIONS = 4096
"""Combinations of sizes, at most."""
MAX_SLICED, STARTS = 1 << 18, 32
"""Elements of the largest tensor of which slices are kept, and about how many starts of slices are tried."""
USUAL = (recipe("normal", 1), recipe("normal", 2), recipe("integers", 1))
"""Values of ordinary size, of which few digits are lost."""
UNUSUAL = (recipe("mean_shift", 1, mean=12), recipe("exponents", 1, width=12))
"""Values of which a correct digit is easily lost: far larger than their differences, or of many sizes."""
BATTERY = (
    *USUAL,
    *UNUSUAL,
    recipe("normal", 3, exponent=-6),
    recipe("normal", 4, exponent=4),
    recipe("normal", 5, exponent=1),
    recipe("normal", 6, exponent=2),
    recipe("normal", 7, exponent=2),
    recipe("normal", 8, exponent=2),
)
"""Values that small sizes are tried with, for all floating arguments at once."""


def smaller_dims(case: Case, target: Target) -> Iterator[Case]:
    """Each dim of each call lowered: to its least, to half, and by ever smaller steps and powers of two."""
    return _one_dim_smaller(case, target, by_powers=True)


def smaller_dims_with_other_values(case: Case, target: Target) -> Iterator[Case]:
    """Each dim lowered, each smaller size with values of the battery: those that are left may not show the bug."""
    for smaller in _one_dim_smaller(case, target, by_powers=False):
        for values in BATTERY:
            yield fill(smaller, values)


def _one_dim_smaller(case: Case, target: Target, by_powers: bool) -> Iterator[Case]:
    for index, call in enumerate(case.calls):
        for dim in target.sizes:
            for size in candidate_sizes(call.dims[dim.name], dim, by_powers):
                yield resize(case, target, index, {**call.dims, dim.name: size})


def rows_as_neighbours(case: Case, target: Target) -> Iterator[Case]:
    """The split's rows as the whole batch, and as many other rows in the second run as the batch had."""
    batch, split = target.batch_dim, case.split
    if split is None or batch is None or case.last.dims[batch] <= split.length:
        return
    if any(dim.clamp(split.length) != split.length for dim in target.sizes if dim.name == batch):
        return
    others = case.last.dims[batch] - split.length
    smaller = resize(case, target, len(case.calls) - 1, {**case.last.dims, batch: split.length})
    smaller = replace(smaller, split=Split(0, split.length, 0, others))
    yield smaller
    for values in BATTERY:
        yield fill(smaller, values)


def drop_slices(case: Case, target: Target) -> Iterator[Case]:
    """Runs of rows, columns and so on taken out of every tensor that has the dim, the rest as it is."""
    for index, call in enumerate(case.calls):
        for dim in target.sizes:
            if not all(isinstance(value.values, Exact) for value in call.tensors.values() if value.uses(dim.name)):
                continue
            for kept in _without_runs(call.dims[dim.name]):
                if len(kept) >= dim.low and len(kept) % dim.multiple == 0:
                    smaller = case.with_call(index, edit.keep_slices(call, dim.name, kept))
                    rows_changed = target.batch_dim == dim.name and case.split is not None
                    yield _refit_split(smaller, len(kept)) if rows_changed else smaller


def _without_runs(size: int) -> Iterator[np.ndarray]:
    """The indices below `size` without a run of half of them, a quarter, and so on down to single ones."""
    run = size // 2
    while run:
        for start in range(0, size, run):
            yield np.delete(np.arange(size), np.s_[start : start + run])
        run //= 2


def keep_slices(case: Case, target: Target) -> Iterator[Case]:
    """Of tensors too large to be written out as many rows, columns and so on as can be, from several starts."""
    if case.split is not None:
        return
    for index, call in enumerate(case.calls):
        counts = {name: math.prod(value.stored_shape(call.dims)) for name, value in call.tensors.items()}
        if not MAX_WRITTEN_OUT < max(counts.values(), default=0) <= MAX_SLICED:
            continue
        for dim in target.sizes:
            size = call.dims[dim.name]
            using = [counts[name] for name, value in call.tensors.items() if value.uses(dim.name)]
            kept = MAX_WRITTEN_OUT * size // max([*using, 1]) // dim.multiple * dim.multiple
            if not dim.low <= kept < size:
                continue
            for start in range(0, size - kept // 2, max(kept // 2, size // STARTS, 1)):
                end = min(start + kept, size)
                yield case.with_call(index, edit.keep_slices(call, dim.name, np.arange(end - kept, end)))


def combinations_of_small_dims(case: Case, target: Target) -> Iterator[Case]:
    """All combinations of small sizes, by total elements, with the case's own values and with the battery."""
    for total, sizes in sorted(_with_total(case, sizes) for sizes in _combinations(case, target)):
        if total > case.elements():
            return
        smaller = case
        for index, dims in enumerate(sizes):
            smaller = resize(smaller, target, index, dict(zip(case.calls[index].dims, dims, strict=True)))
        yield smaller
        yield from plain_layouts(smaller, target)
        for base in {base.key: base for base in (smaller, all_contiguous(smaller))}.values():
            for values in BATTERY:
                yield fill(base, values)


def _combinations(case: Case, target: Target) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Sizes for each call: the small ones of every dim, as many as leave no more than MAX_COMBINATIONS combinations."""
    for count in range(SMALL_SIZES, 1, -1):
        ranges = [_small_sizes(target, call.dims, count) for call in case.calls]
        if math.prod(len(sizes) for each in ranges for sizes in each) <= MAX_COMBINATIONS:
            yield from product(*(product(*each) for each in ranges))
            return


def _with_total(case: Case, sizes: tuple[tuple[int, ...], ...]) -> tuple[int, tuple[tuple[int, ...], ...]]:
    """The sizes, and the total elements that the case has with them."""
    total = 0
    for call, sizes_of_call in zip(case.calls, sizes, strict=True):
        dims = dict(zip(call.dims, sizes_of_call, strict=True))
        total += sum(math.prod(resolve(value.shape, dims)) for value in call.tensors.values())
    return total, sizes


def _small_sizes(target: Target, dims: Mapping[str, int], count: int) -> list[list[int]]:
    """For each dim of a call its `count` least sizes, and the one it has where that is larger."""
    ranges, sizes = [], {dim.name: dim for dim in target.sizes}
    # In the order of the case: an entry may list its dims in another one than the target does now.
    for name in dims:
        dim = sizes[name]
        least = dim.least
        # Beyond the case's own size too: one dim may grow where another shrinks more.
        most = dim.clamp(least + (count - 1) * dim.multiple)
        ranges.append([*range(least, most + 1, dim.multiple), *([dims[dim.name]] if dims[dim.name] > most else [])])
    return ranges


def candidate_sizes(size: int, dim: Size, by_powers: bool) -> list[int]:
    """Smaller sizes of a dim, from the least: by its distance halved again and again, and also `by_powers` of two.

    What depends on how much of a block is left over shows again one block further down.
    """
    distance = size - dim.least
    steps = {distance >> halvings for halvings in range(distance.bit_length())}
    if by_powers:
        steps |= {1 << power for power in range(distance.bit_length())}
    return [smaller for step in sorted(steps, reverse=True) if (smaller := dim.clamp(size - step)) < size]


def resize(case: Case, target: Target, index: int, dims: dict[str, int]) -> Case:
    """The case with other dims for one call, and the split moved into the rows that are left."""
    smaller = case.with_call(index, edit.resize(case.calls[index], dims))
    return _refit_split(smaller, dims[target.batch_dim]) if target.batch_dim else smaller


def _refit_split(case: Case, rows: int) -> Case:
    return replace(case, split=edit.fit_split(case.split, rows))


def all_contiguous(case: Case) -> Case:
    """The case with every tensor that a recipe makes contiguous."""

    def contiguous(call: Call, name: str, value: Argument) -> Argument:
        return replace(value, layout=CONTIGUOUS) if isinstance(value.values, Recipe) else value

    return edit.map_tensors(case, contiguous)


def usual_inputs(case: Case) -> Case:
    """The case with usual values and plain layouts."""
    return fill(all_contiguous(case), USUAL[0])


def fill(case: Case, values: Recipe) -> Case:
    """The case with every floating argument made by one recipe, each from a seed of its own."""

    def seeded(call: Call, name: str, value: Argument) -> Argument:
        seed = values.seed + 100 * list(call.tensors).index(name)
        return replace(value, values=replace(values, seed=seed)) if value.is_float else value

    return edit.map_tensors(case, seeded)
