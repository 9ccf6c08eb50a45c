"""Rows: memory for several replicas, a row each, aligned as the memory of the run that they repeat."""

from __future__ import annotations

import numpy as np

LINE = 64
"""Bytes of a cache line: every row starts at the same place within one as the memory that it stands for."""


class Rows:
    """`words` are (replicas, length); `data` all bytes in which they lie, from `start` on, `stride` bytes apart.

    `moved` is by how many bytes each row is away from the address `original`.
    """

    def __init__(self, count: int, length: int, word: np.dtype[np.generic] | type, original: int) -> None:
        kind = np.dtype(word)
        self.stride = -(-length * kind.itemsize // LINE) * LINE
        self.data = np.empty((count + 1) * self.stride + LINE, dtype=np.uint8)
        self.start = (original - self.data.ctypes.data) % LINE
        whole = self.data[self.start : self.start + count * self.stride].reshape(count, self.stride)
        self.words = whole[:, : length * kind.itemsize].view(kind)
        first = self.data.ctypes.data + self.start
        self.moved = first - original + self.stride * np.arange(count, dtype=np.int64)
