"""Tracks memory that a launcher allocates and that nobody has written yet.

What `torch.empty` and similar operations return is filled with poison and gets a shadow of one byte for each byte. An
element is unwritten while its bits are those of the poison and its shadow is 0. A write of other bits changes the
former; kernels set the shadow where they store the bits of the poison, and torch's operations wherever they write. So
only a write of the very bits of the poison by something else (numpy, ctypes) goes unnoticed.
Elements of one byte are not tracked: there the poison is a likely value.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy
import torch

from fuzz.backends.launcher_allocations import (
    RESIZE_OPS,
    OperationObserver,
    find_traits,
    is_strided,
    may_be_filled,
    written_tensors,
)
from fuzz.backends.poison import POISON

WORDS: dict[int, Any] = {2: ctypes.c_uint16, 4: ctypes.c_uint32, 8: ctypes.c_uint64}
# For memory that is not tracked, a poison that data seldom equals.
UNTRACKED = (0, 0x5A5A5A5A5A5A5A5A)


def repeated_poison(dtype: torch.dtype) -> int:
    """A dtype's poison as often as 8 bytes hold it, as a signed integer."""
    size = dtype.itemsize
    word = sum(POISON[DTYPE_NAMES[dtype]] << 8 * size * k for k in range(8 // size))
    return word - (1 << 64) if word >> 63 else word


DTYPE_NAMES: dict[torch.dtype, str] = {getattr(torch, name): name for name in POISON}
PATTERNS = {dtype: repeated_poison(dtype) for dtype in DTYPE_NAMES}
WATCHED = frozenset(dtype for dtype in PATTERNS if dtype.itemsize > 1)


@dataclass(frozen=True, eq=False)
class ShadowedAllocation:
    """One allocation; `poison` fills 8 bytes, `distance` is from its memory to the shadow.

    The tensor is one of its own, which nobody sets to other memory: it keeps the memory, so that it is not used again.
    """

    tensor: torch.Tensor
    shadow: numpy.ndarray
    start: int
    end: int
    poison: int
    distance: int

    def is_all_of(self, memory: torch.UntypedStorage) -> bool:
        """Whether this is still where the tensor's memory is, and all of it."""
        length = memory.nbytes() // self.tensor.element_size() * self.tensor.element_size()
        return (self.start, self.end) == (memory.data_ptr(), memory.data_ptr() + length)


class ShadowMemory:
    """The allocations that are tracked. `after_operation` is to be called after every operation of torch. `filled` says
    that what they allocate, or add to a resized tensor, has been filled with this very poison (backends/poison.py)
    before."""

    def __init__(self, filled: bool = False) -> None:
        self.allocations: list[ShadowedAllocation] = []
        # They may be resized, and are kept until they have memory.
        self._empty: list[torch.Tensor] = []
        self.filled = filled

    def after_operation(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Tracks what an operation of torch allocated, and notes what it wrote."""
        traits = find_traits(func)
        if traits.is_uninitialised:
            self.track(result)
        elif func in RESIZE_OPS:
            self.track_resized(result)
        elif traits.is_mutable and (self.allocations or self._empty):
            for tensor in written_tensors(func._schema, args, kwargs):
                # A result may not have fitted into its `out=`.
                self.forget_moved(tensor)
                if not traits.only_moves:
                    self.mark_written(tensor)

    def track(self, tensor: torch.Tensor) -> None:
        """Fills a new tensor, and the gaps between its elements, with poison and tracks what is written of it."""
        is_watched = tensor.dtype in WATCHED and tensor.is_cpu and is_strided(tensor)
        if is_watched and not tensor.numel():
            self._empty.append(tensor.detach())
        elif is_watched and may_be_filled(tensor):
            self._add(tensor, numpy.zeros(0, numpy.uint8))

    def forget_moved(self, tensor: Any) -> None:
        """Forgets what was tracked of a tensor's memory that has another place or length by now.

        The place may be somebody else's, and nobody knows what of the rest has been written.
        """
        if not isinstance(tensor, torch.Tensor) or not tensor.is_cpu or not is_strided(tensor):
            return
        memory = tensor.untyped_storage()
        one = self._allocation_in(memory)
        if one is not None and not one.is_all_of(memory):
            self.allocations.remove(one)
        if memory.nbytes():
            self._empty = [one for one in self._empty if not is_in(one, memory)]

    def track_resized(self, tensor: torch.Tensor) -> None:
        """Tracks what a resized tensor has in addition, and in its new place what was tracked of it."""
        memory = tensor.untyped_storage()
        one, was_empty = self._allocation_in(memory), any(is_in(empty, memory) for empty in self._empty)
        if (one is None and not was_empty) or (one is not None and one.is_all_of(memory)):
            return
        self.forget_moved(tensor)
        if tensor.dtype in WATCHED and tensor.numel() and may_be_filled(tensor):
            self._add(tensor, numpy.zeros(0, numpy.uint8) if one is None else one.shadow)

    def _allocation_in(self, memory: torch.UntypedStorage) -> ShadowedAllocation | None:
        return next((one for one in self.allocations if is_in(one.tensor, memory)), None)

    def _add(self, tensor: torch.Tensor, before: numpy.ndarray) -> None:
        """Tracks all memory of a tensor, the beginning of which, with the shadow `before`, was tracked already."""
        memory, size = tensor.untyped_storage(), tensor.element_size()
        start, length = memory.data_ptr(), memory.nbytes() // size * size
        kept = min(len(before) // size * size, length)
        if not self.filled:
            # Not by torch, whose operations other dispatch modes may observe.
            words = (WORDS[size] * ((length - kept) // size)).from_address(start + kept)
            numpy.ctypeslib.as_array(words)[:] = POISON[DTYPE_NAMES[tensor.dtype]]
        shadow, poison = numpy.zeros(length, numpy.uint8), PATTERNS[tensor.dtype]
        shadow[:kept] = before[:kept]
        distance = shadow.ctypes.data - start
        self.allocations.append(ShadowedAllocation(tensor.detach(), shadow, start, start + length, poison, distance))

    def mark_written(self, tensor: torch.Tensor) -> None:
        """Notes that something else than a kernel has written all of the tensor."""
        if not isinstance(tensor, torch.Tensor) or not tensor.is_cpu or not tensor.numel():
            return
        allocation = self.allocation_of(*extent(tensor))
        if allocation is not None:
            size = tensor.element_size()
            strides = (*(stride * size for stride in tensor.stride()), 1)
            start = allocation.shadow[tensor.data_ptr() - allocation.start :]
            numpy.lib.stride_tricks.as_strided(start, (*tensor.shape, size), strides)[...] = 1

    def allocation_of(self, start: int, end: int) -> ShadowedAllocation | None:
        """The allocation that a range of addresses lies in."""
        for allocation in self.allocations:
            if allocation.start <= start and end <= allocation.end:
                return allocation
        return None

    def shadow(self, tensor: Any) -> tuple[int, int]:
        """The distance of a tensor's shadow from the tensor, 0 where it has none, and its poison."""
        if tensor is None or not self.allocations:
            return UNTRACKED
        address = tensor.data_ptr()
        for one in self.allocations:
            if one.start <= address < one.end:
                size = tensor.element_size() if hasattr(tensor, "element_size") else tensor.dtype.itemsize
                return (one.distance, one.poison) if size == one.tensor.element_size() else UNTRACKED
        return UNTRACKED


class ShadowObserver(OperationObserver):  # type: ignore[no-untyped-call]
    """While active, memory that torch allocates is tracked."""

    def __init__(self, memory: ShadowMemory) -> None:
        super().__init__(memory.after_operation)
        self._memory = memory

    def execute(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of an operation, before which a tensor to be resized has the memory that it is known to have."""
        if func in RESIZE_OPS:
            # What kernels, numpy and other threads wrote into memory that grew unseen must not be poisoned.
            self._memory.forget_moved(args[0])
        return super().execute(func, args, kwargs)


def is_in(tensor: torch.Tensor, memory: torch.UntypedStorage) -> bool:
    """Whether a tensor has its elements in this memory."""
    return bool(tensor.untyped_storage()._cdata == memory._cdata)


def extent(tensor: torch.Tensor) -> tuple[int, int]:
    """The addresses that a tensor with elements takes."""
    start = tensor.data_ptr()
    if tensor.is_contiguous():
        return start, start + tensor.nbytes
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (last + 1) * tensor.element_size()
