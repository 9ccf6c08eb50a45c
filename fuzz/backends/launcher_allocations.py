"""Puts guards around the tensors that a launcher allocates while it runs, and poison into them.

``torch.empty`` and its kin hold poison instead of whatever memory held before, so that reading them is noticed.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from fuzz.backends.base import OperationHook
from fuzz.backends.dispatch_mode import DispatchMode
from fuzz.backends.guarded_memory import DTYPE_NAMES, GUARD, WORD_DTYPES, as_words, fill_poison, signed_poison
from fuzz.backends.poison import POISON
from fuzz.backends.triton_host.patching import Patch
from fuzz.model.outcome import Access

aten = torch.ops.aten
UNINITIALISED_OPS = {
    aten.empty.memory_format,
    aten.empty_permuted.default,
    aten.empty_strided.default,
    aten.empty_like.default,
    aten.new_empty.default,
    aten.new_empty_strided.default,
}
FILLED_OPS = {
    aten.zeros.default,
    aten.zeros_like.default,
    aten.new_zeros.default,
    aten.ones.default,
    aten.ones_like.default,
    aten.new_ones.default,
    aten.full.default,
    aten.full_like.default,
    aten.new_full.default,
}
RESIZE_OPS = {aten.resize_.default, aten.resize_as_.default}
HOST_READS = ("tolist", "numpy")
"""Methods by which Python reads a tensor's values past torch's dispatcher, so that no mode sees it."""
KEPT_BYTES = 1 << 26
"""Bytes of what operations allocated that are kept for repeating them."""
PADDED_BYTES = 1 << 26
"""Bytes of memory with gaps between a tensor's elements that are filled as well: more is mapped and seldom touched."""
PLAIN_FILL = 3
"""The usual value of memory that nobody wrote where it is filled without poison."""
_fill: ContextVar[float | None] = ContextVar("fill", default=None)


@contextmanager
def fill_without_poison(value: float = PLAIN_FILL) -> Iterator[None]:
    """Inside, memory that launchers allocate holds `value` and no poison, so that reading it is not noticed."""
    token = _fill.set(value)
    try:
        yield
    finally:
        _fill.reset(token)


