"""Measures which kinds of cases were visited. A cell is one dtype, layout, class of dims and region of exponents.

Each tensor of a case visits the cells of its dtype and layout, the case's class of dims, and every region in which one
of its values lies. How many cells a target has is counted from what it declares; not every one can be reached, since
an expanded layout of a scalar, say, does not exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

import numpy as np

from fuzz.model.case import Argument, Case
from fuzz.model.dtypes import DType, exponent, significant_bits
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.edit import tensors_of
from fuzz.model.layout import KINDS
from fuzz.model.recipes import bits_of
from fuzz.target.spec import Target

MAX_SAMPLED = 256
"""Values of a tensor that are looked at, at most."""
SMALL, LARGE = 1 << 8, 1 << 16
"""Elements up to which a case is small, and beyond which it is large."""
ALIGNMENTS = ("power", "beside", "other")
SIZES = ("small", "middle", "large")
FLOATS = ("zero", "subnormal", "low", "middle", "high", "nonfinite")
"""Regions of a float: low and high are beyond the square roots of the least and the largest normal value."""
INTEGERS = ("zero", "low", "high")
"""Regions of an integer: high from half of its bits on."""


def cells(case: Case) -> set[str]:
    """The cells that a case visits, each as ``dtype layout dims region``."""
    visited: set[str] = set()
    for index, _, value in tensors_of(case):
        kind = f"{value.dtype} {value.layout.kind} {dims_class(case)}"
        visited.update(f"{kind} {region}" for region in regions(value, case.calls[index].dims))
    return visited


def possible(target: Target) -> int:
    """How many cells a target's declaration has."""
    dtypes = {dtype for value in target.tensors.values() for dtype in value.dtypes}
    regional = sum(len(FLOATS if named_dtype(dtype).is_float else INTEGERS) for dtype in dtypes)
    return regional * len(KINDS) * len(ALIGNMENTS) * len(SIZES)


def dims_class(case: Case) -> str:
    """Its size, and whether its largest dim is a power of two or stands beside one."""
    largest, elements = max(case.last.dims.values(), default=1), case.elements()
    size = SIZES[(elements > SMALL) + (elements > LARGE)]
    near = any(_is_power(largest + step) for step in (-1, 1))
    return f"{size}-{ALIGNMENTS[0] if _is_power(largest) else ALIGNMENTS[1] if near else ALIGNMENTS[2]}"


def _is_power(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


def regions(value: Argument, dims: Mapping[str, int]) -> Iterator[str]:
    """The regions of a tensor's values; of a large tensor, those of a smaller one that the same recipe makes."""
    shape = value.stored_shape(dims)
    count = int(np.prod(shape, dtype=np.float64))
    if not count:
        return
    kind = named_dtype(value.dtype)
    try:
        bits = bits_of(value.values, shape if count <= MAX_SAMPLED else (MAX_SAMPLED,), kind)
    except ValueError:
        # Values that are listed or patched belong to their own shape.
        bits = value.bits(dims)
    yield from sorted(_regions(np.asarray(bits).reshape(-1)[:MAX_SAMPLED].tobytes(), kind))


@lru_cache(maxsize=1024)
def _regions(data: bytes, kind: DType) -> frozenset[str]:
    bits = np.frombuffer(data, dtype=kind.unsigned)
    present = significant_bits(bits, kind) > 0
    zero = {"zero"} if not present.all() else set()
    powers = exponent(bits[present], kind)
    if not kind.is_float:
        half = kind.mantissa // 2
        return frozenset(zero | {"high" if power >= half else "low" for power in np.unique(powers).tolist()})
    return frozenset(zero | {_region(power, kind.bias) for power in np.unique(powers).tolist()})


def _region(power: int, bias: int) -> str:
    if power > bias:
        return "nonfinite"
    if power < 1 - bias:
        return "subnormal"
    return "low" if power < -bias // 2 else "high" if power > bias // 2 else "middle"
