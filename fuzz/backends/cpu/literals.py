"""Constants of TTIR -> C literals, exactly."""

from __future__ import annotations

import math
import struct

UNPACK = {"f16": ("<H", "<e"), "f32": ("<I", "<f"), "f64": ("<Q", "<d")}


def literal(text: str, element: str) -> str:
    """The C literal of a constant as MLIR prints it: decimal, or hexadecimal bits of a float."""
    if text in ("true", "false"):
        return "1" if text == "true" else "0"
    if element.startswith(("f", "bf")):
        return float_literal(float_value(text, element), element)
    value = int(text, 0)
    if element == "i64":
        return "INT64_MIN" if value == -(2**63) else f"(i64){value}" if abs(value) < 2**31 else f"{value}LL"
    return "INT32_MIN" if value == -(2**31) else str(value)


def float_value(text: str, element: str) -> float:
    if not text.startswith("0x"):
        # MLIR prints as many digits as the type needs: the value is the nearest one of the type.
        return nearest(float(text), element)
    bits = int(text, 16)
    if element == "bf16":
        element, bits = "f32", bits << 16
    integer, real = UNPACK[element]
    return float(struct.unpack(real, struct.pack(integer, bits))[0])


def nearest(value: float, element: str) -> float:
    """A decimal rounded to a 16-bit type (C rounds the wider ones)."""
    if element == "f16":
        return float(struct.unpack("<e", struct.pack("<e", value))[0])
    if element != "bf16" or value == 0:
        return value
    step = math.ldexp(1.0, max(math.frexp(value)[1] - 8, -133))
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
