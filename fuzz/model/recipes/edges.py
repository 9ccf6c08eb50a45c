"""Recipes made of bits: the whole range of exponents, its two ends, signed zeros, values beside chosen constants."""

from __future__ import annotations

from functools import lru_cache
from math import sqrt

import numpy as np

from fuzz.model.dtypes import DTYPES, DType, ordinal, to_bits
from fuzz.model.recipes.counter_rng import Array, below, below_low, signed
from fuzz.model.recipes.grid import Grid

CONSTANTS = 8
"""A recipe takes so many constants of the caller's, c0 .. c7."""

INTERESTING = (
    *(0.0, 0.5, 1.0, 2.0, 1.4142135623730951, 0.3333333333333333, 3.141592653589793),
    *(2.0**-8, 0.25, 4.0, 16.0, 256.0, 1024.0),
    *(3.9, 5.9, 8.0, 13.0),  # where 1 - erf and the tail of the normal distribution vanish
    *(9.7, 11.09, 17.33),  # float16: exp gets subnormal (-9.7), overflows, vanishes (-17.33)
    *(87.33, 88.73, 89.0, 103.97),  # float32 and bfloat16 likewise
    *(708.4, 709.78, 745.13),  # float64 likewise
)


def exponents(g: Grid) -> Array:
    """Random sign and fraction; the exponent uniform over the format's, or over 2^-width .. 2^width where narrower."""
    d = g.dtype
    low = max(0 if g["subnormals"] else 1, d.bias - g["width"])
    high = min(2 * d.bias, d.bias + g["width"])
    field = below(g.bits(1), high - low + 1, g.xp) + low
    return _signed_fraction(g, field)


def huge(g: Grid) -> Array:
    """The largest finite binade and `binades` - 1 below it."""
    return _signed_fraction(g, 2 * g.dtype.bias - below(g.bits(1), g["binades"], g.xp))


def tiny(g: Grid) -> Array:
    """The smallest normal binade and `binades` - 1 above it."""
    return _signed_fraction(g, 1 + below(g.bits(1), g["binades"], g.xp))


def subnormals(g: Grid) -> Array:
    """Fractions of all lengths, never zero, with random signs."""
    bits, m = g.bits(), g.dtype.mantissa
    sign, fraction = _sign_and_fraction(g, bits)
    shortened = fraction >> below(g.bits(1), m, g.xp)
    return g.fields(sign, 0, shortened + g.xp.where(shortened == 0, 1, 0))


def signed_zeros(g: Grid) -> Array:
    """+0 and -0, one element in 2^rarity +1 or -1 instead."""
    bits = g.bits()
    ones = g.xp.where(below_low(bits, 1 << g["rarity"]) == 0, g.dtype.one_bits, 0)
    return (g.xp.shr(bits, 63) << (g.dtype.bits - 1)) | ones


def boundaries(g: Grid) -> Array:
    """Values at most `spread` steps beside a constant: with `builtin` the interesting ones, and the caller's."""
    constants = tuple(float(value) for name, value in g.params.items() if name[0] == "c")
    ordinals = _ordinals(g.dtype.name, bool(g["builtin"]), constants)
    bits, spread, top = g.bits(), g["spread"], g.dtype.largest_bits
    centre = g.xp.table(ordinals)[below(bits, len(ordinals), g.xp)]
    moved = g.xp.clip(centre + (below_low(bits, 2 * spread + 1) - spread), -top, top)
    return g.xp.where(moved < 0, -moved | signed(g.dtype.sign_mask), moved)


@lru_cache(maxsize=256)
def _ordinals(name: str, builtin: bool, constants: tuple[float, ...]) -> tuple[int, ...]:
    """Ordinals of the constants; those beyond the format's range stand at its ends."""
    d = DTYPES[name]
    builtins = (*INTERESTING, *_limits(d)) if builtin else ()
    values = np.clip(np.array([*builtins, *(-x for x in builtins), *constants] or [0.0]), -d.largest, d.largest)
    return tuple(int(rank) for rank in ordinal(to_bits(values, d), d))


def _limits(d: DType) -> tuple[float, ...]:
    """The format's own limits, and the roots of them: beyond those a square overflows or vanishes."""
    ends = (d.largest, d.smallest_normal, d.smallest_subnormal)
    return (*ends, d.unit, 2 * d.unit, 1 / d.unit, sqrt(d.largest), sqrt(d.smallest_normal))


def _sign_and_fraction(g: Grid, bits: Array) -> tuple[Array, Array]:
    return g.xp.shr(bits, 63), bits & ((1 << g.dtype.mantissa) - 1)


def _signed_fraction(g: Grid, field: Array) -> Array:
    sign, fraction = _sign_and_fraction(g, g.bits())
    return g.fields(sign, field, fraction)
