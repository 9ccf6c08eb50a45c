"""Counters of all kernels of this process: one array of saturating bytes, and what each of them counts."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy

from fuzz.backends.cpu.codegen.sites import Counter

CAPACITY = 1 << 24


@dataclass(frozen=True)
class Counted:
    """What one byte counts: at a line of a kernel a branch, loop, select or mask (`kind`) came out as `outcome`."""

    kernel: str
    file: str
    line: int
    kind: str
    outcome: str


class Counters:
    """`values()[i]` counts `sites[i]`. Places never move; a kernel's are added when it is first loaded."""

    def __init__(self) -> None:
        # Reserved at once, so that addresses stay; untouched pages take no memory. A forked process counts on its own.
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self.memory = numpy.frombuffer(mmap.mmap(-1, CAPACITY, flags=private), dtype=numpy.uint8)
        self.sites: list[Counted] = []
        self.places: dict[str, int] = {}
        self.lock = threading.Lock()

    def values(self) -> numpy.ndarray:
        """The counters in use, uint8, from 0 to 255: the live memory, which kernels go on to change."""
        return self.memory[: len(self.sites)]

    def clear(self) -> None:
        self.values()[:] = 0

    def place(self, variant: str, kernel: str, file: str, counters: Sequence[Counter]) -> int:
        """The address of the first counter of a compiled kernel, named by the hash of its variant."""
        with self.lock:
            if variant not in self.places:
                self.places[variant] = len(self.sites)
                self.sites += [
                    Counted(kernel, file or counter.file, counter.line, counter.kind, outcome)
                    for counter in counters
                    for outcome in counter.outcomes
                ]
                if len(self.sites) > CAPACITY:
                    raise MemoryError(f"more than {CAPACITY} counters")
            address: int = self.memory.ctypes.data
            return address + self.places[variant]


counters = Counters()
