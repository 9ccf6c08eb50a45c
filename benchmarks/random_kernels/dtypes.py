"""The dtypes of random kernels: their names in Triton and how numpy holds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = Any


@dataclass(frozen=True, slots=True)
class DType:
    """`kind` is b (one bit), i, u or f. The evaluator holds elements as `held` (bfloat16 as float32), memory as
    `memory`. A float has `precision` significant bits and exponents from `least` to `most`."""

    name: str
    kind: str
    bits: int
    signature: str
    held: Any
    memory: Any
    precision: int = 0
    least: int = 0
    most: int = 0

    @property
    def low(self) -> int:
        return -(1 << (self.bits - 1)) if self.kind == "i" else 0

    @property
    def high(self) -> int:
        return (1 << (self.bits - (self.kind == "i"))) - 1


def integer(bits: int, unsigned: bool) -> DType:
    kind = "u" if unsigned else "i"
    numpy = np.dtype(f"{kind}{bits // 8}").type
    return DType(f"{'u' if unsigned else ''}int{bits}", kind, bits, f"{kind}{bits}", numpy, numpy)


DTYPES = {
    dtype.name: dtype
    for dtype in (
        DType("int1", "b", 1, "i1", np.bool_, np.uint8),
        *(integer(bits, unsigned) for bits in (8, 16, 32, 64) for unsigned in (False, True)),
        DType("float16", "f", 16, "fp16", np.float16, np.float16, 11, -14, 15),
        DType("bfloat16", "f", 16, "bf16", np.float32, np.uint16, 8, -126, 127),
        DType("float32", "f", 32, "fp32", np.float32, np.float32, 24, -126, 127),
        DType("float64", "f", 64, "fp64", np.float64, np.float64, 53, -1022, 1023),
    )
}
INTEGERS = [name for name, dtype in DTYPES.items() if dtype.kind in "iu"]
FLOATS = [name for name, dtype in DTYPES.items() if dtype.kind == "f"]


def to_memory(name: str, values: Array) -> Array:
    """What a store of these held values writes."""
    if name == "bfloat16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(DTYPES[name].memory)


def from_memory(name: str, words: Array) -> Array:
    """What a load of these words gives."""
    if name == "bfloat16":
        return (words.astype(np.uint32) << 16).view(np.float32)
    return words != 0 if name == "int1" else words


def same_bits(name: str, got: Array, want: Array) -> Array:
    """Where two arrays of memory agree: in every bit, but any NaN is any other NaN."""
    if DTYPES[name].kind != "f":
        return got == want
    word = f"u{got.dtype.itemsize}"
    nan = np.isnan(from_memory(name, got)) & np.isnan(from_memory(name, want))
    return (got.view(word) == want.view(word)) | nan
