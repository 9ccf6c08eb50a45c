"""Gives a recipe its draws for one block of a tensor: rows (all axes but the last) by columns (the last axis).

The counter of an element is row * 2^32 + column, so an element's bits depend on its place and the seed only: lowering
the number of rows or columns leaves the others as they are, and any block can be array alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from fuzz.model.dtypes import DType
from fuzz.model.recipes import counter_rng
from fuzz.model.recipes.counter_rng import NORMAL_STEP, Array
from fuzz.model.recipes.namespace import NUMPY, Namespace

ROW_SHIFT = 32
_CACHED = 1 << 10


@dataclass(frozen=True)
class Span:
    """Rows top .. bottom - 1 and columns left .. right - 1 of a stack of tensors of so many rows and columns each."""

    rows: int
    columns: int
    top: int
    bottom: int
    left: int
    right: int


@dataclass
class Grid:
    """Draws for one span of a stack of tensors, one a seed; mostly there is one seed, and the stack is the tensor.

    Arrays are int64 of shape (rows, columns), (rows, 1) or (1, columns). Rows and counters start anew for each seed.
    """

    xp: Namespace
    dtype: DType
    params: Mapping[str, int | float]
    seeds: tuple[int, ...]
    salt: int
    span: Span

    def __getitem__(self, name: str) -> int:
        """An integer parameter."""
        return int(self.params[name])

    @cached_property
    def row(self) -> Array:
        return _rows(self.xp, self.span)

    @cached_property
    def column(self) -> Array:
        return self.xp.arange(self.span.left, self.span.right).reshape(1, -1)

    @cached_property
    def row_counter(self) -> Array:
        return self.row << ROW_SHIFT

    @cached_property
    def counter(self) -> Array:
        span = self.span
        if self.xp is NUMPY and (span.bottom - span.top) * (span.right - span.left) <= _CACHED:
            return _small_counter(span)
        return self.row_counter + self.column

    @cached_property
    def replica(self) -> Array:
        """The place in the stack of each row's tensor."""
        return self.xp.arange(self.span.top, self.span.bottom).reshape(-1, 1) // self.span.rows

    def key(self, stream: int) -> Array:
        """The key of a stream: an integer, or where there are many seeds, one for each row."""
        if len(self.seeds) == 1:
            return counter_rng.stream_key(self.seeds[0], self.salt, stream)
        return self.xp.array(self._keys(stream))[self.replica]

    def _keys(self, stream: int) -> np.ndarray:
        """counter_rng.stream_key of each of many seeds, int64."""
        start = counter_rng.signed(counter_rng.mix((self.salt << 8) + stream))
        keys: np.ndarray = NUMPY.mix(_words(self.seeds) ^ start)
        return keys

    def bits(self, stream: int = 0) -> Array:
        """64 random bits for each element; streams are independent."""
        return counter_rng.hash64(self.counter, self.key(stream), self.xp)

    def row_bits(self, stream: int = 0) -> Array:
        """64 random bits for each row, of shape (rows, 1)."""
        return counter_rng.hash64(self.row_counter, self.key(stream), self.xp)

    def pick(self, bound: int, stream: int, then: Callable[[int], int] = int) -> Array:
        """`then` of one random integer in [0, bound) for a whole tensor: an integer, or one for each row as `key`."""
        bound = max(bound, 1)
        if len(self.seeds) == 1:
            return then(counter_rng.mix(self.key(stream)) % bound)
        mixed = NUMPY.mix(self._keys(stream)).view(np.uint64)
        picks = [then(pick) for pick in (mixed % np.uint64(bound)).tolist()]
        return self.xp.array(np.array(picks, dtype=np.int64))[self.replica]

    def normal(self, at: Array, exponent: int, stream: int = 0) -> Array:
        """Nearly normal float64 of standard deviation 2^exponent, of the shape of the counters `at`."""
        integers = counter_rng.normal_integers(at, self.key(stream), self.xp)
        return self.xp.real(integers) * 2.0 ** (exponent + NORMAL_STEP)

    def round(self, x: Array) -> Array:
        """Patterns of float64 values in the tensor's float format, rounded once, never overflowing."""
        return self.xp.round(x, self.dtype)

    def whole(self, x: Array) -> Array:
        """Patterns of int64 values in the tensor's format; integer formats saturate, as floats do."""
        d = self.dtype
        if d.is_float:
            return self.round(self.xp.real(x))
        return self.xp.clip(x, -d.sign_mask, d.largest_bits)

    def fill(self, pattern: int) -> Array:
        """One pattern everywhere, as a (1, 1) array."""
        return self.xp.table((counter_rng.signed(pattern),)).reshape(1, 1)

    def fields(self, sign: Array, exponent: Array | int, fraction: Array) -> Array:
        """Float patterns from a sign bit, a biased exponent and a fraction."""
        return (sign << (self.dtype.bits - 1)) | (exponent << self.dtype.mantissa) | fraction


@lru_cache(maxsize=16)
def _words(seeds: tuple[int, ...]) -> np.ndarray:
    """Seeds as int64, kept: a plan's tensors and streams ask for the same ones again and again."""
    array = np.array([seed & counter_rng.ALL for seed in seeds], dtype=np.uint64).view(np.int64)
    array.flags.writeable = False
    return array


def _rows(xp: Namespace, span: Span) -> Array:
    rows = xp.arange(span.top, span.bottom).reshape(-1, 1)
    return rows if span.bottom <= span.rows else rows % span.rows


@lru_cache(maxsize=512)
def _small_counter(span: Span) -> Array:
    """Counters of a small span, kept: on the hot path tensors of the same few shapes come again and again."""
    array = (_rows(NUMPY, span) << ROW_SHIFT) + NUMPY.arange(span.left, span.right).reshape(1, -1)
    array.flags.writeable = False
    return array
