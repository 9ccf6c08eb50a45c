"""Triton's arithmetic in numpy, as docs/cpu-operations.md states it: written apart from the backend's C, mostly by
exact rationals and by scaling to units in the last place."""

from __future__ import annotations

from fractions import Fraction
from math import inf, isinf, isnan, ldexp

import numpy as np

from .dtypes import DTYPES, Array, DType


def rounded(dtype: DType, wide: Array, toward_zero: bool = False) -> Array:
    """float64 to a float dtype in one rounding: to nearest even, or towards zero."""
    exponent = np.maximum(np.frexp(wide)[1] - 1, dtype.least) - (dtype.precision - 1)
    scaled = np.ldexp(wide, -exponent)
    result = np.ldexp(np.trunc(scaled) if toward_zero else np.rint(scaled), exponent)
    largest = ldexp(2.0 - 2.0 ** (1 - dtype.precision), dtype.most)
    beyond = largest if toward_zero else inf
    result = np.where((np.abs(result) > largest) & np.isfinite(wide), np.copysign(beyond, wide), result)
    return result.astype(dtype.held)


def dense(values: Array) -> Array:
    """An array of its own that can be viewed as another dtype."""
    return np.array(values, order="C")


def finish(dtype: DType, result: Array) -> Array:
    """The result of one operation, computed wider where the dtype is bfloat16, rounded once."""
    return rounded(dtype, result) if dtype.name == "bfloat16" else result.astype(dtype.held)


def widened(dtype: DType, values: Array) -> Array:
    return values.astype(np.float64) if dtype.name == "bfloat16" else values


def rounded_fraction(dtype: DType, exact: Fraction) -> float:
    """A rational that is not 0, rounded to nearest even."""
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if size < Fraction(2) ** exponent:
        exponent -= 1
    unit = max(exponent, dtype.least) - (dtype.precision - 1)
    digits = round(size / Fraction(2) ** unit)
    if digits.bit_length() + unit - 1 > dtype.most:
        result = inf
    else:
        result = ldexp(float(digits), unit)
    return -result if exact < 0 else result


def fused(dtype: DType, a: float, b: float, c: float) -> float:
    """a * b + c with one rounding."""
    if any(isnan(x) or isinf(x) for x in (a, b)):
        return a * b + c
    if isnan(c) or isinf(c):
        return c
    product = Fraction(a) * Fraction(b)
    exact = product + Fraction(c)
    if exact:
        return rounded_fraction(dtype, exact)
    return a * b + c if product == 0 else 0.0


def fma(dtype: DType, *operands: Array) -> Array:
    a, b, c = np.broadcast_arrays(*operands)
    values = [fused(dtype, *map(float, row)) for row in zip(a.ravel(), b.ravel(), c.ravel(), strict=True)]
    return np.array(values, np.float64).reshape(a.shape).astype(dtype.held)


def remainder(dtype: DType, x: Array, y: Array) -> Array:
    """float `%`: fma(-trunc(x / y), y, x), and x for an infinite y."""
    result = fma(dtype, -np.trunc(x / y), y, x)
    return np.where(np.isinf(y), x, result)


def extreme(x: Array, y: Array, largest: bool, propagate: bool) -> Array:
    """maximum or minimum; -0 is less than +0; NaN wins with `propagate`, else it loses."""
    first = (x > y) | ((x == y) & ~np.signbit(x)) if largest else (x < y) | ((x == y) & np.signbit(x))
    result = np.where(first, x, y)
    either = np.isnan(x) | np.isnan(y)
    return np.where(either, np.where(np.isnan(x) == propagate, x, y), result)


def integer_to_float(source: DType, dtype: DType, values: Array) -> Array:
    if source.bits < 64:
        return finish_from_double(dtype, values.astype(np.float64))
    exact = [rounded_fraction(dtype, Fraction(int(v))) if v else 0.0 for v in values.ravel()]
    return np.array(exact, np.float64).reshape(values.shape).astype(dtype.held)


def finish_from_double(dtype: DType, wide: Array) -> Array:
    return wide if dtype.bits == 64 else rounded(dtype, wide)


