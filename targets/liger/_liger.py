"""liger-kernel under the names of its newest release, whatever release is installed.

An older release lacks a function, or an argument of it, or documents narrower limits: what asks for more is refused, as
an input is.
"""

import importlib
import inspect
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import liger_kernel  # Where the extra is missing, no target of this folder can be loaded.
import torch

from fuzz import target

# Of each operation the library names the implementations for other devices that it cannot import.
logging.getLogger("liger_kernel").setLevel(logging.ERROR)
# By default cuDNN truncates the operands of float32 convolutions to tf32, which is not what is tested here.
torch.backends.cudnn.allow_tf32 = False

DEVICE, OLDER = "there is no such device here", "the newest release has it"
CHOICE = "there is one implementation for this device, and none is asked for by name"
OTHER_DEVICES = (
    "*xpu*", "*npu_*", "*'npu'*", "*is_hip*", "*.device.type*", "*_arch*", "*large_grf_mode*",
    "*device_context*", "*infer_device*", "*_should_tile*", "*_tile_settings*", "*_kernel_tiled*",
)  # fmt: skip
"""What runs on other devices."""
UNREACHED = {
    **dict.fromkeys(OTHER_DEVICES, DEVICE),
    **dict.fromkeys(("* found:*", "* applied:*", "* takes:*", "* beyond:*", "* permits:*", "*leaves_as_before*"), OLDER),
    **dict.fromkeys(("*Capability*", "*resolve_impl*", "*_memo_key*", "*discover*", "*dispatch*", "*OpImpl*"), CHOICE),
    **dict.fromkeys(("*DTensor*", "*dtensor*"), "tensors spread over devices are not drawn"),
    **dict.fromkeys(
        ("*_softmax_multi_block*", "*`n_cols <= BLOCK_SIZE`*"), "a block is as wide as its row, or the row is refused"
    ),
}
"""Why parts of the library cannot be reached, beside what a target says of its own."""
MODULES = "liger_kernel.transformers"
MODEL_LIBRARIES = ("peft", "transformers")
OFF = (None, False, 0, 1.0, -100)
"""What an argument is that leaves the arithmetic as it was before there was such an argument."""
WAYS = ("in_place", "row_mode")
"""Arguments that ask for a way to compute, not for another value: before there was one, either way was taken."""


def liger(**declaration: Any) -> Callable[..., Any]:
    """Declares a target of the library: it promises no bits for other layouts, which it copies or walks otherwise."""
    return target(**{"layout": "envelope", "unreached": UNREACHED, "imports": ["_operations"], **declaration})


def same_bits(file: str) -> bool | str:
    """`deterministic=` of a target by this release's file of its operation: why bits may differ, or True."""
    path = Path(liger_kernel.__path__[0], "ops", file)
    adds = path.exists() and "tl.atomic_add(" in path.read_text("utf-8")
    return "gradients of parameters are sums by atomic additions" if adds else True


@contextmanager
def without_models() -> Iterator[None]:
    """What is imported inside finds no library of models, and of the package of modules only what it names itself.

    That package imports the libraries to patch their models, which takes seconds; no operation or module needs them.
    """
    modules = ModuleType(MODULES)
    modules.__path__ = [str(Path(liger_kernel.__path__[0], "transformers"))]
    absent = {MODULES: modules, **dict.fromkeys(MODEL_LIBRARIES)}
    hidden = {name: module for name, module in absent.items() if name not in sys.modules}
    sys.modules.update(hidden)  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


@cache
def imported(name: str) -> ModuleType:
    """A module of the library by what follows its name. ImportError where it cannot be imported."""
    with without_models():
        return importlib.import_module(f"liger_kernel.{name}")


def found(place: str, package: str = "ops") -> Any:
    """The object that ``module:name`` is in a package of liger_kernel. NotImplementedError where this release lacks it."""
    module, _, name = place.partition(":")
    try:
        return getattr(imported(f"{package}.{module}"), name)
    except (ModuleNotFoundError, AttributeError):
        raise NotImplementedError(f"this release of liger-kernel has no {place}") from None


@cache
def parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function by name."""
    return inspect.signature(function).parameters


def applied(place: str, **given: Any) -> Any:
    """An autograd function's value for arguments by name; those that are not given have their defaults.

    What comes after the last one given is left out, as callers do: some backwards have no gradient for it.
    """
    function = found(place)
    parameters = dict(list(parameters_of(function.forward).items())[1:])
    for name in given.keys() - parameters.keys():
        if not leaves_as_before(name, given[name]):
            raise NotImplementedError(f"this release of liger-kernel has no argument {name} in {place}")
    last = max(place for place, name in enumerate(parameters) if name in given)
    values = [given.get(name, parameter.default) for name, parameter in parameters.items()]
    return function.apply(*values[: last + 1])


def leaves_as_before(name: str, value: Any) -> bool:
    """Whether a release without an argument computes what this value of it asks for."""
    if isinstance(value, torch.Tensor) or value is True:  # True is equal to 1.0.
        return value is True and name in WAYS
    return value in OFF


def takes(function: Callable[..., Any], name: str) -> None:
    """NotImplementedError where a function of this release does not take an argument, by which it offers more."""
    if name not in parameters_of(function):
        raise NotImplementedError(f"this release of liger-kernel has no argument {name} in {function.__qualname__}")


def beyond(place: str, limit: str) -> None:
    """NotImplementedError where this release's documents of an autograd function name the limit that is passed."""
    if limit in (found(place).forward.__doc__ or ""):
        raise NotImplementedError(f"this release of liger-kernel documents {limit} in {place}")


def permits(place: str, **settings: Any) -> None:
    """AssertionError where this release's module refuses these settings, which its autograd function does not look at.

    NotImplementedError where this release lacks the module.
    """
    try:
        found(place, "transformers")(**settings)
    except ImportError as error:
        raise NotImplementedError(f"this release of liger-kernel cannot import {place}") from error


def layer(place: str, parameters: dict[str, Any], *inputs: Any, **settings: Any) -> Any:
    """What a module of liger_kernel.transformers gives for the inputs, with these parameters in place of its own."""
    given = {name: value for name, value in parameters.items() if value is not None}
    return torch.func.functional_call(found(place, "transformers")(**settings), given, inputs)


def one_dtype(*tensors: torch.Tensor | None) -> None:
    """TypeError where the tensors, of which some may be None, are not of one dtype."""
    if len({tensor.dtype for tensor in tensors if tensor is not None}) > 1:
        raise TypeError("the tensors need one dtype")
