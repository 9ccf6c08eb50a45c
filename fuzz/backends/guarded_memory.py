"""Allocates a Case's tensors in guarded, poisoned buffers, and inspects what a run did to them.

Every buffer holds poison before, after and between its elements. Poison is a signalling NaN: arithmetic quiets it, so
that an element with exactly that word was written by no computation. A huge layout maps its memory lazily without
reserving it; there only the elements themselves are filled and compared. On the host a tensor's storage ends with its
last element.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from fuzz.backends.poison import POISON
from fuzz.model.case import Argument
from fuzz.model.dims import resolve
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.outcome import Access, Write
from fuzz.worker.profile import measured

GUARD = 64
"""Bytes of guard on either side of a buffer: a cache line, which keeps the alignment of the first element."""
TORCH_DTYPES: Mapping[str, torch.dtype] = {name: getattr(torch, name) for name in POISON}
DTYPE_NAMES: Mapping[torch.dtype, str] = {value: key for key, value in TORCH_DTYPES.items()}
WORD_DTYPES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass
class Buffer:
    """One argument in memory, a view of `stored` shape, `strides` and `start`, in words, into its base.

    `base` holds all words of the buffer on the host and `device_base` on the device; `pristine` are its bytes from
    before the run, None where the buffer is huge. `words` are the elements as they were before the run. `untouched` is
    a copy of `device_base` from before the run, where that is not on the host.
    """

    name: str
    dtype: str
    tensor: torch.Tensor
    base: np.ndarray
    device_base: torch.Tensor
    pristine: bytes | None
    words: np.ndarray
    shape: tuple[int, ...]
    stored: tuple[int, ...]
    strides: tuple[int, ...]
    start: int
    untouched: torch.Tensor | None = None

    def is_suspect(self) -> torch.Tensor | None:
        """Whether anything in a device's memory has changed, as one element there; None where `inspect` has to tell."""
        return None if self.untouched is None else (as_words(self.device_base) != self.untouched).any()

    def inspect(self) -> tuple[list[Write], list[Access]]:
        """Writes to elements, and accesses that wrote words outside the elements."""
        if self.device_base.device.type != "cpu":
            if self.pristine is None:
                return self._inspect_elements(self._fetch_elements()), []
            self.base = _host_words(self.device_base)
        if self.pristine is None:
            return self._inspect_elements(self._elements(self.base)), []
        if self.base.tobytes() == self.pristine:
            return [], []
        writes = self._inspect_elements(self._elements(self.base))
        return writes, self._outside_writes()

    def _fetch_elements(self) -> np.ndarray:
        view = torch.as_strided(self.device_base, self.stored, self.strides, self.start)
        return _host_words(view).reshape(self.stored)

    def _elements(self, base: np.ndarray) -> np.ndarray:
        return elements(base, self.stored, self.strides, self.start)

    def _inspect_elements(self, now: np.ndarray) -> list[Write]:
        changed = now != self.words
        count = int(changed.sum())
        if not count:
            return []
        first = tuple(int(i) for i in np.argwhere(changed)[0])
        return [Write(self.name, first, int(now[first]), int(self.words[first]), count)]

    def _outside_writes(self) -> list[Access]:
        assert self.pristine is not None
        outside = self.base != np.frombuffer(self.pristine, dtype=self.base.dtype)
        self._elements(outside)[...] = False
        positions = np.flatnonzero(outside)
        if not positions.size:
            return []
        offset = int(positions[0]) - self.start
        return [
            Access(self.name, "store", f"{positions.size} words outside {self.name!r} written, first at {offset:+d}")
        ]


@measured("generation")
def allocate_buffer(
    name: str, argument: Argument, dims: Mapping[str, int], device: str, words: np.ndarray | None = None
) -> Buffer:
    """Puts an argument into a buffer of its own on a device; `words`, of the stored shape, replace its values."""
    shape = resolve(argument.shape, dims)
    layout = argument.layout
    stored, strides, span = layout.stored(shape), layout.strides(shape), layout.span(shape)
    words = argument.bits(dims) if words is None else words
    kind = named_dtype(argument.dtype)
    start = GUARD // (kind.bits // 8) + layout.offset
    length = start + span + GUARD // (kind.bits // 8)
    if layout.reach and span > 1 << 24:
        return _allocate_huge(name, argument, words, shape, stored, strides, start, span, device)
    base = np.full(length, POISON[argument.dtype], dtype=kind.unsigned)
    elements(base, stored, strides, start)[...] = words
    pristine = base.tobytes()
    host = torch.frombuffer(base, dtype=TORCH_DTYPES[argument.dtype])
    # Memory that is not pinned has been read when the call returns.
    moved = host if device == "cpu" else host.to(device, non_blocking=True)
    storage = storage_up_to(base, start + span, moved)
    tensor = torch.as_strided(storage, shape, strides, start)
    untouched = None if device == "cpu" else as_words(moved).clone()
    return Buffer(name, argument.dtype, tensor, base, moved, pristine, words, shape, stored, strides, start, untouched)


def storage_up_to(base: np.ndarray, length: int, moved: torch.Tensor) -> torch.Tensor:
    """The first words of a buffer on the host, as a storage of their own; all of a buffer on a device."""
    return torch.frombuffer(base[:length], dtype=moved.dtype) if moved.device.type == "cpu" else moved


