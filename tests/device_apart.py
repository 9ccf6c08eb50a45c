"""A pretended device: its tensors lie in the processor's memory, but no operation takes them beside the processor's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from traceback import extract_stack
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._mode_utils import no_dispatch
from torch.utils._pytree import tree_leaves, tree_map_only

from fuzz.backends import BACKENDS, launcher_allocations
from fuzz.backends.base import Session
from fuzz.backends.cpu.backend import CpuBackend
from fuzz.backends.cpu.runtime import launcher
from fuzz.backends.dispatch_mode import DispatchMode
from fuzz.backends.launcher_allocations import unguarded_storage, written_tensors

NAME = "lazy"
"""Torch's name of a device for which nothing is registered: its type is as good as any other, but no tensor has it."""
APART = torch.device(NAME)
MESSAGE = "Expected all tensors to be on the same device, but found at least two devices, apart and cpu!"
ATEN = torch.ops.aten
COPIES = {ATEN.copy_, ATEN._foreach_copy_, ATEN._to_copy, ATEN.to}
"""Operations that take tensors of both devices."""
INDEXING = {ATEN.index, ATEN._unsafe_index, ATEN.index_put, ATEN.index_put_, ATEN._index_put_impl_}
"""Operations whose indices, the second argument, may be the processor's for a tensor that is apart."""
TAKING_NUMBERS = {ATEN.masked_fill, ATEN.masked_fill_, ATEN.index_fill, ATEN.index_fill_, ATEN.fill, ATEN.fill_}
"""Operations beside those by elements to which a number may come as a tensor of the processor without dims."""
mixtures: list[str] = []
"""Where operations were refused."""


