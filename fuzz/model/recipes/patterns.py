"""Recipes of values by their place: fills, ramps, equal rows, ties, and values that alternate or cancel."""

from __future__ import annotations

from functools import lru_cache, partial
from math import gcd

from fuzz.model.dtypes import DTYPES, to_bits
from fuzz.model.recipes.counter_rng import Array, below, below_low
from fuzz.model.recipes.grid import Grid


def zeros(g: Grid) -> Array:
    return g.fill(0)


def ones(g: Grid) -> Array:
    return g.fill(g.dtype.one_bits)


def constant(g: Grid) -> Array:
    return g.fill(_constant_bits(g["mantissa"], g["exponent"], g.dtype.name))


@lru_cache(maxsize=1024)
def _constant_bits(mantissa: int, exponent: int, name: str) -> int:
    d = DTYPES[name]
    value = mantissa * 2.0**exponent
    return int(to_bits(max(-d.largest, min(d.largest, value)) if d.is_float else value, d))


def ramp(g: Grid) -> Array:
    return g.whole(g.column * g["step"] + g["start"])


def ties(g: Grid) -> Array:
    choice = below(g.bits(), g["distinct"], g.xp)
    return g.round(g.normal(choice, g["exponent"], stream=1))


def onehot(g: Grid) -> Array:
    hot = below(g.row_bits(), max(g.span.columns, 1), g.xp)
    value = g.xp.real(g.column == hot) * 2.0 ** g["exponent"]
    return g.round(value)


def prefixes(g: Grid) -> Array:
    """1 in the first columns of each row, in a quarter of the rows from another place on; as likely in any number."""
    columns = g.span.columns
    begin, end = (below(g.row_bits(stream), columns + 1, g.xp) for stream in (1, 2))
    begin = g.xp.where(below_low(g.row_bits(), 4) == 0, begin, 0)
    return g.xp.where((begin <= g.column) & (g.column < end), g.fill(1), g.fill(0))


def alternating(g: Grid) -> Array:
    size = g.round(g.normal(g.row_counter, g["exponent"]))
    return size ^ ((g.column & 1) << (g.dtype.bits - 1))


def rows_constant(g: Grid) -> Array:
    return g.round(g.normal(g.row_counter, g["exponent"]))


def near_constant(g: Grid) -> Array:
    """One value a row, each element up to `ulps` steps further from zero."""
    return rows_constant(g) + below(g.bits(1), g["ulps"] + 1, g.xp)


def cancelling(g: Grid) -> Array:
    """Pairs of a and its negative, the latter up to `ulps` steps larger, dealt over the row; an odd one out is 0.

    Dealt by place = (stride * column + start) mod columns, with a start for each row: a permutation that every element
    can compute alone.
    """
    columns = max(g.span.columns, 1)
    start = below(g.row_bits(1), columns, g.xp)
    place = (g.column * g.pick(columns, 2, partial(_stride, columns)) + start) % columns
    side = place & 1
    size = g.round(g.normal(g.row_counter + (place >> 1), g["exponent"]))
    noise = below_low(g.bits(3), g["ulps"] + 1)
    bits = (size ^ (side << (g.dtype.bits - 1))) + side * noise
    if columns % 2 == 0 or columns == 1:
        return bits
    return g.xp.where(place == columns - 1, 0, bits)


def _stride(columns: int, near: int) -> int:
    """The first number from `near` on that has no factor in common with `columns`."""
    stride = max(near, 1)
    while gcd(stride, columns) != 1:
        stride += 1
    return stride
