"""Evaluates a module that was written for float32 in float64: the casts inside it are its declared roundings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

HALVES = (torch.float16, torch.bfloat16)
CASTS = {"to", "type", "half", "bfloat16", "float", "double"}
METHODS = {"half": torch.float16, "bfloat16": torch.bfloat16, "float": torch.float32}


class Promotion(TorchFunctionMode):
    """While active, what asks for float32 gets float64; a cast to 16 bits rounds, and the result is float64 again."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in CASTS and args and isinstance(args[0], torch.Tensor):
            return self._cast(func, name, args, kwargs)
        return func(*_widen(args), **{key: _widen(value) for key, value in kwargs.items()})

    def _cast(self, func: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        wanted = METHODS.get(name) or next(
            (value for value in (*args[1:], *kwargs.values()) if isinstance(value, torch.dtype)), None
        )
        if wanted in HALVES and args[0].is_floating_point():
            return args[0].to(wanted).to(torch.float64)
        if wanted is torch.float32 or wanted in HALVES:
            return args[0].to(torch.float64)
        return func(*args, **kwargs)


def _widen(value: Any) -> Any:
    """float64 in the place of a narrower format."""
    if isinstance(value, torch.dtype) and value in (torch.float32, *HALVES):
        return torch.float64
    return tuple(map(_widen, value)) if type(value) is tuple else value
