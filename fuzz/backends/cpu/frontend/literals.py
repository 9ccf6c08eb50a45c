"""Writes constants of TTIR as C literals, exactly."""

from __future__ import annotations

import math

from fuzz.backends.cpu.frontend.types import SIZES

# Bits of the fraction, and the exponent of the least normal number.
FORMATS = {"f16": (10, -14), "bf16": (7, -126), "f8E4M3FN": (3, -6), "f8E5M2": (2, -14), "f32": (23, -126)}
FORMATS |= {"f64": (52, -1022), "f8E4M3FNUZ": (3, -7), "f8E5M2FNUZ": (2, -15)}


def literal(text: str, element: str) -> str:
    """The C literal of a constant as MLIR prints it: decimal, or hexadecimal bits of a float."""
    if text in ("true", "false"):
        return "1" if text == "true" else "0"
    if element.startswith(("f", "bf")):
        return float_bits(int(text, 16), element) if text.startswith("0x") else decimal(float(text), element)
    value = int(text, 0)
    if element == "i64":
        return "INT64_MIN" if value == -(2**63) else f"(i64){value}" if abs(value) < 2**31 else f"{value}LL"
    return "INT32_MIN" if value == -(2**31) else str(value)


def decimal(value: float, element: str) -> str:
    """MLIR prints as many digits as the type needs: the value is the nearest one of the type."""
    return float_literal(nearest(value, element), element)


def float_bits(bits: int, element: str) -> str:
    """The literal of a float given by its bits, as MLIR prints NaN and infinities."""
    value = from_bits(bits, element)
    if math.isnan(value) and element in ("f32", "f64") and bits not in (0x7FC00000, 0x7FF8000000000000):
        return f"{element}_bits({bits:#x}u{'ll' if element == 'f64' else ''})"
    return float_literal(value, element)


def from_bits(bits: int, element: str) -> float:
    """The value of a float's bits."""
    fraction, least = FORMATS[element]
    width = 8 * SIZES[element]
    sign = -1.0 if bits >> (width - 1) else 1.0
    exponent, rest = (bits & ((1 << (width - 1)) - 1)) >> fraction, bits & ((1 << fraction) - 1)
    last = (1 << (width - 1 - fraction)) - 1
    if element.endswith("FNUZ"):
        # The only NaN has the bits of -0; there is no infinity.
        if bits == 0x80:
            return math.nan
        last = -1
    if exponent == last and element != "f8E4M3FN":
        return math.nan if rest else sign * math.inf
    if exponent == last and rest == (1 << fraction) - 1:
        return math.nan
    if exponent == 0:
        return sign * math.ldexp(rest, least - fraction)
    return sign * math.ldexp(rest + (1 << fraction), exponent - 1 + least - fraction)


def nearest(value: float, element: str) -> float:
    """A decimal rounded to a type that C lacks (C rounds the others)."""
    if element in ("f32", "f64") or value == 0:
        return value
    fraction, least = FORMATS[element]
    step = math.ldexp(1.0, max(math.frexp(value)[1] - 1, least) - fraction)
    return round(value / step) * step


def float_literal(value: float, element: str) -> str:
    suffix = "" if element == "f64" else "f"
    if math.isnan(value):
        return "(f64)NAN" if element == "f64" else "NAN"
    if math.isinf(value):
        infinity = f"__builtin_inf{suffix}()"
        return f"(-{infinity})" if value < 0 else infinity
    text = repr(value)
    # A short decimal reads better; hexadecimal is exact for the rest.
    exact = text if len(text) <= 8 and "e" not in text else value.hex()
    return f"({exact}{suffix})" if text.startswith("-") else f"{exact}{suffix}"
