"""Counts what kernels do, in one array of saturating bytes for all kernels of this process, and derives features.

A feature is a number for one outcome of one branch, loop, mask or select together with how often it occurred: 1, 2, 3,
4 to 7, 8 to 15, 16 to 31, 32 to 127 or more times. It is the same in every process. All specialisations of a kernel
share their features.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy

from fuzz.backends.cpu.codegen.metadata import CounterSite

CAPACITY = 1 << 24
CLASSES = 8
"""Classes of how often an outcome occurred."""
_CLASS = numpy.searchsorted([2, 3, 4, 8, 16, 32, 128], numpy.arange(256), side="right").tolist()


@dataclass(frozen=True)
class Counted:
    """What one byte counts: how often a branch, loop, select or mask (`kind`) at a line of a kernel had `outcome`."""

    kernel: str
    file: str
    line: int
    kind: str
    outcome: str


class Counters:
    """`values()[i]` counts `sites[i]`. Indexes never change; those of a kernel are added when it is first loaded."""

    def __init__(self) -> None:
        # Reserved at once, so that addresses stay; untouched pages take no memory. A forked process counts on its own.
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self.memory = numpy.frombuffer(mmap.mmap(-1, CAPACITY, flags=private), dtype=numpy.uint8)
        self.sites: list[Counted] = []
        self.first_index: dict[str, int] = {}
        self.lock = threading.Lock()

    def values(self) -> numpy.ndarray:
        """The counters in use, uint8, from 0 to 255. Kernels go on changing this memory."""
        return self.memory[: len(self.sites)]

    def clear(self) -> None:
        self.values()[:] = 0

    def allocate(self, variant: str, kernel: str, counter_sites: Sequence[CounterSite]) -> int:
        """The address of the first counter of a compiled kernel, which is identified by the hash of its variant."""
        with self.lock:
            if variant not in self.first_index:
                self.first_index[variant] = len(self.sites)
                self.sites += [
                    Counted(kernel, site.file, site.line, site.kind, outcome)
                    for site in counter_sites
                    for outcome in site.outcomes
                ]
                if len(self.sites) > CAPACITY:
                    raise MemoryError(f"more than {CAPACITY} counters")
            address: int = self.memory.ctypes.data
            return address + self.first_index[variant]


counters = Counters()


def features(counted: bytes, sites: Sequence[Counted], numbers: list[int]) -> set[int]:
    """The features of one run whose counters had the values `counted`. `numbers` caches `feature_number` by site."""
    numbers += [feature_number(site) for site in sites[len(numbers) :]]
    values = numpy.frombuffer(counted, dtype=numpy.uint8)
    indexes = numpy.flatnonzero(values)
    pairs = zip(indexes.tolist(), values[indexes].tolist(), strict=True)
    return {numbers[index] + _CLASS[value] for index, value in pairs}


def feature_number(site: Counted) -> int:
    """The number of a site's first feature; the others follow it."""
    return CLASSES * crc32(f"{site.kernel}:{site.line}:{site.kind}:{site.outcome}".encode())
