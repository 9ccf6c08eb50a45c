"""Recipes of simple or repeated values: fills, small integers, ramps, ties, and the integer formats' own."""

from __future__ import annotations

from functools import lru_cache

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


def integers(g: Grid) -> Array:
    bound = g["bound"]
    return g.whole(below(g.bits(), 2 * bound + 1, g.xp) - bound)


def ramp(g: Grid) -> Array:
    return g.whole(g.column * g["step"] + g["start"])


def ties(g: Grid) -> Array:
    choice = below(g.bits(), g["distinct"], g.xp)
    return g.round(g.normal(choice, g["exponent"], stream=1))


def onehot(g: Grid) -> Array:
    hot = below(g.row_bits(), max(g.span.columns, 1), g.xp)
    value = g.xp.real(g.column == hot) * 2.0 ** g["exponent"]
    return g.round(value)


def alternating(g: Grid) -> Array:
    size = g.round(g.normal(g.row_counter, g["exponent"]))
    return size ^ ((g.column & 1) << (g.dtype.bits - 1))


def indices(g: Grid) -> Array:
    return below(g.bits(), _bound(g), g.xp)


def indices_edges(g: Grid) -> Array:
    """Half of them 0, bound - 1, the middle, or one index of the row, so that many repeat; the others are uniform."""
    bound, bits = _bound(g), g.bits()
    free = below(bits, bound, g.xp)
    kind = below_low(bits, 8)
    edges = g.xp.table((0, bound - 1, bound // 2, 0, 0, 0, 0, 0))[kind]
    chosen = g.xp.where(kind == 3, below(g.row_bits(1), bound, g.xp), edges)
    return g.xp.where(kind > 3, free, chosen)


def indices_sentinel(g: Grid) -> Array:
    bits = g.bits()
    marked = below_low(bits, 1 << g["rarity"]) == 0
    return g.xp.where(marked, g.whole(g.fill(g["sentinel"])), below(bits, _bound(g), g.xp))


def random_bits(g: Grid) -> Array:
    bits = g.bits()
    return bits & 1 if g.dtype.kind == "bool" else bits


def _bound(g: Grid) -> int:
    """The bound on indices, lowered to what the format can count."""
    return min(g["below"], g.dtype.largest_bits + 1)
