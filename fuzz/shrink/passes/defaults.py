"""Plain things: default layouts, dtypes and options, all at once and one by one; then a smaller split."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fuzz.model.case import Argument, Call, Case, Scalar, Split
from fuzz.model.dims import resolve
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.dtypes import from_bits, to_bits
from fuzz.model.layout import CONTIGUOUS, Layout
from fuzz.model.recipes import Exact, exact
from fuzz.target.spec import Target


def plain_everything(case: Case, target: Target) -> Iterator[Case]:
    """Every argument and option at its default at once."""
    made = case
    for index, call in enumerate(case.calls):
        for name, value in call.tensors.items():
            plainer = with_dtype(with_layout(value, CONTIGUOUS, call), str(target.defaults.get(name, value.dtype)))
            call = call.with_argument(name, plainer)
        made = made.with_call(index, replace(call, options=_default_options(call, target)))
    yield made


def plain_layouts(case: Case, target: Target) -> Iterator[Case]:
    """One argument's layout at its default, or simpler of its kind."""
    for index, call in enumerate(case.calls):
        for name, value in call.tensors.items():
            for layout in simpler_layouts(value.layout, len(value.shape)):
                yield case.with_call(index, call.with_argument(name, with_layout(value, layout, call)))


def later_layouts(case: Case, target: Target) -> Iterator[Case]:
    """One argument's layout given to another one that has none, so that equal cases end in one of them."""
    for index, call in enumerate(case.calls):
        for name, value in call.tensors.items():
            for other, plain in call.tensors.items():
                special = value.layout != CONTIGUOUS and plain.layout == CONTIGUOUS
                if special and len(value.shape) == len(plain.shape):
                    moved = call.with_argument(name, with_layout(value, CONTIGUOUS, call))
                    moved = moved.with_argument(other, with_layout(plain, value.layout, call))
                    yield case.with_call(index, moved)


def plain_dtypes(case: Case, target: Target) -> Iterator[Case]:
    """One argument's dtype earlier in the target's list."""
    for index, call in enumerate(case.calls):
        for name, value in call.arguments.items():
            allowed = target.tensors[name].dtypes
            for dtype in allowed[: allowed.index(value.dtype)]:
                yield case.with_call(index, call.with_argument(name, with_dtype(value, dtype)))


def plain_options(case: Case, target: Target) -> Iterator[Case]:
    """One option earlier in its list of choices."""
    for index, call in enumerate(case.calls):
        for name, value in call.options.items():
            choices = target.options[name].choices
            for choice in choices[: choices.index(value)]:
                yield case.with_call(index, replace(call, options={**call.options, name: choice}))


def smaller_split(case: Case, target: Target) -> Iterator[Case]:
    """No split, fewer neighbours, fewer and earlier rows."""
    split = case.split
    if split is None:
        return
    yield replace(case, split=None)
    options = [
        Split(0, 1),
        Split(split.start, 1),
        Split(split.start, split.length),
        replace(split, before=0, after=split.before + split.after),
        replace(split, after=0),
        replace(split, before=0),
        replace(split, before=split.before // 2, after=split.after // 2),
        replace(split, before=max(split.before - 1, 0)),
        replace(split, after=max(split.after - 1, 0)),
        replace(split, length=max(split.length // 2, 1)),
        replace(split, length=max(split.length - 1, 1)),
        replace(split, start=split.start // 2),
        replace(split, start=max(split.start - 1, 0)),
        replace(split, start=0),
    ]
    for option in options:
        if option != split:
            yield replace(case, split=option)


def simpler_layouts(layout: Layout, rank: int) -> Iterator[Layout]:
    """The default, then the simplest of every kind, then layouts of the same kind with smaller numbers."""
    if layout == CONTIGUOUS:
        return
    yield CONTIGUOUS
    yield from (Layout(step=2), Layout(offset=1), Layout(pad=1))
    if rank == 2:
        yield from (Layout(expand=(1,)), Layout(expand=(0,)), Layout(order=(1, 0)))
    for field, least in (("offset", 0), ("pad", 0), ("step", 1), ("reach", 0)):
        value = getattr(layout, field)
        for smaller in sorted({least, least + 1, value - 1}):
            if least <= smaller < value:
                yield replace(layout, **{field: smaller})
    for index in range(len(layout.expand)):
        yield replace(layout, expand=layout.expand[:index] + layout.expand[index + 1 :])


def with_layout(value: Argument, layout: Layout, call: Call) -> Argument:
    """The argument's values in another layout; values repeated by an expanded dim are written out."""
    if value.layout.expand == layout.expand or not isinstance(value.values, Exact):
        return replace(value, layout=layout)
    shape = resolve(value.shape, call.dims)
    whole = np.broadcast_to(value.bits(call.dims), shape)
    bits = whole[tuple(slice(0, 1) if dim in layout.expand else slice(None) for dim in range(len(shape)))]
    return replace(value, layout=layout, values=exact(bits, named_dtype(value.dtype)))


def with_dtype(value: Argument, dtype: str) -> Argument:
    """The argument in another dtype; exact values are rounded to it."""
    if dtype == value.dtype or not isinstance(value.values, Exact):
        return replace(value, dtype=dtype)
    old = named_dtype(value.dtype)
    numbers = from_bits(np.array(value.values.bits, dtype=old.unsigned), old)
    bits = to_bits(numbers, named_dtype(dtype))
    return replace(value, dtype=dtype, values=exact(bits, named_dtype(dtype)))


def _default_options(call: Call, target: Target) -> dict[str, Scalar]:
    return {name: target.options[name].choices[0] for name in call.options}
