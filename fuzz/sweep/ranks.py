"""Orders the bit patterns of a format by value, and samples them evenly by sign and exponent.

A rank is a pattern's position in the order negative NaN, -inf, .. -0, 0, .. inf, NaN. A stratum is one sign and
exponent; strata are numbered in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fuzz.model.dtypes import Bits, DType


def bits_at(ranks: Bits, kind: DType) -> Bits:
    """The bits at these ranks."""
    half, top = 1 << (kind.bits - 1), (1 << kind.bits) - 1
    return np.where(ranks < half, top - ranks, ranks - np.uint64(half)).astype(kind.unsigned)


def rank_of(bits: Bits, kind: DType) -> Bits:
    """The ranks of bits: the inverse of `bits_at`."""
    half, top = np.uint64(1 << (kind.bits - 1)), np.uint64((1 << kind.bits) - 1)
    wide = bits.astype(np.uint64)
    return np.where(wide >= half, top - wide, wide + half)


def count_strata(kind: DType) -> int:
    return 2 << kind.exponent_bits


def sample_strata(strata: Sequence[int], count: int, kind: DType, key: tuple[int, int]) -> Bits:
    """`count` bits of each stratum in the order of values, one in each equal part of it; the same for a key."""
    size, parts = 1 << kind.mantissa, min(count, 1 << kind.mantissa)
    noise = np.random.Generator(np.random.Philox(key=list(key))).random((len(strata), parts))
    fractions = ((np.arange(parts) + noise) * (size / parts)).astype(np.uint64)
    starts = np.asarray(strata, dtype=np.uint64)[:, None] * np.uint64(size)
    return bits_at((np.minimum(fractions, size - 1) + starts).reshape(-1), kind)


def sample_all_strata(count: int, kind: DType, seed: int) -> Bits:
    """`count` bits of every stratum, in the order of values."""
    return sample_strata(range(count_strata(kind)), count, kind, (seed, count_strata(kind)))


def sample_with_edges(stratum: int, count: int, kind: DType, edges: tuple[int, ...]) -> Bits:
    """A sample of a stratum with its ends and its share of `edges`, which are ranks."""
    size = 1 << kind.mantissa
    start = stratum * size
    inside = [rank for rank in edges if start <= rank < start + size]
    sample = sample_strata([stratum], count, kind, (0, stratum))
    ends = np.array([start, start + 1, start + size - 2, start + size - 1, *inside], dtype=np.uint64)
    return bits_at(np.unique(np.concatenate([rank_of(sample, kind), ends])), kind)