@dataclass
class Allocation:
    """A tensor with guards: `length` elements from `start` on in `base`, the rest of which are guards.

    `filled` has the values that it was filled with, in the order of memory; None where that was poison.
    """

    base: torch.Tensor
    start: int
    length: int
    filled: torch.Tensor | None = None

    def is_suspect(self) -> torch.Tensor | None:
        """Whether a guard has changed in a device's memory, as one element there; None on the host."""
        if self.base.is_cpu:
            return None
        before, after = self._changed_guards()
        return torch.cat([before, after]).any()

    def outside_writes(self, names: Mapping[int, str]) -> list[Access]:
        """Accesses that wrote over the guards; `names` are the names of outputs by data pointer."""
        if self.base.is_cpu and self._guards_intact():
            return []
        before, after = self._changed_guards()
        changed = int(before.sum()) + int(after.sum())
        if not changed:
            return []
        pointer = self.base.data_ptr() + self.start * self.base.element_size()
        name = names.get(pointer, "a buffer of the launcher")
        if bool(after.any()):
            offset = self.length + int(after.nonzero()[0])
        else:
            offset = int(before.nonzero()[0]) - self.start
        return [Access(name, "store", f"{changed} words outside {name!r} written, first at element {offset:+d}")]

    def _changed_guards(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Which words of the guards before and behind the elements have changed."""
        flat = as_words(self.base)
        poison = signed_poison(self.base.dtype)
        return flat[: self.start] != poison, flat[self.start + self.length :] != poison

    def _guards_intact(self) -> bool:
        """Whether both guards on the host hold their bytes: twenty times as fast as asking torch."""
        size = self.base.element_size()
        guard = POISON[DTYPE_NAMES[self.base.dtype]].to_bytes(size, sys.byteorder) * self.start
        before, after = self.base.data_ptr(), self.base.data_ptr() + (self.start + self.length) * size
        return guard == ctypes.string_at(before, GUARD) == ctypes.string_at(after, GUARD)


@dataclass(frozen=True)
class TorchOperation:
    """An operation of torch that a launcher ran, after so many of its launches. It keeps the memory of all tensors."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    launches: int


def copies_to_host(inputs: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> bool:
    """Whether Python can read what an operation makes of tensors of a device."""
    return any(one.is_cpu for one in results) and not all(one.is_cpu for one in inputs)


def is_strided(tensor: torch.Tensor) -> bool:
    """Whether strides say where a tensor's elements are: it is neither sparse nor nested, and has values."""
    return tensor.layout is torch.strided and not tensor.is_nested and not tensor.is_meta


class OperationObserver(DispatchMode):
    """While active, calls `on_operation` after every operation of torch."""

    def __init__(self, on_operation: OperationHook | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.on_operation = on_operation

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = self.execute(func, args, kwargs or {})
        if self.on_operation is not None:
            self.on_operation(func, args, kwargs or {}, result)
        return result

    def execute(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of an operation."""
        return func(*args, **kwargs)


class LauncherAllocations(OperationObserver):  # type: ignore[no-untyped-call]
    """While active, allocations are guarded and poisoned; `guarded` lists them. `on_operation` gets every operation.

    `has_computed` is whether torch did anything other than allocate memory and make views of it. With `launches`, the
    list of launches that a session fills, `operations` are those operations; None where repeating them with the
    values of another replica would not do what the launcher does.
    """

    def __init__(self, on_operation: OperationHook | None = None, launches: Sized | None = None) -> None:
        super().__init__(on_operation)
        self.guarded: list[Allocation] = []
        self.has_computed = False
        self.launches = launches
        self.operations: list[TorchOperation] | None = None if launches is None else []
        self._room = KEPT_BYTES

    def execute(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        launched = 0 if self.launches is None else len(self.launches)
        if func in RESIZE_OPS:
            return self._resize(func, args, kwargs)
        plain = super().execute(func, args, kwargs)
        traits = find_traits(func)
        if traits.is_view:
            return plain
        result = plain
        if traits.is_uninitialised:
            result = self._guard(plain, None)
        elif traits.is_filled:
            result = self._guard(plain, plain)
        else:
            self.has_computed = True
        if result is plain and self.operations is not None:
            self._note(TorchOperation(func, args, kwargs, plain, launched))
        return result

    def _resize(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A resized tensor, of which what is new is filled as memory that nobody has written."""
        self.has_computed, self.operations = True, None
        before = args[0].untyped_storage().nbytes() if is_strided(args[0]) else 0
        result = super().execute(func, args, kwargs)
        if is_strided(result) and result.dtype in DTYPE_NAMES and may_be_filled(result):
            fill_gaps(result, before)
        return result

    def _note(self, operation: TorchOperation) -> None:
        """Keeps an operation for repeating it, where that can be done."""
        assert self.operations is not None and self.launches is not None
        inputs, results = tensors_in((operation.args, *operation.kwargs.values())), tensors_in(operation.result)
        self._room -= sum(one.nbytes for one in results if is_strided(one))
        if (
            self._room >= 0
            and all(is_strided(one) for one in (*inputs, *results))
            and len(self.launches) == operation.launches
            and not copies_to_host(inputs, results)
            and not find_traits(operation.func).only_moves
        ):
            self.operations.append(operation)
        else:
            self.operations = None

    def host_reads(self) -> list[Patch]:
        """Patches under which what Python reads of tensors is noticed: torch does not dispatch these."""
        return [Patch(torch.Tensor, name, self._noticing(getattr(torch.Tensor, name))) for name in HOST_READS]

    def _noticing(self, read: Callable[..., Any]) -> Callable[..., Any]:
        def read_noticed(*args: Any, **kwargs: Any) -> Any:
            self.operations = None
            return read(*args, **kwargs)

        return read_noticed

    def _guard(self, plain: torch.Tensor, filled: torch.Tensor | None) -> torch.Tensor:
        if is_strided(plain) and not plain.untyped_storage().nbytes():
            # There is nothing to guard, and torch resizes no memory that has guards: a workspace may begin like this.
            return plain
        if plain.dtype not in DTYPE_NAMES or plain.dtype is torch.bool or plain.is_meta or not _is_dense(plain):
            if filled is None and plain.dtype in DTYPE_NAMES and is_strided(plain) and may_be_filled(plain):
                fill_gaps(plain)
            return plain
        start = GUARD // plain.element_size()
        base = torch.empty(plain.numel() + 2 * start, dtype=plain.dtype, device=plain.device)
        fill_poison(base)
        view = torch.as_strided(unguarded_storage(base, start, plain.numel()), plain.shape, plain.stride())
        if filled is not None:
            view.copy_(filled)
        elif (value := _fill.get()) is not None:
            view.fill_(value)
        self.guarded.append(Allocation(base, start, plain.numel(), filled))
        return view

    def outside_writes(self, names: Mapping[int, str]) -> list[Access]:
        """Accesses that wrote over the guards of any allocation; `names` are names of outputs by data pointer."""
        return [access for allocation in self.guarded for access in allocation.outside_writes(names)]


def fill_gaps(tensor: torch.Tensor, before: int = 0) -> None:
    """Fills a tensor and the gaps between its elements, around which there are no guards, but for its memory's first
    bytes, which were there `before`."""
    length, size = tensor.untyped_storage().nbytes() // tensor.element_size(), tensor.element_size()
    whole = torch.as_strided(tensor, (length,), (1,), 0)[-(-before // size) :]
    if (value := _fill.get()) is None:
        fill_poison(whole)
    else:
        whole.fill_(value)


def unguarded_storage(base: torch.Tensor, start: int, length: int) -> torch.Tensor:
    """The elements between the guards of a flat tensor, as a tensor whose storage begins and ends with them.

    What makes views of a new tensor from an offset in its storage, as torch's gradient of as_strided does, counts from
    the tensor's first element.
    """
    words = base.view(WORD_DTYPES[base.element_size()])[start : start + length]
    return torch._C._from_dlpack(torch._C._to_dlpack(words)).view(base.dtype)


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors among an operation's arguments or results."""
    return [one for one in leaves(value) if isinstance(one, torch.Tensor)]


def leaves(value: Any) -> Iterator[Any]:
    """What an argument or a result of an operation is, or what its lists hold."""
    if isinstance(value, list | tuple):
        for one in value:
            yield from leaves(one)
    else:
        yield value


class OperationTraits(NamedTuple):
    """What an operation of torch does to memory: its result is not initialised, or filled, or a view of an argument; it
    may change nothing of a tensor but where its elements are."""

    operation: Any
    is_uninitialised: bool
    is_filled: bool
    is_view: bool
    is_mutable: bool
    only_moves: bool


_traits: dict[int, OperationTraits] = {}
"""By the identity of an operation, whose own hash is computed in Python at each look."""


def find_traits(func: Any) -> OperationTraits:
    """What an operation does to memory."""
    traits = _traits.get(id(func))
    if traits is None:
        schema = func._schema
        is_view = bool(schema.returns) and all(
            value.alias_info is not None and not value.alias_info.is_write for value in schema.returns
        )
        only_moves = torch.Tag.inplace_view in func.tags
        traits = OperationTraits(
            func, func in UNINITIALISED_OPS, func in FILLED_OPS, is_view, schema.is_mutable, only_moves
        )
        _traits[id(func)] = traits
    return traits


def written_tensors(schema: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[Any]:
    """The tensors that an operation changes."""
    for number, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[number] if number < len(args) else kwargs.get(argument.name)
            yield from value if isinstance(value, list | tuple) else (value,)


def may_be_filled(tensor: torch.Tensor) -> bool:
    """Whether all memory of a new tensor may be filled."""
    return _is_dense(tensor) or tensor.untyped_storage().nbytes() <= PADDED_BYTES


def _is_dense(tensor: torch.Tensor) -> bool:
    return tensor.numel() == 0 or tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
