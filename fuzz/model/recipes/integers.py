"""Recipes of whole numbers: small ones of any format, indices below a bound, and random bits."""

from __future__ import annotations

from fuzz.model.recipes.counter_rng import Array, below, below_low
from fuzz.model.recipes.grid import Grid


def integers(g: Grid) -> Array:
    bound = g["bound"]
    return g.whole(below(g.bits(), 2 * bound + 1, g.xp) - bound)


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
