"""Writes the exact inputs of calls as expressions of a stand-alone script."""

from __future__ import annotations

import math
from typing import Any

from fuzz.model.case import Argument, Call, Scalar
from fuzz.model.dims import resolve
from fuzz.model.layout import CONTIGUOUS
from fuzz.target.spec import Target


def call_texts(call: Call, target: Target) -> dict[str, Any]:
    """Expressions of a call's arguments and cotangents by name, and its options and sizes as keywords."""
    scalars = target.scalars(call)
    return {
        "arguments": {name: tensor_text(value, call) for name, value in call.arguments.items()},
        "cotangents": {name: tensor_text(value, call) for name, value in call.cotangents.items()},
        "options": ", ".join(f"{name}={scalar_text(value)}" for name, value in scalars.items()),
    }


def scalar_text(value: Scalar) -> str:
    """An expression for an option; infinities and NaN have no literal."""
    finite = not isinstance(value, float) or math.isfinite(value)
    return repr(value) if finite else f"float({str(value)!r})"


def tensor_text(value: Argument, call: Call) -> str:
    shape = resolve(value.shape, call.dims)
    words = value.bits(call.dims).reshape(-1)
    text = '"' + " ".join(f"{int(word):x}" for word in words) + '"'
    strides = value.layout.strides(shape)
    offset = f", {value.layout.offset}" if value.layout != CONTIGUOUS and value.layout.offset else ""
    return f"tensor({text}, torch.{value.dtype}, {shape}, {strides}{offset})"
