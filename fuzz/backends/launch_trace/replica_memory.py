"""Lays out memory for several replicas, one row a replica, aligned as the memory of the run that they repeat.

All memory of a replica is one row, so that a few operations fill, copy and compare it, whatever its regions are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

ALIGNMENT = 128
"""Bytes of the largest alignment that launchers distinguish: in a row every region has the offset from a multiple of it
that it has in the recorded run."""
WORD_BYTES = 8


@dataclass(frozen=True)
class Region:
    """Memory of the recorded run: its address, its bytes before the launches, uint8, and which of them launches may
    not change, bool."""

    address: int
    initial: np.ndarray
    protected: np.ndarray


class RowLayout:
    """The layout of a row: `offsets` of its regions in bytes and `stride` bytes in all.

    `initial` are its bytes before the launches and `protected` masks those that launches may not change, both as int64
    words on the device.
    """

    def __init__(self, regions: Sequence[Region], device: torch.device) -> None:
        end, self.regions, self.device = 0, regions, device
        offsets = []
        for region in regions:
            offsets.append(end + (region.address - end) % ALIGNMENT)
            end = offsets[-1] + len(region.initial)
        self.offsets, self.stride = tuple(offsets), max(-(-end // ALIGNMENT), 1) * ALIGNMENT
        initial, protected = np.zeros(self.stride, dtype=np.uint8), np.zeros(self.stride, dtype=np.uint8)
        for offset, region in zip(offsets, regions, strict=True):
            initial[offset : offset + len(region.initial)] = region.initial
            protected[offset : offset + len(region.initial)] = np.where(region.protected, 0xFF, 0)
        self.initial = torch.from_numpy(initial.view(np.int64)).to(device, non_blocking=True)
        self.protected = torch.from_numpy(protected.view(np.int64)).to(device, non_blocking=True)


class RegionRows:
    """One region in each of `count` rows that are `stride` bytes apart, the first of them `start` bytes within `data`.

    `shifts`, int64 (count), are the bytes from the address `original` to the region in each row.
    """

    def __init__(self, data: torch.Tensor, start: int, stride: int, count: int, original: int) -> None:
        self.data, self.start, self.stride, self.count = data, start, stride, count
        self.shifts = data.data_ptr() + start - original + stride * np.arange(count, dtype=np.int64)

    def view(self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int, dtype: torch.dtype) -> torch.Tensor:
        """A view (count, *shape) of every row from byte `offset` on, with strides in elements of the dtype."""
        size = dtype.itemsize
        whole = self.data[self.start : self.start + (self.data.numel() - self.start) // ALIGNMENT * ALIGNMENT]
        words = whole.view(dtype)
        return torch.as_strided(
            words, (self.count, *shape), (self.stride // size, *strides), words.storage_offset() + offset // size
        )

    def views(
        self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int, dtype: torch.dtype
    ) -> Sequence[torch.Tensor]:
        """The same, one view (*shape) for each row."""
        return self.view(shape, strides, offset, dtype).unbind()


class ReplicaMemory:
    """Rows of one layout: `regions` of all of them, in the layout's order, and `words`, int64 (count, words)."""

    def __init__(self, layout: RowLayout, count: int) -> None:
        data = allocate_rows(layout.stride, count, layout.device)
        start = -data.data_ptr() % ALIGNMENT
        self.layout = layout
        self.regions = [
            RegionRows(data, start + offset, layout.stride, count, region.address)
            for offset, region in zip(layout.offsets, layout.regions, strict=True)
        ]
        length = layout.stride // WORD_BYTES
        self.words = RegionRows(data, start, layout.stride, count, 0).view((length,), (1,), 0, torch.int64)
        self.words.copy_(layout.initial)

    def has_changed(self, before: torch.Tensor) -> torch.Tensor:
        """By row, bool (count), whether protected words differ from `before`, an earlier copy of `words`, consumed."""
        return before.bitwise_xor_(self.words).bitwise_and_(self.layout.protected).any(1)


def allocate_rows(stride: int, count: int, device: torch.device) -> torch.Tensor:
    """Room for so many rows, and for one more behind them, which nothing should reach."""
    return torch.empty((count + 1) * stride + ALIGNMENT, dtype=torch.uint8, device=device)


def allocate_zeros(length: int, count: int, original: int) -> RegionRows:
    """Rows of `length` zero bytes on the host, aligned as the address `original`."""
    stride = max(-(-length // ALIGNMENT), 1) * ALIGNMENT
    data = allocate_rows(stride, count, torch.device("cpu")).zero_()
    return RegionRows(data, (original - data.data_ptr()) % ALIGNMENT, stride, count, original)
