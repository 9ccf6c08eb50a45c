"""Recipes of random floats: normal and uniform, around a mean, with outliers, zeros, infinities and NaN among them."""

from __future__ import annotations

from fuzz.model.recipes.counter_rng import Array, below, below_low, signed, uniform
from fuzz.model.recipes.grid import ROW_SHIFT, Grid


def normal(g: Grid) -> Array:
    return g.round(g.normal(g.counter, g["exponent"]))


def uniform_values(g: Grid) -> Array:
    bits, scale = g.bits(), 2.0 ** g["exponent"]
    if g["signed"] == 1:
        return g.round(g.xp.real(bits >> 10) * (scale * 2.0**-53))
    return g.round(uniform(bits, g.xp) * (-scale if g["signed"] else scale))


def mean_shift(g: Grid) -> Array:
    """Standard deviation 2^exponent around a mean of 2^(exponent + mean), of one random sign."""
    mean = (2 * g.pick(2, stream=1) - 1) * 2.0 ** (g["exponent"] + g["mean"])
    return g.round(g.normal(g.counter, g["exponent"]) + mean)


def outliers(g: Grid) -> Array:
    """Normal, but for a few columns, 2^factor times as large."""
    outlier = g.column == g.pick(g.span.columns, stream=1)
    for stream in range(2, g["channels"] + 1):
        outlier = outlier | (g.column == g.pick(g.span.columns, stream))
    plain = g.normal(g.counter, g["exponent"])
    return g.round(g.xp.where(outlier, plain * 2.0 ** g["factor"], plain))


def sparse(g: Grid) -> Array:
    """One element in 2^rarity is normal, the others are 0."""
    kept = below(g.bits(1), 1 << g["rarity"], g.xp) == 0
    return g.round(g.xp.where(kept, g.normal(g.counter, g["exponent"]), 0.0))


def nonfinite(g: Grid) -> Array:
    """One element in 2^rarity, at least one, is of the `kinds`: the sum of 1 for inf, 2 for -inf, 4 for NaN."""
    d, xp, bits = g.dtype, g.xp, g.bits(1)
    patterns = (d.inf_bits, d.inf_bits | d.sign_mask, d.nan_bits)
    listed = tuple(pattern for i, pattern in enumerate(patterns) if g["kinds"] >> i & 1)
    special = xp.table(tuple(map(signed, listed)))[below_low(bits, len(listed))]
    chosen = g.counter == (g.pick(g.span.rows, stream=2) << ROW_SHIFT) + g.pick(g.span.columns, stream=3)
    rare = below(bits, 1 << g["rarity"], xp) == 0
    return xp.where(rare | chosen, special, normal(g))