def _allocate_huge(
    name: str,
    argument: Argument,
    words: np.ndarray,
    shape: tuple[int, ...],
    stored: tuple[int, ...],
    strides: tuple[int, ...],
    start: int,
    span: int,
    device: str,
) -> Buffer:
    kind = named_dtype(argument.dtype)
    length = start + span + GUARD // (kind.bits // 8)
    if device == "cpu":
        base = _lazily_mapped(length * kind.bits // 8).view(kind.unsigned)
        moved = torch.frombuffer(base, dtype=TORCH_DTYPES[argument.dtype])
    else:
        base = np.empty(0, dtype=kind.unsigned)
        # What earlier cases of this size left in the allocator's cache would not leave room for this one.
        torch.cuda.empty_cache()
        moved = torch.empty(length, dtype=TORCH_DTYPES[argument.dtype], device=device)
    tensor = torch.as_strided(storage_up_to(base, start + span, moved), shape, strides, start)
    flat = torch.frombuffer(words.copy(), dtype=TORCH_DTYPES[argument.dtype])
    torch.as_strided(moved, stored, strides, start).copy_(flat.reshape(stored))
    return Buffer(name, argument.dtype, tensor, base, moved, None, words, shape, stored, strides, start)


def _lazily_mapped(size: int) -> np.ndarray:
    """Zeroed bytes that take memory only where they are touched and reserve no swap."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
    size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    return np.frombuffer(mmap.mmap(-1, size, flags=flags), dtype=np.uint8)


def elements(base: np.ndarray, shape: tuple[int, ...], strides: tuple[int, ...], start: int) -> np.ndarray:
    """A view of an array without dims, with strides in its elements from the element `start` on."""
    size = base.itemsize
    return np.ndarray(shape, base.dtype, base, start * size, [stride * size for stride in strides])


def _host_words(tensor: torch.Tensor) -> np.ndarray:
    """The words of a tensor on the host, contiguous and flat."""
    flat = tensor.detach().contiguous().reshape(-1).cpu()
    if flat.dtype is torch.bool:
        return flat.view(torch.uint8).numpy()
    words: np.ndarray = flat.view(WORD_DTYPES[flat.element_size()]).numpy()
    return words.view(words.dtype.str.replace("i", "u"))


def read_words(tensor: torch.Tensor) -> np.ndarray:
    """The words of a tensor on the host, as unsigned integers in an array of its shape."""
    return _host_words(tensor).reshape(tuple(tensor.shape))


def without_repetition(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with one element in each dim of stride 0, whose elements are all one and may be any number."""
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def find_poison(tensor: torch.Tensor, due: torch.Tensor | None = None) -> tuple[int, ...] | None:
    """The index of the first element that still holds poison, or None. Eight-bit types have no word to spare.

    A whole number that is `due` may be poison as any other word.
    """
    same = find_poisoned(tensor)
    if same is not None and due is not None and not tensor.is_floating_point() and due.shape == tensor.shape:
        same = same & (tensor != due.to(tensor.device))
    return None if same is None or not bool(same.any()) else tuple(int(i) for i in same.nonzero()[0])


def may_hold_poison(tensor: torch.Tensor) -> torch.Tensor | None:
    """Whether `find_poison` finds any in a device's memory, as one element there; None where it has to tell."""
    same = None if tensor.device.type == "cpu" else find_poisoned(tensor)
    return None if same is None else same.any()


def find_poisoned(tensor: torch.Tensor) -> torch.Tensor | None:
    """Element by element whether it holds poison; None where there is nothing to ask."""
    if tensor.element_size() == 1 or tensor.numel() == 0 or tensor.dtype not in DTYPE_NAMES:
        return None
    return as_words(tensor.detach()) == signed_poison(tensor.dtype)


def as_words(tensor: torch.Tensor) -> torch.Tensor:
    """The elements as integers of the same bits."""
    return tensor.view(WORD_DTYPES[tensor.element_size()])


def read_flags(flags: Sequence[torch.Tensor | None]) -> list[bool]:
    """The flags, bool, read from the device at once, with those that are on the host; True for None.

    Each read waits for the device, and for other processes that use it.
    """
    known = [flag for flag in flags if flag is not None]
    device = next((flag.device for flag in known if flag.device.type != "cpu"), "cpu")
    values = iter(torch.stack([flag.to(device) for flag in known]).tolist() if known else ())
    return [flag is None or next(values) for flag in flags]


def address_range(tensor: torch.Tensor) -> tuple[int, int]:
    """The first address of a tensor's elements and the one behind the last; it must have elements."""
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (reach + 1) * tensor.element_size()


def fill_poison(tensor: torch.Tensor) -> None:
    """Overwrites every element of a dense tensor with poison."""
    name = DTYPE_NAMES.get(tensor.dtype)
    if name is None or tensor.numel() == 0:
        return
    if tensor.dtype is torch.bool:
        tensor.fill_(True)
        return
    as_words(tensor).fill_(signed_poison(tensor.dtype))


@lru_cache
def signed_poison(dtype: torch.dtype) -> int:
    """The poison of a dtype as the value of a word of WORD_DTYPES: signed where that has more than 8 bits."""
    word, bits = POISON[DTYPE_NAMES[dtype]], 8 * dtype.itemsize
    return word - (1 << bits) if bits > 8 and word >> (bits - 1) else word
