"""Edits cases: each function returns a case, call or argument that differs in one thing from the one it is given."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fuzz.model.case import Argument, Call, Case, LaunchOptions, Scalar, Split
from fuzz.model.dims import resolve
from fuzz.model.dtypes import DType, from_bits, to_bits
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.layout import Layout
from fuzz.model.recipes import Exact, Patched, Recipe, Values, exact, patched, recipe

PLAIN = ("integers", "random_bits")
"""Recipes of which one fits any dtype."""


def tensors_of(case: Case) -> Iterator[tuple[int, str, Argument]]:
    """(index of the call, name, argument) of every argument and cotangent."""
    for index, call in enumerate(case.calls):
        for name, value in call.tensors.items():
            yield index, name, value


def map_tensors(case: Case, edit: Callable[[Call, str, Argument], Argument]) -> Case:
    """The case with every argument and cotangent replaced by what `edit` makes of it."""
    for index, call in enumerate(case.calls):
        edited = call
        for name, value in call.tensors.items():
            edited = edited.with_argument(name, edit(call, name, value))
        case = case.with_call(index, edited)
    return case


def with_argument(case: Case, index: int, name: str, value: Argument) -> Case:
    """The case with one argument or cotangent of one call replaced; `index` may be -1 for the last call."""
    return case.with_call(index % len(case.calls), case.calls[index].with_argument(name, value))


def with_values(case: Case, index: int, name: str, values: Values) -> Case:
    """The case with other values of one argument or cotangent."""
    return with_argument(case, index, name, replace(case.calls[index].tensors[name], values=values))


def with_option(case: Case, index: int, name: str, value: Scalar) -> Case:
    """The case with another value of one option of one call."""
    call = case.calls[index]
    return case.with_call(index % len(case.calls), replace(call, options={**call.options, name: value}))


def with_launch(case: Case, launch: LaunchOptions | None) -> Case:
    """The case with the same launch options in every call; none at all where they are all None."""
    launch = launch if launch is not None and launch.as_dict() else None
    return replace(case, calls=tuple(replace(call, launch=launch) for call in case.calls))


def with_layout(value: Argument, layout: Layout, call: Call) -> Argument:
    """The argument's values in another layout; exact values that an expanded dim repeats are written out."""
    if value.layout.expand == layout.expand or not isinstance(value.values, Exact):
        return replace(value, layout=layout)
    shape = resolve(value.shape, call.dims)
    whole = np.broadcast_to(value.bits(call.dims), shape)
    bits = whole[tuple(slice(0, 1) if dim in layout.expand else slice(None) for dim in range(len(shape)))]
    return replace(value, layout=layout, values=exact(bits, named_dtype(value.dtype)))


def with_dtype(value: Argument, dtype: str) -> Argument:
    """The argument in another dtype; exact values, and those that override a recipe's, are rounded to it.

    A recipe that does not fit that gives way to a plain one.
    """
    values, old, new = value.values, named_dtype(value.dtype), named_dtype(dtype)
    if dtype == value.dtype:
        return value
    if isinstance(values, Recipe):
        return replace(value, dtype=dtype, values=fitting_recipe(values, new))

    def rounded(bits: Sequence[int]) -> np.ndarray:
        return to_bits(from_bits(np.array(bits, dtype=old.unsigned), old), new)

    if isinstance(values, Exact):
        return replace(value, dtype=dtype, values=exact(rounded(values.bits), new))
    places, bits = zip(*values.overrides, strict=True)
    overrides = tuple(zip(places, rounded(bits).tolist(), strict=True))
    return replace(value, dtype=dtype, values=patched(fitting_recipe(values.recipe, new), overrides))


def fitting_recipe(values: Recipe, dtype: DType) -> Recipe:
    """The recipe where it fits a dtype, else the first of the plain ones that does, from the same seed."""
    fits = (name for name in PLAIN if dtype.kind in recipe(name).kind.fits)
    return values if dtype.kind in values.kind.fits else recipe(next(fits), values.seed)


