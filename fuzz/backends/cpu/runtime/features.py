"""Features: numbers for what kernels did, from the counters of the cpu backend, the same in every process.

A feature is one outcome of one branch, loop, mask or select, and how often it came out so: 1, 2, 3, 4 to 7, 8 to 15, 16
to 31, 32 to 127 or more times. Specialisations of one kernel share their features.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

if TYPE_CHECKING:
    from fuzz.backends.cpu.runtime.counters import Counted

CLASSES = 8
_CLASS = np.searchsorted([2, 3, 4, 8, 16, 32, 128], np.arange(256), side="right").tolist()


def features(counted: bytes, sites: Sequence[Counted], known: list[int]) -> set[int]:
    """The features of one run, whose counters were these. `known` keeps the numbers of sites from call to call."""
    known += [number(site) for site in sites[len(known) :]]
    values = np.frombuffer(counted, dtype=np.uint8)
    places = np.flatnonzero(values)
    return {known[place] + _CLASS[value] for place, value in zip(places.tolist(), values[places].tolist(), strict=True)}


def number(site: Counted) -> int:
    """The first of the numbers that a site's features have."""
    return CLASSES * crc32(f"{site.kernel}:{site.line}:{site.kind}:{site.outcome}".encode())
