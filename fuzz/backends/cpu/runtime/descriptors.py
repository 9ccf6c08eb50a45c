"""Expands tensor descriptors that are arguments to what Triton's rewrite of them to pointers expects instead."""

from __future__ import annotations

import re
from collections.abc import Iterator

from triton.tools.tensor_descriptor import TensorDescriptor

# Since Triton 3.7.
ROUNDS = hasattr(TensorDescriptor, "round_f32_to_tf32")
KIND = re.compile(r"tensordesc<(\w+)\[([^\]]*)\]")


def expand_descriptor(kind: str, expression: str) -> Iterator[tuple[str, str]]:
    """(type, Python expression) for `tensordesc<fp32[16, 16]>`: base, shape, strides, whether padding is NaN, whether
    loads round to tf32, and (as the front end wants them once more) shape and strides."""
    match = KIND.match(kind)
    if match is None:
        raise TypeError(f"unknown kind of tensor descriptor: {kind}")
    axes = range(match[2].count(",") + 1)
    yield f"*{match[1]}", f"{expression}.base"
    yield from (("i64", f"{expression}.{name}[{axis}]") for name in ("shape", "strides") for axis in axes)
    yield "i1", f"{expression}.padding == 'nan'"
    if ROUNDS:
        yield "i1", f"{expression}.round_f32_to_tf32"
    yield from (("i32", f"{expression}.shape[{axis}]") for axis in axes)
    yield from (("i64", f"{expression}.strides[{axis}]") for axis in axes)