def float_to_integer(source: DType, dtype: DType, values: Array) -> Array:
    """Towards zero; out of range the nearest end; NaN 0, or the upper bit where either type has 64 bits. 8 bits are
    cut from 16."""
    width = max(dtype.bits, 16)
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if dtype.kind == "i" else (0, (1 << width) - 1)
    nan = 1 << width - 1 if max(source.bits, width) == 64 else 0
    words = []
    for value in values.astype(np.float64).ravel():
        exact = nan if np.isnan(value) else (low if value < 0 else high) if np.isinf(value) else int(value)
        words.append((nan if np.isnan(value) else min(max(exact, low), high)) & (1 << dtype.bits) - 1)
    unsigned = np.array(words, np.uint64).astype(f"u{dtype.bits // 8}")
    return unsigned.view(dtype.held).reshape(values.shape)


def cast(source: DType, dtype: DType, values: Array, toward_zero: bool = False) -> Array:
    """`x.to(dtype)`."""
    if source.name == dtype.name:
        return values
    if dtype.kind == "b":
        return values != 0
    if dtype.kind == "f":
        if source.kind != "f":
            return integer_to_float(source, dtype, values)
        wide = values.astype(np.float64)
        return rounded(dtype, wide, True) if toward_zero else finish_from_double(dtype, wide)
    if source.kind == "f":
        return float_to_integer(source, dtype, values)
    return values.astype(dtype.held)


def unsigned(dtype: DType, values: Array) -> Array:
    return values.view(f"u{dtype.bits // 8}")


def divide(dtype: DType, x: Array, y: Array) -> tuple[Array, Array]:
    """Integer quotient towards zero and remainder. By zero both are all ones; in 64 bits only the lower half where the
    dividend fits in 32 bits."""
    x, y = np.broadcast_arrays(x, y)
    x, y = dense(x), dense(y)
    ux, uy = unsigned(dtype, x), unsigned(dtype, y)
    nothing = np.zeros_like(ux)
    size_x, size_y = np.where(x < 0, nothing - ux, ux), np.where(y < 0, nothing - uy, uy)
    safe = np.where(uy == 0, np.ones_like(uy), size_y)
    quotient, rest = size_x // safe, size_x % safe
    quotient = np.where((x < 0) != (y < 0), nothing - quotient, quotient)
    rest = np.where(x < 0, nothing - rest, rest)
    ones = ~nothing
    if dtype.bits == 64:
        ones = np.where(ux >> np.uint64(32) == 0, np.uint64(0xFFFFFFFF), ones)
    first, second = (np.where(uy == 0, ones, part).view(dtype.held) for part in (quotient, rest))
    return first, second


def shift(dtype: DType, x: Array, y: Array, left: bool) -> Array:
    """By the width or more: 0, or the sign. Of a 64-bit amount the lower half counts."""
    x, y = np.broadcast_arrays(x, y)
    x, y = dense(x), dense(y)
    amount = unsigned(dtype, y).astype(np.uint64) & np.uint64(0xFFFFFFFF)
    over = amount >= dtype.bits
    safe = np.where(over, np.uint64(0), amount).astype(dtype.held)
    emptied = np.where(x < 0, -1, 0).astype(dtype.held) if not left and dtype.kind == "i" else np.zeros_like(x)
    return np.where(over, emptied, x << safe if left else x >> safe)


def high_product(dtype: DType, x: Array, y: Array) -> Array:
    """The upper half of the unsigned product."""
    x, y = np.broadcast_arrays(x, y)
    rows = zip(x.ravel().tolist(), y.ravel().tolist(), strict=True)
    mask = (1 << dtype.bits) - 1
    words = [(a & mask) * (b & mask) >> dtype.bits for a, b in rows]
    return np.array(words, f"u{dtype.bits // 8}").view(dtype.held).reshape(x.shape)


def bitcast(source: DType, dtype: DType, values: Array) -> Array:
    """The same bits as another dtype of the same width."""
    if source.name == "bfloat16":
        values = (dense(values).view(np.uint32) >> 16).astype(np.uint16)
    if dtype.name == "bfloat16":
        return (dense(values).view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return dense(values).view(DTYPES[dtype.name].held)
