"""Recipes of sampling locations: places in grids of cells, in units of the whole grid, as bilinear sampling takes them.

The last axis holds x and y. A row's grid is number (row // points) % levels, and s0, s1, .. are the sizes of the grids
along x and y in turn. With `align` a grid's first and last cells have their centres at 0 and 1; without, their edges.
With `signed` the grid reaches from -1 to 1 instead.
"""

from __future__ import annotations

from fuzz.model.recipes.counter_rng import Array, below, below_low, signed, uniform
from fuzz.model.recipes.grid import Grid

LEVELS = 4
"""Most grids."""
FAR = 8.0
"""Locations outside are at most so many grids away."""


def locations(g: Grid) -> Array:
    """Anywhere from a quarter of the grid before it to a quarter behind it."""
    return _round_to_step(g, uniform(g.bits(), g.xp) * 1.5 - 0.25, 0)


def location_edges(g: Grid) -> Array:
    """Where a cell's neighbours change, from one before the grid to one behind it; or the grid's own border; or beside.

    At such a place the fraction between two cells is 0: one of them stops to count, and the derivative jumps.
    """
    bits, size = g.bits(), _sizes(g)
    place = below(bits, 1 << 20, g.xp) % (size + 2) - 1
    upper, lower = (place, size - 1) if g["align"] else (2 * place + 1, 2 * size)
    centre = g.xp.real(upper) / g.xp.real(g.xp.where(lower < 1, 1, lower))
    other = g.bits(1)
    centre = g.xp.where(below_low(other, 4) == 0, g.xp.real(place & 1), centre)
    spread = g["spread"]
    return _round_to_step(g, centre, below(other, 2 * spread + 1, g.xp) - spread)


def location_outside(g: Grid) -> Array:
    """Before and behind the grid, from its border to far away."""
    bits = g.bits()
    away = uniform(g.bits(1), g.xp)
    away = away * away * FAR
    return _round_to_step(g, g.xp.where(below_low(bits, 2) == 0, 0.0 - away, away + 1.0), 0)


def _sizes(g: Grid) -> Array:
    """The size of the grid along the axis that each element is a coordinate of."""
    level = (g.row // g["points"]) % g["levels"]
    return g.xp.table(tuple(g[f"s{index}"] for index in range(2 * LEVELS)))[2 * level + g.column % 2]


def _round_to_step(g: Grid, place: Array, steps: Array | int) -> Array:
    """The bits of places, moved by so many units in the last place."""
    bits = g.round(place * 2.0 - 1.0 if g["signed"] else place)
    sign, magnitude = signed(g.dtype.sign_mask), g.dtype.sign_mask - 1
    ordinal = g.xp.where((bits & sign) != 0, -(bits & magnitude), bits & magnitude) + steps
    return g.xp.where(ordinal < 0, -ordinal | sign, ordinal)