class ApartTensor(torch.Tensor):
    """A tensor of the pretended device; `host` is the processor's tensor of its memory."""

    host: torch.Tensor

    @staticmethod
    def __new__(cls, host: torch.Tensor) -> ApartTensor:
        made: ApartTensor = torch.Tensor._make_subclass(cls, host, False, dispatch_device=True)
        made.host = host
        return made

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return compute(func, args, kwargs or {})

    __torch_function__ = torch._C._disabled_torch_function_impl

    def numpy(self, **_: Any) -> Any:
        raise TypeError("can't convert apart device type tensor to numpy. Use Tensor.cpu() to copy the tensor first")

    def __array__(self, *_: Any, **named: Any) -> Any:
        return self.numpy()

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def new_tensor(self, data: Any, **named: Any) -> torch.Tensor:
        return torch.tensor(data, **{"dtype": self.dtype, "device": APART, **named})

    def __getitem__(self, index: Any) -> torch.Tensor:
        return super().__getitem__(with_tensors(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(with_tensors(index), value)


def compute(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The result of an operation, on the device where CUDA's would be. RuntimeError where it takes tensors of both."""
    if func is torch.ops.prim.device.default:
        return APART
    tensors = tensors_in((args, kwargs))
    if any(type(one) not in (torch.Tensor, torch.nn.Parameter, ApartTensor) for one in tensors):
        return NotImplemented
    apart = {id(one.host): one for one in tensors if isinstance(one, ApartTensor)}
    if apart and not all(isinstance(one, ApartTensor) for one in tensors) and is_refused(func, args, kwargs):
        mixtures.append(f"{func} at {' < '.join(lines_of_product())}")
        raise RuntimeError(MESSAGE)
    devices = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.device)]
    to_apart = is_apart(devices[0]) if devices else bool(apart)
    there = {id(one): one for one in tensors if not isinstance(one, ApartTensor)}

    def placed(one: torch.Tensor) -> torch.Tensor:
        if func._schema.is_mutable and id(one) in there:
            return one
        if not to_apart:
            return one.clone() if id(one) in apart else one
        return apart[id(one)] if id(one) in apart else ApartTensor(one.clone() if id(one) in there else one)

    hosts, named = tree_map_only(torch.device, lambda _: torch.device("cpu"), (args, kwargs))
    hosts, named = tree_map_only(ApartTensor, lambda one: one.host, (hosts, named))
    result = func(*hosts, **named)
    if apart and torch.Tag.inplace_view in func.tags:
        # Such an operation changes the shape of a tensor itself, which its tensor of the processor does not share.
        with no_dispatch():
            func(*args, **kwargs)
    return tree_map_only(torch.Tensor, placed, result)


def is_refused(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether CUDA refuses an operation with these arguments, tensors of both devices."""
    packet = func.overloadpacket
    if packet in COPIES:
        return False
    if any(
        isinstance(one, torch.Tensor) and not isinstance(one, ApartTensor)
        for one in tensors_in(list(written_tensors(func._schema, args, kwargs)))
    ):
        return True
    if packet in INDEXING and isinstance(args[0], ApartTensor):
        args = (args[0], *args[2:])
    takes_numbers = torch.Tag.pointwise in func.tags or packet in (TAKING_NUMBERS | INDEXING)
    plain = [one for one in tensors_in((args, kwargs)) if not isinstance(one, ApartTensor)]
    return any(one.dim() or not takes_numbers for one in plain)


def is_apart(device: Any) -> bool:
    return device is not None and torch.device(device).type == NAME


def tensors_in(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def with_tensors(index: Any) -> Any:
    """An index with tensors for its lists, which torch puts on a device by operations that it does not dispatch."""
    if isinstance(index, tuple):
        return tuple(with_tensors(part) for part in index)
    return torch.tensor(index, dtype=None if index else torch.long) if isinstance(index, list) else index


def lines_of_product() -> list[str]:
    """The lines of the product that are running, the innermost one first."""
    frames = [frame for frame in extract_stack() if "/fuzz/" in frame.filename]
    return [f"{frame.filename.rpartition('/fuzz/')[2]}:{frame.lineno}" for frame in reversed(frames)]


class ApartOperations(DispatchMode):
    """Makes tensors of the pretended device where operations are asked for them."""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return compute(func, args, kwargs or {})


def on_the_host_first(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A function that makes a tensor of data, which torch puts on a device by operations that it does not dispatch."""

    def made(data: Any, *args: Any, device: Any = None, **kwargs: Any) -> torch.Tensor:
        if is_apart(device) and not isinstance(data, torch.Tensor):
            return make(data, *args, device="cpu", **kwargs).to(APART)
        return make(data, *args, device=device, **kwargs)

    return made


class ApartBackend(CpuBackend):
    """The `cpu` backend, whose kernels run on tensors of the pretended device."""

    device = NAME

    @contextmanager
    def session(self, order: int | None) -> Iterator[Session]:
        with kernels_take_it(), super().session(order) as session:
            yield session

    @contextmanager
    def uninstrumented(self) -> Iterator[None]:
        with kernels_take_it(), super().uninstrumented():
            yield


@contextmanager
def kernels_take_it() -> Iterator[None]:
    """Lets launches of the `cpu` backend take tensors of the pretended device for the processor's."""

    def attribute(value: object, name: str, *default: object) -> object:
        return True if isinstance(value, ApartTensor) and name == "is_cpu" else getattr(value, name, *default)

    def unguarded(base: torch.Tensor, start: int, length: int) -> torch.Tensor:
        if isinstance(base, ApartTensor):
            return ApartTensor(unguarded_storage(base.host, start, length))
        return unguarded_storage(base, start, length)

    with (
        patch.object(launcher, "getattr", attribute, create=True),
        patch.object(launcher_allocations, "unguarded_storage", unguarded),
    ):
        yield


@contextmanager
def device_apart() -> Iterator[list[str]]:
    """Pretends that there is the device, and that the backend `cpu` is on it.

    Gives where operations were refused since, which code may suppress.
    """
    mixtures.clear()
    makers = {name: on_the_host_first(getattr(torch, name)) for name in ("tensor", "as_tensor", "asarray")}
    with patch.dict(BACKENDS, cpu=ApartBackend()), patch.multiple(torch, **makers), ApartOperations():
        yield mixtures
