"""Memory that a launcher allocates and nobody has written yet.

While a `Memory` is active, `torch.empty` and its kin are filled with poison and get a shadow, one byte for each byte.
An element is unwritten while its bits are those of the poison and its shadow is 0. Whoever writes other bits thereby
writes it; kernels set the shadow where they store the bits of the poison, torch's own operations wherever they write.
So only somebody else who writes the very bits of the poison (numpy, ctypes) is mistaken for one who wrote nothing.
Elements of one byte are not watched: there the poison is a likely value.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..poison import POISON

aten = torch.ops.aten
UNFILLED = {
    aten.empty.memory_format,
    aten.empty_strided.default,
    aten.empty_like.default,
    aten.new_empty.default,
    aten.new_empty_strided.default,
}
WORDS: dict[int, Any] = {2: ctypes.c_uint16, 4: ctypes.c_uint32, 8: ctypes.c_uint64}
# For memory that is not watched, a poison that data seldom equals.
NOTHING = (0, 0x5A5A5A5A5A5A5A5A)


@dataclass(frozen=True)
class Allocation:
    """One allocation; `poison` fills 8 bytes. The tensor is kept, so that its memory is not used again."""

    tensor: torch.Tensor
    shadow: numpy.ndarray
    start: int
    end: int
    poison: int


class Memory(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """What was allocated while it is active."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.allocations: list[Allocation] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing here is ever compiled; skipping would import torch._dynamo, which takes a second and a half."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in UNFILLED:
            self.watch(result)
        elif self.allocations and func._schema.is_mutable:
            for tensor in written(func._schema, args, kwargs or {}):
                self.wrote(tensor)
        return result

    def watch(self, tensor: torch.Tensor) -> None:
        """Fill a dense tensor with poison and watch who reads it."""
        name, size = str(tensor.dtype).removeprefix("torch."), tensor.element_size()
        if name not in POISON or size == 1 or not tensor.is_cpu or not tensor.numel() or not is_dense(tensor):
            return
        start, length = tensor.data_ptr(), tensor.numel() * size
        # Not by torch, whose operations other dispatch modes may observe.
        numpy.ctypeslib.as_array((WORDS[size] * tensor.numel()).from_address(start))[:] = POISON[name]
        shadow = numpy.zeros(length, numpy.uint8)
        poison = signed(sum(POISON[name] << 8 * size * k for k in range(8 // size)), 8)
        self.allocations.append(Allocation(tensor, shadow, start, start + length, poison))

    def wrote(self, tensor: torch.Tensor) -> None:
        """Everything in the tensor has been written, by whom else than a kernel."""
        if not isinstance(tensor, torch.Tensor) or not tensor.is_cpu or not tensor.numel():
            return
        found = self.holding(*extent(tensor))
        if found is not None:
            size = tensor.element_size()
            strides = (*(stride * size for stride in tensor.stride()), 1)
            start = found.shadow[tensor.data_ptr() - found.start :]
            numpy.lib.stride_tricks.as_strided(start, (*tensor.shape, size), strides)[...] = 1

    def holding(self, start: int, end: int) -> Allocation | None:
        """The allocation that a range of addresses lies in."""
        for allocation in self.allocations:
            if allocation.start <= start and end <= allocation.end:
                return allocation
        return None

    def shadow(self, tensor: Any) -> tuple[int, int]:
        """How far the shadow of a tensor is from it, and its poison; 0 where it is not watched."""
        if tensor is None or not self.allocations or not tensor.numel():
            return NOTHING
        found = self.holding(*extent(tensor))
        if found is None or found.tensor.element_size() != tensor.element_size():
            return NOTHING
        return found.shadow.ctypes.data - found.start, found.poison


def written(schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Any]:
    """The tensors that an operation changes."""
    for number, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[number] if number < len(args) else kwargs.get(argument.name)
            yield from value if isinstance(value, list | tuple) else (value,)


def extent(tensor: Any) -> tuple[int, int]:
    """The addresses that a tensor with elements takes."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    start = tensor.data_ptr()
    return start, start + (last + 1) * tensor.element_size()


def is_dense(tensor: torch.Tensor) -> bool:
    start, end = extent(tensor)
    return end - start == tensor.numel() * tensor.element_size()


def signed(word: int, size: int) -> int:
    return word - (1 << 8 * size) if word >> (8 * size - 1) else word
