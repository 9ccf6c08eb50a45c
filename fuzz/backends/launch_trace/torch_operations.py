"""Repeats the operations of torch that a launcher ran between its launches, for every replica in its own memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Protocol

import numpy as np
import torch

from fuzz.backends.guarded_memory import address_range
from fuzz.backends.launcher_allocations import TorchOperation, leaves, written_tensors

Addresses = tuple[int, int]


class NotRepeatable(Exception):
    """An operation fails for a replica, or gives it a result of another shape than the first run's."""


class OtherNumbers(Exception):
    """Python gets other numbers for some replicas than in the first run; holds, bool (count), which get the same."""

    def __init__(self, same: np.ndarray) -> None:
        super().__init__(same)
        self.same = same


class Rows(Protocol):
    """Memory that each replica has one of: `shifts`, int64 (count), are the bytes from where the first run had it."""

    @property
    def count(self) -> int: ...
    @property
    def shifts(self) -> np.ndarray: ...

    def view(self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int, dtype: torch.dtype) -> torch.Tensor:
        """What every replica has from byte `offset` on, (count, *shape), with strides in elements of the dtype."""

    def views(
        self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int, dtype: torch.dtype
    ) -> Sequence[torch.Tensor]:
        """The same, each replica's memory itself, (*shape)."""


@dataclass(frozen=True)
class TensorPlace:
    """Where a tensor lies: in which region, at which byte, with which shape, strides in elements, and dtype."""

    region: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype

    def of(self, regions: Sequence[Rows]) -> torch.Tensor:
        """The tensor of every replica, (count, *shape)."""
        return regions[self.region].view(self.shape, self.strides, self.offset, self.dtype)

    def of_each(self, regions: Sequence[Rows]) -> Sequence[torch.Tensor]:
        """The memory of each replica's tensor."""
        return regions[self.region].views(self.shape, self.strides, self.offset, self.dtype)


