"""Repeats launches on other memory, without Triton and without Python."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from fuzz.backends.base import Pointer, RunOrder

LENGTH, SHADOW = 1, 2
"""How many slots behind an address its length stands, and where it has a shadow the distance of that."""
ORDER, LIMIT, SUMS = 3, 4, 5
"""Slots of a launch: the address of the programs' order, how many violations to keep, the seed of the order of sums."""


@functools.lru_cache(maxsize=256)
def permutation(seed: int, programs: int) -> numpy.ndarray:
    """The order in which the programs of a launch run, int64 (programs): seeded, -1 reverses them."""
    if seed == -1:
        return numpy.arange(programs - 1, -1, -1, dtype=numpy.int64)
    return numpy.random.default_rng(seed).permutation(programs).astype(numpy.int64)


@dataclass(frozen=True)
class CpuLaunch:
    """One launch: the compiled function, its packed arguments, which of their 8-byte slots hold an address, how many
    programs ran, whether its pointers carry shadows, and whether the kernel follows pointers that it reads."""

    function: Any
    packed: bytes
    slots: tuple[int, ...]
    programs: int
    has_shadows: bool
    follows_memory: bool = False

    @property
    def pointers(self) -> Sequence[Pointer] | None:
        """The arguments that are addresses of some memory; None where others stand in memory."""
        if self.follows_memory:
            return None
        values = numpy.frombuffer(self.packed, dtype=numpy.int64).tolist()
        pointers = []
        for slot in self.slots:
            start, length = values[slot], values[slot + LENGTH]
            shadow = slot + SHADOW if self.has_shadows and values[slot + SHADOW] else 0
            if length:
                pointers.append(Pointer(slot, start, start + length, shadow))
        return pointers

    @property
    def numbers(self) -> Sequence[int]:
        """None: a kernel that makes addresses of integers follows pointers."""
        return ()

    def repeat(
        self, count: int, offsets: Mapping[int, numpy.ndarray], orders: Sequence[RunOrder] = ()
    ) -> numpy.ndarray:
        """Launches `count` times. By slot, `offsets`, int64 (count), are added to the address that it holds.

        Returns, uint8 (count), 1 for the launches that had something to report.
        """
        packed = numpy.repeat(numpy.frombuffer(self.packed, dtype=numpy.int64)[None], count, 0)
        packed[:, ORDER], packed[:, LIMIT], packed[:, SUMS] = 0, 1, 0
        permuted = {}
        for order in {*orders}:
            rows = [row for row, one in enumerate(orders) if one == order]
            packed[rows, SUMS] = order.sums
            if order.programs is not None and self.programs > 1:
                # The launches below read the permutations: they are kept until then.
                permuted[order] = permutation(order.programs, self.programs)
                packed[rows, ORDER] = permuted[order].ctypes.data
        for slot, offset in offsets.items():
            packed[:, slot] += offset
        reported = numpy.zeros(count, dtype=numpy.uint8)
        self.function.launch_many(packed.ctypes.data, packed.shape[1], count, reported.ctypes.data)
        return reported
