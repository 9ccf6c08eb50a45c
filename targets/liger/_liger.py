"""liger-kernel under the names of its newest release, whatever release is installed.

An older release lacks a function, or an argument of it: what asks for either is refused, as an input is.
"""

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import liger_kernel  # noqa: F401  Where the extra is missing, no target of this folder can be loaded.
import torch

from fuzz import target

# By default cuDNN truncates the operands of float32 convolutions to tf32, which is not what is tested here.
torch.backends.cudnn.allow_tf32 = False

HALF = ("float32", "bfloat16")
OFF = (None, False, 0, 1.0, -100)
"""What an argument is that leaves the arithmetic as it was before there was such an argument."""


def liger(**declaration: Any) -> Callable[..., Any]:
    """Declares a target of the library: it promises no bits for other layouts, which it copies or walks otherwise."""
    return target(**{"dtypes": HALF, "layout": "envelope", **declaration})


def found(place: str) -> Any:
    """The object that ``module:name`` is in liger_kernel.ops. NotImplementedError where this release lacks it."""
    module, _, name = place.partition(":")
    try:
        return getattr(importlib.import_module(f"liger_kernel.ops.{module}"), name)
    except (ModuleNotFoundError, AttributeError):
        raise NotImplementedError(f"this release of liger-kernel has no {place}") from None


def applied(place: str, **given: Any) -> Any:
    """An autograd function's value for arguments by name; those that are not given have their defaults.

    What comes after the last one given is left out, as callers do: some backwards have no gradient for it.
    """
    function = found(place)
    parameters = dict(list(inspect.signature(function.forward).parameters.items())[1:])
    for name in given.keys() - parameters.keys():
        if isinstance(given[name], torch.Tensor) or given[name] not in OFF:
            raise NotImplementedError(f"this release of liger-kernel has no argument {name} in {place}")
    last = max(place for place, name in enumerate(parameters) if name in given)
    values = [given.get(name, parameter.default) for name, parameter in parameters.items()]
    return function.apply(*values[: last + 1])


def one_dtype(*tensors: torch.Tensor) -> None:
    """TypeError where the tensors are not of one dtype."""
    if len({tensor.dtype for tensor in tensors}) > 1:
        raise TypeError("the tensors need one dtype")
