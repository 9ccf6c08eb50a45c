"""Order: in which order the programs of a launch run."""

from __future__ import annotations

import functools

import numpy as np


@functools.lru_cache(maxsize=256)
def permutation(seed: int, programs: int) -> np.ndarray:
    """A seeded permutation; -1 is the reverse."""
    if seed == -1:
        return np.arange(programs - 1, -1, -1, dtype=np.int64)
    return np.random.default_rng(seed).permutation(programs).astype(np.int64)
