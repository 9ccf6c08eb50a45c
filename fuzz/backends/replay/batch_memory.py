"""Rows: memory for several replicas, a row each, aligned as the memory of the run that they repeat.

All memory of a replica is one row: it is filled, copied and compared by a few operations, whatever its parts are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

LINE = 128
"""Bytes of the largest alignment that launchers tell apart: every part of a row starts where in one the memory starts
that it stands for."""
WORD = 8


@dataclass(frozen=True)
class Part:
    """Memory of the recorded run: its address, bytes before the launches, and which of them launches may not change."""

    address: int
    held: np.ndarray
    kept: np.ndarray


class Form:
    """What a row looks like: `offsets` of its parts, their bytes and which of those are kept, as words on a device."""

    def __init__(self, parts: Sequence[Part], device: torch.device) -> None:
        end, self.parts, self.device = 0, parts, device
        offsets = []
        for part in parts:
            offsets.append(end + (part.address - end) % LINE)
            end = offsets[-1] + len(part.held)
        self.offsets, self.stride = tuple(offsets), max(-(-end // LINE), 1) * LINE
        held, kept = np.zeros(self.stride, dtype=np.uint8), np.zeros(self.stride, dtype=np.uint8)
        for offset, part in zip(offsets, parts, strict=True):
            held[offset : offset + len(part.held)] = part.held
            kept[offset : offset + len(part.held)] = np.where(part.kept, 0xFF, 0)
        self.held = torch.from_numpy(held.view(np.int64)).to(device)
        self.kept = torch.from_numpy(kept.view(np.int64)).to(device)


class Rows:
    """One part of `count` rows that are `stride` bytes apart, the first `start` bytes within `data`.

    `moved` is by how many bytes each is away from the address `original`.
    """

    def __init__(self, data: torch.Tensor, start: int, stride: int, count: int, original: int) -> None:
        self.data, self.start, self.stride, self.count = data, start, stride, count
        self.moved = data.data_ptr() + start - original + stride * np.arange(count, dtype=np.int64)

    def seen(self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int, dtype: torch.dtype) -> torch.Tensor:
        """Every row from byte `offset` on, (replicas, *shape), with strides in elements of the dtype."""
        size = dtype.itemsize
        whole = self.data[self.start : self.start + (self.data.numel() - self.start) // LINE * LINE].view(dtype)
        return torch.as_strided(
            whole, (self.count, *shape), (self.stride // size, *strides), whole.storage_offset() + offset // size
        )


class Arena:
    """Rows of a form: `parts` of all of them, in the form's order."""

    def __init__(self, form: Form, count: int) -> None:
        data = allocated(form.stride, count, form.device)
        start = -data.data_ptr() % LINE
        self.form = form
        self.parts = [
            Rows(data, start + offset, form.stride, count, part.address)
            for offset, part in zip(form.offsets, form.parts, strict=True)
        ]
        words = form.stride // WORD
        self.words = Rows(data, start, form.stride, count, 0).seen((words,), (1,), 0, torch.int64)
        self.words.copy_(form.held)

    def changed(self, before: torch.Tensor) -> torch.Tensor:
        """By row whether what is kept is no longer as `before`, the words at some time."""
        return ((self.words ^ before) & self.form.kept).any(1)


def allocated(stride: int, count: int, device: torch.device) -> torch.Tensor:
    """Room for so many rows, and one more behind them, which nothing is to reach."""
    return torch.empty((count + 1) * stride + LINE, dtype=torch.uint8, device=device)


def zeroed(length: int, count: int, original: int) -> Rows:
    """Rows of so many zeros on the host."""
    stride = max(-(-length // LINE), 1) * LINE
    data = allocated(stride, count, torch.device("cpu")).zero_()
    return Rows(data, (original - data.data_ptr()) % LINE, stride, count, original)
