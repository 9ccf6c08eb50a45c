"""Defines the operations that recipes need of an array library; each is exact, so that numpy and torch agree."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import lru_cache

import numpy as np

from fuzz.model.dtypes import DTYPES, DType, bfloat16_bits
from fuzz.model.recipes.counter_rng import LANES, MX3, SHIFTS, Array


class Namespace(ABC):
    """Integers are int64 and wrap; reals are float64 and used for single exact or correctly rounded steps only."""

    block: int
    """At most so many elements are made at a time, so that they stay in the processor's cache."""

    @abstractmethod
    def arange(self, start: int, stop: int) -> Array:
        """int64 start .. stop - 1, one axis."""

    @abstractmethod
    def table(self, values: tuple[int, ...]) -> Array:
        """These integers as an array; the same object each time, not to be changed."""

    @abstractmethod
    def array(self, values: np.ndarray) -> Array:
        """These int64 as an array, which may be the same one."""

    @abstractmethod
    def lanes(self, count: int) -> Array:
        """The first `count` of counter.LANES, of shape (count, 1, 1)."""

    @abstractmethod
    def shr(self, x: Array, n: int) -> Array:
        """Logical shift to the right of 64-bit patterns, 0 < n < 64."""

    @abstractmethod
    def mix(self, x: Array) -> Array:
        """counter_rng.mix of every element, in place."""

    @abstractmethod
    def real(self, x: Array) -> Array:
        """float64 of int64, rounded to nearest even beyond 2^53."""

    @abstractmethod
    def where(self, condition: Array, yes: Array, no: Array) -> Array: ...

    @abstractmethod
    def clip(self, x: Array, low: int, high: int) -> Array: ...

    @abstractmethod
    def round(self, x: Array, d: DType) -> Array:
        """int64 patterns of finite float64 values in the float format d: nearest even, largest finite at most."""

    @abstractmethod
    def empty(self, rows: int, columns: int, d: DType) -> Array:
        """Room for patterns of d. Assigning int64 patterns to a part of it keeps their low bits."""


class NumpyNamespace(Namespace):
    """Recipes by numpy."""

    block = 1 << 14

    def arange(self, start: int, stop: int) -> Array:
        return np.arange(start, stop)

    def table(self, values: tuple[int, ...]) -> Array:
        return _table(values)

    def array(self, values: np.ndarray) -> Array:
        return values

    def lanes(self, count: int) -> Array:
        return _LANES[:count]

    def shr(self, x: Array, n: int) -> Array:
        return (x.view(np.uint64) >> n).view(np.int64)

    def mix(self, x: Array) -> Array:
        y = x.view(np.uint64)
        for shift in _SHIFTS[:3]:
            y ^= y >> shift
            y *= _MX3
        y ^= y >> _SHIFTS[3]
        return x

    def real(self, x: Array) -> Array:
        return x.astype(np.float64)

    def where(self, condition: Array, yes: Array, no: Array) -> Array:
        return np.where(condition, yes, no)

    def clip(self, x: Array, low: int, high: int) -> Array:
        return np.minimum(np.maximum(x, low), high)

    def round(self, x: Array, d: DType) -> Array:
        if d.bits == 64:
            return x.view(np.int64)
        low, high, native = _ROUNDING[d.name]
        inside = np.minimum(np.maximum(x, low), high)
        bits = bfloat16_bits(inside) if native is None else inside.astype(native).view(d.unsigned)
        return bits.astype(np.int64)

    def empty(self, rows: int, columns: int, d: DType) -> Array:
        return np.empty((rows, columns), dtype=d.unsigned)


@lru_cache(maxsize=256)
def _table(values: tuple[int, ...]) -> Array:
    return np.array(values, dtype=np.int64)


# 0-d arrays are the cheapest operands that numpy takes; Python integers are converted at each call.
_SHIFTS = tuple(np.array(shift, dtype=np.uint64) for shift in SHIFTS)
_MX3 = np.array(MX3, dtype=np.uint64)
_ROUNDING = {
    d.name: (np.array(-d.largest), np.array(d.largest), None if d.name == "bfloat16" else np.dtype(f"f{d.bits // 8}"))
    for d in DTYPES.values()
    if d.is_float
}
_LANES = np.array(LANES, dtype=np.int64).reshape(-1, 1, 1)

NUMPY = NumpyNamespace()