class ResultRows:
    """What an operation allocated for each replica; `original` is the address of what it allocated in the first run."""

    def __init__(self, tensors: Sequence[torch.Tensor], original: int) -> None:
        self.tensors, self.count = tensors, len(tensors)
        starts = [tensor.untyped_storage().data_ptr() for tensor in tensors]
        self.shifts = np.array(starts, dtype=np.int64) - original

    def view(self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.stack(list(self.views(shape, strides, offset, dtype)))

    def views(
        self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int, dtype: torch.dtype
    ) -> Sequence[torch.Tensor]:
        one = self.tensors[0]
        start = offset // dtype.itemsize
        if (one.dtype, tuple(one.shape), one.stride(), one.storage_offset()) == (dtype, shape, strides, start):
            return self.tensors
        if one.dtype == dtype:
            return [torch.as_strided(tensor, shape, strides, start) for tensor in self.tensors]
        empty = [torch.empty(0, dtype=dtype, device=tensor.device) for tensor in self.tensors]
        storages = (tensor.untyped_storage() for tensor in self.tensors)
        return [view.set_(storage, start, shape, strides) for view, storage in zip(empty, storages, strict=True)]


@dataclass(frozen=True)
class TracedOperation:
    """An operation with the places of the tensors among its arguments.

    `new` says which parts of its result are memory that it allocated, with the address of each.
    """

    operation: TorchOperation
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    new: tuple[tuple[int, int], ...]

    def repeat(self, regions: list[Rows]) -> None:
        """Runs the operation for every replica; adds what it allocates to the regions.

        Raises NotRepeatable, or OtherNumbers.
        """
        results = [list(leaves(result)) for result in self._run(regions)]
        first = list(leaves(self.operation.result))
        numbers = [place for place, one in enumerate(first) if one is not None and not isinstance(one, torch.Tensor)]
        same = np.array([all(repr(result[n]) == repr(first[n]) for n in numbers) for result in results])
        if not same.all():
            raise OtherNumbers(same)
        for place, address in self.new:
            tensors = [result[place] for result in results]
            if any(not same_place(tensor, first[place]) for tensor in tensors):
                raise NotRepeatable
            regions.append(ResultRows(tensors, address))

    def _run(self, regions: Sequence[Rows]) -> list[Any]:
        func, count, names = self.operation.func, regions[0].count, list(self.kwargs)
        positional = of_each(self.args, regions, count)
        keywords = of_each(list(self.kwargs.values()), regions, count)
        try:
            return [
                func(*args, **dict(zip(names, values, strict=True)))
                for args, values in zip(positional, keywords, strict=True)
            ]
        except Exception as error:
            raise NotRepeatable from error


def same_place(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have the same place in their storages."""
    return (
        tensor.shape == other.shape
        and tensor.stride() == other.stride()
        and tensor.storage_offset() == other.storage_offset()
    )


def of_each(values: Sequence[Any], regions: Sequence[Rows], count: int) -> Iterable[tuple[Any, ...]]:
    """For each replica the values, with its own tensors in their places."""
    columns = [expand(value, regions, count) for value in values]
    return zip(*columns, strict=True) if columns else repeat((), count)


def expand(value: Any, regions: Sequence[Rows], count: int) -> Iterable[Any]:
    """A value for each replica."""
    if isinstance(value, TensorPlace):
        return value.of_each(regions)
    if isinstance(value, list | tuple) and any(isinstance(one, TensorPlace) for one in leaves(value)):
        return map(list, of_each(value, regions, count))
    return repeat(value, count)


def trace_operation(operation: TorchOperation, spans: list[Addresses]) -> TracedOperation | None:
    """The operation with the places of its arguments; adds the memory that it allocated to the spans.

    None where what it wrote is memory that no replica has its own of, or where it puts an address into memory.
    """
    schema = operation.func._schema
    args = tuple(locate_in(value, spans) for value in operation.args)
    kwargs = {name: locate_in(value, spans) for name, value in operation.kwargs.items()}
    if any(isinstance(one, torch.Tensor) and one.numel() for one in written_tensors(schema, args, kwargs)):
        return None
    if any(holds_address(one, spans) for one in leaves([*args, *kwargs.values()])):
        return None
    new = []
    for place, one in enumerate(leaves(operation.result)):
        if isinstance(one, torch.Tensor) and one.numel() and locate(one, spans) is None:
            storage = one.untyped_storage()
            new.append((place, storage.data_ptr()))
            spans.append((storage.data_ptr(), storage.data_ptr() + storage.nbytes()))
    return TracedOperation(operation, args, kwargs, tuple(new))


def locate_in(value: Any, spans: Sequence[Addresses]) -> Any:
    """An argument with places for the tensors that lie in the spans."""
    if isinstance(value, torch.Tensor):
        return locate(value, spans) or value
    if isinstance(value, list | tuple):
        return [locate_in(one, spans) for one in value]
    return value


def locate(tensor: torch.Tensor, spans: Sequence[Addresses]) -> TensorPlace | None:
    """Where a tensor lies; None where that is in none of the spans, or it has no elements."""
    if not tensor.numel():
        return None
    start, end = address_range(tensor)
    number = find_span(start, end, spans)
    if number is None:
        return None
    return TensorPlace(number, start - spans[number][0], tuple(tensor.shape), tensor.stride(), tensor.dtype)


def find_span(start: int, end: int, spans: Sequence[Addresses]) -> int | None:
    """The number of the span that holds a range of addresses, None where none does."""
    for number, (low, high) in enumerate(spans):
        if low <= start and end <= high:
            return number
    return None


def is_address(number: int, spans: Sequence[Addresses]) -> bool:
    """Whether an integer is the address of a byte in the spans."""
    return find_span(number, number + 1, spans) is not None


def holds_address(value: Any, spans: Sequence[Addresses]) -> bool:
    """Whether an argument, which lies in none of the spans, is the address of a byte in one or has such an element."""
    if isinstance(value, torch.Tensor) and value.dtype is torch.int64:
        numbers = value.detach().cpu()
        return any(bool(((low <= numbers) & (numbers < high)).any()) for low, high in spans)
    return isinstance(value, int) and is_address(value, spans)
