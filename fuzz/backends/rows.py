"""Rows: memory for several replicas, a row each, aligned as the memory of the run that they repeat."""

from __future__ import annotations

import numpy as np
import torch

from fuzz.backends.memory import WORDS

LINE = 128
"""Bytes of the largest alignment that launchers tell apart: every row starts at the same place within one as the memory
that it stands for."""


class Rows:
    """`words` are (replicas, length), integers of `size` bytes, in rows `stride` bytes apart within `data`.

    `moved` is by how many bytes each row is away from the address `original`.
    """

    def __init__(self, count: int, length: int, size: int, original: int, device: torch.device) -> None:
        self.stride = max(-(-length * size // LINE), 1) * LINE
        self.data = torch.empty((count + 1) * self.stride + LINE, dtype=torch.uint8, device=device)
        self.start = (original - self.data.data_ptr()) % LINE
        self.length, self.size, self.count = length, size, count
        self.words = self.seen((length,), (1,), 0, WORDS[size])
        first = self.data.data_ptr() + self.start
        self.moved = first - original + self.stride * np.arange(count, dtype=np.int64)

    def seen(self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int, dtype: torch.dtype) -> torch.Tensor:
        """Every row from byte `offset` on, (replicas, *shape), with strides in elements of the dtype."""
        size = dtype.itemsize
        whole = self.data[self.start : self.start + (self.data.numel() - self.start) // LINE * LINE].view(dtype)
        return torch.as_strided(
            whole, (self.count, *shape), (self.stride // size, *strides), whole.storage_offset() + offset // size
        )
