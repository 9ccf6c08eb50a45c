"""One kernel compiled against one evaluated: memory with random contents, and where the two differ."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
from triton.errors import TritonError

from fuzz.backends.cpu.errors import UnsupportedOperation

from .build import Compiled
from .dtypes import DTYPES, Array, same_bits, to_memory
from .evaluate import Memory, evaluate
from .tree import Buffer, Kernel

FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.0, 3.0, -7.0, 1e-3, 65504.0, 1e30, 3e38, 1e300, 1e-6, 1e-40, -1e-45, 5e-324]
FLOATS += [
    float("inf"),
    float("-inf"),
    float("nan"),
    0.1,
    -0.3,
    1234.5678,
    2.5,
    127.5,
    128.0,
    255.0,
    32768.0,
    -(2.0**31),
]
SHIFTS = [0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 33, 63, 64, -1, -2]

SAME, DIFFERS, REFUSED, INVALID, CRASHED = "same", "differs", "refused", "invalid", "crashed"


@dataclass
class Outcome:
    """`what`: the same bits; other bits, or a failure of the compiled kernel; refused by the backend, or by Triton's
    front end; the end of the process. `detail` says more."""

    what: str
    detail: str = ""


def contents(buffer: Buffer, random: np.random.Generator) -> Array:
    """Random memory: special values, values near one, and random bits."""
    dtype, count = DTYPES[buffer.dtype], buffer.count
    if dtype.kind == "b":
        return random.integers(0, 2, count).astype(np.uint8)
    word = f"u{dtype.bits // 8}"
    bits = random.integers(0, 2**64, count, dtype=np.uint64).astype(word).view(dtype.memory)
    special: Array
    near: Array
    if dtype.kind == "f":
        special = random.choice(FLOATS, count)
        near = random.normal(size=count) * 4
    else:
        edges = [dtype.low, dtype.low + 1, dtype.high, dtype.high - 1, *(s for s in SHIFTS if s >= dtype.low)]
        special = random.choice(np.array([e & (1 << dtype.bits) - 1 for e in edges], np.uint64), count)
        near = random.integers(max(dtype.low, -20), 21, count)
    with np.errstate(all="ignore"):
        kind = random.integers(0, 4, count)
        special, near = (held(buffer.dtype, values) for values in (special, near))
    return np.where(kind == 0, bits, np.where(kind == 1, special, near)).astype(dtype.memory)


def held(name: str, values: Array) -> Array:
    if DTYPES[name].kind == "f":
        return to_memory(name, values.astype(DTYPES[name].held))
    return values.astype(DTYPES[name].memory)


def memory_of(kernel: Kernel) -> Memory:
    """The buffers before the launch; the same for the same seed and buffer, whatever else the kernel has."""
    return {
        buffer.name: contents(buffer, np.random.default_rng((kernel.seed, zlib.crc32(buffer.name.encode()))))
        for buffer in kernel.buffers
    }


def check(item: Compiled) -> Outcome:
    """Run a kernel both ways."""
    if item.refused is not None:
        return refusal(item.refused)
    got, want = memory_of(item.kernel), memory_of(item.kernel)
    evaluate(item.kernel, want)
    try:
        item.run(got)
    except Exception as failure:
        return Outcome(DIFFERS, f"{type(failure).__name__}: {failure}")
    for buffer in item.kernel.buffers:
        wrong = np.flatnonzero(~same_bits(buffer.dtype, got[buffer.name], want[buffer.name]))
        if len(wrong):
            at = int(wrong[0])
            pair = f"{got[buffer.name][at]!r} by the backend, {want[buffer.name][at]!r} by numpy"
            return Outcome(DIFFERS, f"{len(wrong)} of {buffer.count} in {buffer.name}, first at {at}: {pair}")
    return Outcome(SAME)


def refusal(error: Exception) -> Outcome:
    """Who refused: the backend by name, Triton's front end, or nobody, and then it is a fault of the backend."""
    by = REFUSED if isinstance(error, UnsupportedOperation) else INVALID if isinstance(error, TritonError) else DIFFERS
    return Outcome(by, f"{type(error).__name__}: {error}")
