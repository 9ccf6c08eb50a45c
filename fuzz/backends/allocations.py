"""Allocations: tensors that a launcher allocates while it runs get guards around them and poison inside.

``torch.empty`` and its kin hold poison instead of whatever memory held before, so that reading them is seen.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fuzz.backends.memory import GUARD, NAMES, WORDS, fill_poison, signed_poison
from fuzz.backends.poison import POISON
from fuzz.model.outcome import Access

aten = torch.ops.aten
UNFILLED = {
    aten.empty.memory_format,
    aten.empty_strided.default,
    aten.empty_like.default,
    aten.new_empty.default,
    aten.new_empty_strided.default,
}
FILLED = {
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

OTHER = 3
"""What memory that nobody wrote holds where poison is to be told from something else."""
_filling: ContextVar[bool] = ContextVar("filling", default=False)


@contextmanager
def otherwise_filled() -> Iterator[None]:
    """Inside, what launchers allocate holds `OTHER` and no poison, so that reading it is not seen."""
    token = _filling.set(True)
    try:
        yield
    finally:
        _filling.reset(token)


@dataclass
class Allocation:
    """`filled` has the values that it was filled with, in the order of memory; None where that was poison."""

    base: torch.Tensor
    start: int
    length: int
    filled: torch.Tensor | None = None

    def strays(self, names: Mapping[int, str]) -> list[Access]:
        """Words of the guards that changed; names maps data pointers to what the launcher returned."""
        if self.base.is_cpu and self._intact():
            return []
        flat = self.base.view(WORDS[self.base.element_size()])
        poison = flat[:1].clone().fill_(signed_poison(self.base.dtype))
        before, after = flat[: self.start] != poison, flat[self.start + self.length :] != poison
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

    def _intact(self) -> bool:
        """Whether both guards on the host hold their bytes: twenty times as fast as asking torch."""
        size = self.base.element_size()
        guard = POISON[NAMES[self.base.dtype]].to_bytes(size, sys.byteorder) * self.start
        before, after = self.base.data_ptr(), self.base.data_ptr() + (self.start + self.length) * size
        return guard == ctypes.string_at(before, GUARD) == ctypes.string_at(after, GUARD)


class GuardedAllocations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While active, allocations are guarded and poisoned; `made` lists them. `after` is told of every operation.

    `computed` is whether torch did anything else than to allocate memory and to look at it in other shapes.
    """

    def __init__(self, after: Callable[[Any, tuple[Any, ...], dict[str, Any], Any], None] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.made: list[Allocation] = []
        self.after = after
        self.computed = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing here is ever compiled; skipping would import torch._dynamo, which takes a second and a half."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = plain = func(*args, **(kwargs or {}))
        if func in UNFILLED:
            result = self._guarded(plain, None)
        elif func in FILLED:
            result = self._guarded(plain, plain)
        elif not is_view(func):
            self.computed = True
        if self.after is not None:
            self.after(func, args, kwargs or {}, result)
        return result

    def _guarded(self, plain: torch.Tensor, filled: torch.Tensor | None) -> torch.Tensor:
        if plain.dtype not in NAMES or plain.dtype is torch.bool or plain.is_meta or not _dense(plain):
            return plain
        start = GUARD // plain.element_size()
        base = torch.empty(plain.numel() + 2 * start, dtype=plain.dtype, device=plain.device)
        fill_poison(base)
        view = torch.as_strided(base, plain.shape, plain.stride(), start)
        if filled is not None:
            view.copy_(filled)
        elif _filling.get():
            view.fill_(OTHER)
        self.made.append(Allocation(base, start, plain.numel(), filled))
        return view

    def strays(self, names: Mapping[int, str]) -> list[Access]:
        return [access for allocation in self.made for access in allocation.strays(names)]


@lru_cache(maxsize=1024)
def is_view(func: Any) -> bool:
    """Whether an operation only looks at its argument's memory in another shape."""
    returned = func._schema.returns
    return bool(returned) and all(one.alias_info is not None and not one.alias_info.is_write for one in returned)


def _dense(tensor: torch.Tensor) -> bool:
    return tensor.numel() == 0 or tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
