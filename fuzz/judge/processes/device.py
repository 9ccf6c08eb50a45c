"""Runs programs that ask for a GPU on another device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class OnDevice(TorchFunctionMode):
    """While active, tensors that are asked for on a GPU are made on the device of the backend."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = torch.device(device)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = {key: self._place(value) if key == "device" else value for key, value in (kwargs or {}).items()}
        if getattr(func, "__name__", "") == "to":
            args = tuple(self._place(value) for value in args)
        return func(*args, **kwargs)

    def _place(self, value: Any) -> Any:
        asked = isinstance(value, str | torch.device) and str(value).partition(":")[0]
        return self.device if asked and asked not in ("cpu", "meta") else value


class ProcessorGenerator(torch.Generator):
    """A generator that is asked for on a GPU and made on the processor."""

    def __new__(cls, device: Any = None) -> ProcessorGenerator:
        make: Callable[..., ProcessorGenerator] = super().__new__
        return make(cls, device="cpu")


def leave_uncompiled(function: Any = None, **options: Any) -> Any:
    """Stands for ``torch.compile``, as a function and as a decorator with options: what it is given stays as it is."""
    return function if function is not None else lambda given: given


def stay_on_processor() -> None:
    """Has programs allocate and make generators on the processor from now on, and compile nothing but Triton's kernels.

    ``_empty_strided_cuda`` is what the code that Inductor writes allocates by.
    """
    torch.Generator = ProcessorGenerator  # type: ignore[misc]
    torch.compile = leave_uncompiled  # type: ignore[assignment]
    guards = torch._C._dynamo.guards
    guards._empty_strided_cuda = guards._empty_strided_cpu  # type: ignore[attr-defined]
