"""Number formats as bits: conversions, units in the last place, orderings and spellings. Exact, vectorised, numpy only.

Bits are bit patterns of elements, as unsigned numpy integers of the format's width. Everything here works on arrays of
any shape; scalars are welcome and come back as 0-d arrays. Floats are IEEE 754-2019 binary formats (bfloat16
has the fields of float32 with 7 mantissa bits); integers are two's complement.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from functools import cache, cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Bits = NDArray[np.unsignedinteger[Any]]
Doubles = NDArray[np.float64]
Longs = NDArray[np.int64]
Kind = Literal["float", "int", "uint", "bool"]


@dataclass(frozen=True)
class DType:
    """A number format. `mantissa` counts the stored fraction bits of a float, the value bits of an integer."""

    name: str
    kind: Kind
    bits: int
    mantissa: int
    exponent_bits: int
    bias: int
    unsigned: np.dtype[np.unsignedinteger[Any]]

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @cached_property
    def sign_mask(self) -> int:
        """The pattern with only the sign bit set; 0 for formats that have no sign."""
        return 1 << (self.bits - 1) if self.kind in ("float", "int") else 0

    @cached_property
    def inf_bits(self) -> int:
        """The pattern of +inf: all exponent bits. One more than the pattern of the largest finite value."""
        return ((1 << self.exponent_bits) - 1) << self.mantissa

    @cached_property
    def nan_bits(self) -> int:
        """The one NaN that conversions make: quiet, positive, no payload."""
        return self.inf_bits | (1 << (self.mantissa - 1))

    @cached_property
    def one_bits(self) -> int:
        return self.bias << self.mantissa if self.is_float else 1

    @cached_property
    def largest_bits(self) -> int:
        """The pattern of the largest finite value."""
        return self.inf_bits - 1 if self.is_float else (1 << self.mantissa) - 1

    @cached_property
    def max_bits(self) -> int:
        """The numerically largest pattern that is one: all bits, but 1 for bool."""
        return 1 if self.kind == "bool" else (1 << self.bits) - 1

    @cached_property
    def largest(self) -> float:
        """The largest finite value (of int64: rounded to a double)."""
        if not self.is_float:
            return float(self.largest_bits)
        return float(np.ldexp(2.0 - 2.0**-self.mantissa, self.bias))

    @cached_property
    def smallest_normal(self) -> float:
        """The smallest positive normal value; 1 for integers."""
        return float(np.ldexp(1.0, 1 - self.bias)) if self.is_float else 1.0

    @cached_property
    def smallest_subnormal(self) -> float:
        """The smallest positive value; 1 for integers."""
        return float(np.ldexp(1.0, 1 - self.bias - self.mantissa)) if self.is_float else 1.0

    @cached_property
    def unit(self) -> float:
        """The unit roundoff u: half the distance from 1 to the next value."""
        return float(np.ldexp(0.5, -self.mantissa)) if self.is_float else 0.5


def _float(name: str, bits: int, mantissa: int) -> DType:
    exponent_bits = bits - 1 - mantissa
    bias = (1 << (exponent_bits - 1)) - 1
    return DType(name, "float", bits, mantissa, exponent_bits, bias, np.dtype(f"u{bits // 8}"))


def _integer(name: str, kind: Kind, bits: int, value_bits: int) -> DType:
    return DType(name, kind, bits, value_bits, 0, 0, np.dtype(f"u{bits // 8}"))


DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        _float("float64", 64, 52),
        _float("float32", 32, 23),
        _float("float16", 16, 10),
        _float("bfloat16", 16, 7),
        _integer("int8", "int", 8, 7),
        _integer("int16", "int", 16, 15),
        _integer("int32", "int", 32, 31),
        _integer("int64", "int", 64, 63),
        _integer("uint8", "uint", 8, 8),
        _integer("bool", "bool", 8, 1),
    )
}


def dtype(name: str) -> DType:
    """The format of that name; ValueError names the known ones."""
    if name not in DTYPES:
        raise ValueError(f"unknown dtype {name!r}: known are {', '.join(DTYPES)}")
    return DTYPES[name]


# ---------------------------------------------------------------- conversions


def to_bits(values: ArrayLike, d: DType) -> Bits:
    """The bits of `values` (float64, or integers for integer formats), rounded once.

    Floats round to nearest, ties to even, and overflow to infinity; every NaN becomes `nan_bits`. Integers round to
    nearest even and saturate, NaN becomes 0. For bool anything but zero (NaN too) is 1.
    """
    if not d.is_float:
        return _integer_bits(np.asarray(values), d)
    x = np.asarray(values, dtype=np.float64)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        bits = bfloat16_bits(x) if d.name == "bfloat16" else np.asarray(x.astype(f"f{d.bits // 8}")).view(d.unsigned)
    nan = np.isnan(x)
    return np.where(nan, d.unsigned.type(d.nan_bits), bits) if nan.any() else bits


# Operands as 0-d arrays: to convert Python numbers at each call would cost as much as the work on a small array.
_EXPONENT = np.array(0x7FF << 52, dtype=np.uint64)
_LOWEST = np.array(897 << 52, dtype=np.uint64)
_HIGHEST = np.array((1023 + 128) << 52, dtype=np.uint64)
_ANCHOR = np.array((45 << 52) | (1 << 51), dtype=np.uint64)
_SIXTEEN = np.array(16, dtype=np.uint32)


def bfloat16_bits(x: Doubles) -> Bits:
    """RNE of doubles to bfloat16 in one rounding, where going through float32 would take two. NaNs stay as they are.

    1.5 * 2^45 times x's power of two, added and subtracted, makes the double's own adder round at bfloat16's last
    place; the power is at least that of the smallest normal value, below which the spacing stays the same.
    """
    powers = np.minimum(np.maximum(x.view(np.uint64) & _EXPONENT, _LOWEST), _HIGHEST)
    anchor = (powers + _ANCHOR).view(np.float64)
    rounded = np.copysign((x + anchor) - anchor, x).astype(np.float32)
    return np.asarray((rounded.view(np.uint32) >> _SIXTEEN).astype(np.uint16))


def _integer_bits(values: NDArray[Any], d: DType) -> Bits:
    if d.kind == "bool":
        return np.asarray(values != 0).astype(np.uint8)
    low, high = -d.sign_mask, d.largest_bits
    if values.dtype.kind in "iub":
        return np.asarray(np.clip(values.astype(np.int64), low, high)).astype(d.unsigned)
    x = np.nan_to_num(np.rint(np.asarray(values, dtype=np.float64)), nan=0.0)
    inside = np.clip(x, float(low), np.nextafter(float(high) + 1.0, 0.0)).astype(np.int64)
    return np.where(x >= float(high), np.int64(high), inside).astype(d.unsigned)


def from_bits(bits: ArrayLike, d: DType) -> NDArray[Any]:
    """The values of bits, exactly: float64 for floats, int64 for integers and bool."""
    w = np.asarray(bits, dtype=d.unsigned)
    if d.kind == "int":
        return w.view(f"i{d.bits // 8}").astype(np.int64)
    if not d.is_float:
        return w.astype(np.int64)
    with np.errstate(invalid="ignore"):  # a signalling NaN says so when it is widened
        if d.name == "bfloat16":
            return (w.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
        return w.view(f"f{d.bits // 8}").astype(np.float64)


# ---------------------------------------------------------------- units in the last place


def ulp(x: ArrayLike, d: DType) -> Doubles:
    """Goldberg's unit in the last place of the format at |x|: the spacing of its values in the binade that holds |x|.

    Never below the smallest subnormal (also at 0), never above the spacing of the largest binade (also at infinity);
    NaN at NaN; 1 everywhere for integers. Goldberg, What Every Computer Scientist Should Know, ACM CSUR 23(1), 1991.
    """
    values = np.asarray(x, dtype=np.float64)
    if not d.is_float:
        return np.ones_like(values)
    exponents = np.frexp(values)[1].astype(np.int64) - 1
    exponents = np.where(np.isinf(values), d.bias, exponents)
    exponents = np.where(values == 0, 1 - d.bias, exponents)
    steps = np.ldexp(1.0, np.clip(exponents, 1 - d.bias, d.bias) - d.mantissa)
    return np.where(np.isnan(values), np.nan, steps)


@cache
def overflow_threshold(d: DType) -> float:
    """The least magnitude that rounds to infinity: half a unit in the last place beyond the largest finite value."""
    return d.largest + float(ulp(d.largest, d)) / 2


# ---------------------------------------------------------------- order


def ordinal(bits: ArrayLike, d: DType) -> Longs:
    """The rank of each pattern in the order of values, 1 apart for neighbours; both zeros are 0, NaN is past infinity.

    For integers it is the value. (`inf_bits` is the ordinal of +inf.)
    """
    if not d.is_float:
        return np.asarray(from_bits(bits, d), dtype=np.int64)
    w = np.asarray(bits, dtype=d.unsigned)
    magnitude = (w & d.unsigned.type(d.sign_mask - 1)).astype(np.int64)
    return np.asarray(np.where(w >= d.unsigned.type(d.sign_mask), -magnitude, magnitude), dtype=np.int64)


def from_ordinal(ordinals: ArrayLike, d: DType) -> Bits:
    """The bits at these ordinals; 0 becomes +0. Beyond the infinities (or an integer's range) it stays there."""
    o = np.asarray(ordinals, dtype=np.int64)
    low, high = (-d.inf_bits, d.inf_bits) if d.is_float else (-d.sign_mask, d.largest_bits)
    o = np.clip(o, low, high)
    if not d.is_float:
        return o.astype(d.unsigned)
    signs = (o < 0).astype(d.unsigned) * d.unsigned.type(d.sign_mask)
    return np.asarray(np.abs(o).astype(d.unsigned) | signs)


def neighbours(pattern: int, n: int, d: DType) -> list[int]:
    """The bits from n steps below to n steps above `pattern`, in order, itself included; none past an infinity."""
    centre = int(ordinal(pattern, d))
    low, high = (-d.inf_bits, d.inf_bits) if d.is_float else (-d.sign_mask, d.largest_bits)
    places = range(max(centre - n, low), min(centre + n, high) + 1)
    return [pattern if o == centre else int(from_ordinal(o, d)) for o in places]


# ---------------------------------------------------------------- size of a value


def _bit_length(x: NDArray[np.uint64]) -> Longs:
    """Bits needed by each value; in two halves, because a double holds 53 bits only."""
    high, low = x >> np.uint64(32), x & np.uint64(0xFFFF_FFFF)
    lengths = np.where(high > 0, 32 + np.frexp(high.astype(np.float64))[1], np.frexp(low.astype(np.float64))[1])
    return lengths.astype(np.int64)


def _significand(bits: ArrayLike, d: DType) -> NDArray[np.uint64]:
    """The integer significand: hidden bit and fraction of a float, magnitude of an integer."""
    if not d.is_float:
        values = np.asarray(from_bits(bits, d), dtype=np.int64)
        return np.abs(values).view(np.uint64)  # |-2^63| wraps to itself, which as unsigned is right
    magnitude = np.asarray(bits, dtype=d.unsigned).astype(np.uint64) & np.uint64(d.sign_mask - 1)
    fraction = magnitude & np.uint64((1 << d.mantissa) - 1)
    return np.where(magnitude >> np.uint64(d.mantissa) > 0, fraction | np.uint64(1 << d.mantissa), fraction)


def _nonfinite(bits: ArrayLike, d: DType) -> NDArray[np.bool_]:
    w = np.asarray(bits, dtype=d.unsigned)
    if not d.is_float:
        return np.zeros(w.shape, dtype=np.bool_)
    return np.asarray((w & d.unsigned.type(d.sign_mask - 1)) >= d.unsigned.type(d.inf_bits))


def significant_bits(bits: ArrayLike, d: DType) -> Longs:
    """Bits from the first to the last one bit of each value, the hidden bit included; 0 for zero.

    Infinities and NaN count as mantissa + 2, so that they sort after every finite value.
    """
    x = _significand(bits, d)
    lowest = x & (~x + np.uint64(1))
    counts = np.where(x == 0, 0, _bit_length(x) - _bit_length(lowest) + 1)
    return np.where(_nonfinite(bits, d), d.mantissa + 2, counts)


def exponent(bits: ArrayLike, d: DType) -> Longs:
    """floor(log2 |x|) of each value; for zero one below the smallest, for inf and NaN one above the largest."""
    x = _significand(bits, d)
    if not d.is_float:
        return _bit_length(x) - 1
    fields = (np.asarray(bits, dtype=d.unsigned).astype(np.uint64) & np.uint64(d.sign_mask - 1)) >> np.uint64(
        d.mantissa
    )
    scale = np.maximum(fields.astype(np.int64), 1) - d.bias - d.mantissa
    return np.where(_nonfinite(bits, d), d.bias + 1, scale + _bit_length(x) - 1)


# ---------------------------------------------------------------- spelling


def decimal(pattern: int, d: DType) -> str:
    """The shortest decimal that `to_bits(float(text))` reads back as this very pattern (NaN: as the canonical NaN)."""
    value = from_bits(pattern, d).item()
    if not d.is_float:
        return str(int(value))
    if d.name == "float64" or not np.isfinite(value) or value == 0:
        return repr(value)
    for text in _decimals(value, _shortest_digits(value, d)):
        if int(to_bits(float(text), d)) == int(pattern):
            return repr(float(text))
    raise AssertionError("17 digits always read back")  # pragma: no cover


def _shortest_digits(value: float, d: DType) -> int:
    """The digits of the shortest decimal of a value, where numpy has its dtype and finds them sooner; 1 elsewhere."""
    if d.name not in ("float32", "float16"):
        return 1
    number = np.float32(value) if d.name == "float32" else np.float16(value)
    return len(np.format_float_scientific(number, trim="-").partition("e")[0].strip("-").replace(".", ""))


def _decimals(value: float, fewest: int) -> Iterator[Decimal]:
    """Decimals near value, fewest digits first. Below a power of two the nearest may miss where its neighbour fits."""
    exact = Decimal(value)
    for digits in range(fewest, 18):
        for rounding in (ROUND_HALF_EVEN, ROUND_FLOOR, ROUND_CEILING):
            yield Context(prec=digits, rounding=rounding).create_decimal(exact)


def hex_bits(pattern: int, d: DType) -> str:
    """The pattern in hexadecimal, fixed width: 0x3f80 for 1 in bfloat16."""
    return f"0x{int(pattern):0{d.bits // 4}x}"
