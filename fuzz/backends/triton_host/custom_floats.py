"""Converts between Triton's `fp8e4b15`, which its front end keeps as a byte, and wider floats.

The format is that of the upper byte of a float16 with four bits of the exponent: bias 15, no infinity and no NaN.
"""

from __future__ import annotations

from typing import Any

from triton.language import core

LARGEST_BITS = 0x3F00
"""The bits of 1.75, the largest value that a conversion gives, as float16."""


@core.builtin  # type: ignore[untyped-decorator]
def convert_fp8e4b15(value: Any, target: Any, fp_downcast_rounding: Any = None, _semantic: Any = None) -> Any:
    """What Triton's front end asks of a backend for conversions from and to that type."""
    to_byte = target.scalar.is_fp8e4b15()
    return narrow(value, _semantic) if to_byte else widen(value, target, _semantic)


def widen(value: Any, target: Any, semantic: Any) -> Any:
    bits = value.to(core.uint8, bitcast=True, _semantic=semantic).to(core.uint16, _semantic=semantic)
    sign = bits.__and__(0x80, _semantic=semantic).__lshift__(8, _semantic=semantic)
    rest = bits.__and__(0x7F, _semantic=semantic).__lshift__(7, _semantic=semantic)
    half = sign.__or__(rest, _semantic=semantic).to(core.float16, bitcast=True, _semantic=semantic)
    return half.to(target.scalar, _semantic=semantic)


def narrow(value: Any, semantic: Any) -> Any:
    """To nearest, ties away from zero, saturating; a wider float becomes float16 towards zero first."""
    if not value.type.scalar.is_fp16():
        value = value.to(core.float16, fp_downcast_rounding="rtz", _semantic=semantic)
    bits = value.to(core.uint16, bitcast=True, _semantic=semantic)
    rest = core.minimum(bits.__and__(0x7FFF, _semantic=semantic), LARGEST_BITS, _semantic=semantic)
    rest = rest.__add__(0x40, _semantic=semantic).__rshift__(7, _semantic=semantic)
    sign = bits.__and__(0x8000, _semantic=semantic).__rshift__(8, _semantic=semantic)
    byte = sign.__or__(rest, _semantic=semantic).to(core.uint8, _semantic=semantic)
    return byte.to(core.float8e4b15, bitcast=True, _semantic=semantic)
