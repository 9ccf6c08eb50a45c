"""Repeats launches on other memory, without Triton and without Python."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from fuzz.backends.base import Pointer

LENGTH, SHADOW = 1, 2
"""How many slots behind an address its length stands, and where memory is watched the distance of its shadow."""
ORDER, LIMIT = 3, 4
"""Slots of a launch: the address of the programs' order, and how many violations to keep."""


@functools.lru_cache(maxsize=256)
def permutation(seed: int, programs: int) -> numpy.ndarray:
    """The order in which the programs of a launch run, int64 (programs): seeded, -1 reverses them."""
    if seed == -1:
        return numpy.arange(programs - 1, -1, -1, dtype=numpy.int64)
    return numpy.random.default_rng(seed).permutation(programs).astype(numpy.int64)


@dataclass(frozen=True)
class RecordedLaunch:
    """One launch: the compiled function, its packed arguments, which of their 8-byte slots hold an address, how many
    programs ran, and whether its pointers carry shadows."""

    function: Any
    packed: bytes
    slots: tuple[int, ...]
    programs: int
    watched: bool

    @property
    def pointers(self) -> Sequence[Pointer]:
        """The addresses that stand for any memory."""
        values = numpy.frombuffer(self.packed, dtype=numpy.int64).tolist()
        found = []
        for slot in self.slots:
            start, length = values[slot], values[slot + LENGTH]
            shadow = slot + SHADOW if self.watched and values[slot + SHADOW] else 0
            if length:
                found.append(Pointer(slot, start, start + length, shadow))
        return found

    def repeat(self, count: int, moved: Mapping[int, numpy.ndarray], order: int | None) -> numpy.ndarray:
        """So many launches with moved addresses; 1 for those that have something to report."""
        packed = numpy.repeat(numpy.frombuffer(self.packed, dtype=numpy.int64)[None], count, 0)
        programs = None if order is None or self.programs < 2 else permutation(order, self.programs)
        packed[:, ORDER], packed[:, LIMIT] = 0 if programs is None else programs.ctypes.data, 1
        for slot, away in moved.items():
            packed[:, slot] += away
        reported = numpy.zeros(count, dtype=numpy.uint8)
        self.function.together(packed.ctypes.data, packed.shape[1], count, reported.ctypes.data)
        return reported