def with_bits(values: Exact, changes: Mapping[int, int]) -> Exact:
    """Exact values with some elements replaced: flat index -> bits."""
    bits = list(values.bits)
    for index, pattern in changes.items():
        bits[index] = pattern
    return Exact(tuple(bits), values.dtype)


def with_shape(value: Argument, shape: tuple[str, ...], call: Call) -> Argument:
    """The argument in another shape, contiguous where the rank is another one.

    Of exact values the leading ones are kept, or repeated; values that override a recipe's are dropped.
    """
    layout = replace(value.layout, reach=0) if len(shape) == len(value.shape) else Layout()
    changed = replace(value, shape=shape, layout=layout)
    if isinstance(value.values, Patched):
        return replace(changed, values=value.values.recipe)
    if not isinstance(value.values, Exact):
        return changed
    bits = np.broadcast_to(value.bits(call.dims), resolve(value.shape, call.dims)).reshape(-1)
    count = math.prod(changed.stored_shape(call.dims))
    return replace(changed, values=exact(np.resize(bits, count), named_dtype(value.dtype)))


def write_out(value: Argument, dims: Mapping[str, int]) -> Argument:
    """The argument with exact values in the place of its recipe; the same bits."""
    return replace(value, values=exact(value.bits(dims), named_dtype(value.dtype)))


def base_recipe(values: Values) -> Recipe | None:
    """The recipe that makes the values, but for overridden elements; None for exact values."""
    return values.recipe if isinstance(values, Patched) else values if isinstance(values, Recipe) else None


def resize(call: Call, dims: Mapping[str, int]) -> Call:
    """The call with other dims; recipes make as many values, exact values are cut or repeated to fit.

    Overrides of a recipe's elements that the smaller tensor lacks are left out.
    """
    for name, value in call.tensors.items():
        if isinstance(value.values, Exact):
            values = _fit(value.bits(call.dims), value.stored_shape(dims), value.dtype)
            call = call.with_argument(name, replace(value, values=values))
        elif isinstance(value.values, Patched):
            size = math.prod(value.stored_shape(dims))
            kept = tuple(one for one in value.values.overrides if one[0] < size)
            call = call.with_argument(name, replace(value, values=patched(value.values.recipe, kept)))
    return replace(call, dims=dims)


def _fit(bits: np.ndarray, shape: tuple[int, ...], dtype: str) -> Exact:
    """The leading part of the values where every dim shrank, else all of them repeated to the new number."""
    kept = bits[tuple(slice(0, size) for size in shape)]
    if kept.shape == shape:
        return exact(kept, named_dtype(dtype))
    flat = kept.reshape(-1) if kept.size else np.zeros(1, kept.dtype)
    return Exact(tuple(np.resize(flat, math.prod(shape)).tolist()), dtype)


def keep_slices(call: Call, dim: str, kept: np.ndarray) -> Call:
    """The call with these slices of a dim alone; where it enters a shape, the leading part stays, or all repeats."""
    dims = {**call.dims, dim: len(kept)}
    for name, value in call.tensors.items():
        if value.uses(dim):
            bits = value.bits(call.dims)
            for axis, text in enumerate(value.shape):
                if text == dim and axis not in value.layout.expand:
                    bits = np.take(bits, kept, axis)
            values = _fit(bits, value.stored_shape(dims), value.dtype)
            call = call.with_argument(name, replace(value, values=values))
    return replace(call, dims=dims)


def fit_split(split: Split | None, rows: int) -> Split | None:
    """The split moved into so many rows."""
    if split is None:
        return None
    start = min(split.start, max(rows - 1, 0))
    return replace(split, start=start, length=max(min(split.length, rows - start), 1))


def largest_tensor(call: Call, dims: Mapping[str, int]) -> int:
    """Elements of the call's largest tensor at these dims."""
    return max((math.prod(resolve(value.shape, dims)) for value in call.tensors.values()), default=0)
