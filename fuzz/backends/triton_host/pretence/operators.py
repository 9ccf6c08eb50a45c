"""Lets kernels that libraries register for CUDA take the CPU tensors that stand for those of a GPU.

`torch.library.Library.impl`, by which every registration in Python goes, then registers them for the CPU as well. A new
operator, one that the CPU has no kernel of, gets its kernel wherever the pretence is on. An operator of the CPU, such
as one of aten, is replaced only in a program of its own: elsewhere references of the same process compute with it. What
this package itself computes takes the CPU's, and so do calls whose operands are numbers alone: torch makes tensors of
the CPU of these, also beside a GPU.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from numbers import Number
from typing import Any

import torch
from torch.library import Library
from torch.utils._pytree import tree_leaves

from fuzz.backends.triton_host.patching import Patch
from fuzz.backends.triton_host.pretence import attention, devices, dtypes
from fuzz.backends.triton_host.pretence.devices import PACKAGE, resumed

CPU_KEYS = {"CUDA": "CPU", "AutogradCUDA": "AutogradCPU"}
"""The key of the CPU for each of a GPU."""
PASSED_ON = ("torch", attention.__name__, devices.__name__, dtypes.__name__, __name__)
"""Modules that call on behalf of others."""
real_impl: Any = Library.impl
new_operators: set[str] = set()


class Replacement:
    """Whether libraries may replace operators of the CPU, as in a program of its own."""

    is_allowed = False


@contextmanager
def replaceable() -> Iterator[None]:
    """Inside, libraries may replace operators of the CPU."""
    before, Replacement.is_allowed = Replacement.is_allowed, True
    try:
        yield
    finally:
        Replacement.is_allowed = before


def impl(
    library: Any, op_name: Any, fn: Any, dispatch_key: str = "", *, with_keyset: bool = False, **keywords: Any
) -> None:
    """`Library.impl`, for the CPU as well where it is for a GPU."""
    function = fn if fn is torch.library.fallthrough_kernel or not callable(fn) else resumed(fn)
    key = dispatch_key or library.dispatch_key
    real_impl(library, op_name, function, key, with_keyset=with_keyset, **keywords)
    if key in CPU_KEYS and function is not fn:
        name = op_name if isinstance(op_name, str) else op_name.name()
        name = name if "::" in name else f"{library.ns}::{name}"
        register(library, name, CPU_KEYS[key], function, with_keyset)
        if name == attention.GPU_KERNEL and key == "CUDA":
            register(library, attention.CPU_KERNEL, "CPU", resumed(attention.flash_attention), with_keyset=False)


def register(library: Any, name: str, key: str, function: Callable[..., Any], with_keyset: bool) -> None:
    """Registers a GPU's kernel of an operator, whose whole name is given, for a key of the CPU."""
    if name in new_operators or not torch._C._dispatch_has_computed_kernel_for_dispatch_key(name, "CPU"):
        new_operators.add(name)
        real: Callable[..., Any] = AbsentKernel(name)
    elif Replacement.is_allowed:
        real = torch.library.get_kernel(name, key).call_boxed
    else:
        if name.startswith("aten::"):
            warnings.warn(
                "kernels that aten operators get for CUDA are called only in a program of its own, under "
                "python -m fuzz.backends.cpu: the CPU's stay",
                stacklevel=4,
            )
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "[\\s\\S]*Overriding a previously registered kernel", UserWarning)
        library.m.impl(name, key, PretendedKernel(name, function, real, with_keyset), True)


class AbsentKernel:
    """What the CPU does of an operator that it has no kernel of."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError(
            f"Could not run '{self.name}' with arguments from the 'CPU' backend: its kernel is that of a GPU, "
            "and the pretence of one is not on in this thread"
        )


class Choice(threading.local):
    """Whether the thread takes the CPU's kernels of all operators."""

    is_cpu = False


choice = Choice()


class PretendedKernel:
    """A kernel for the CPU: that of the GPU where the pretence is on, for everybody but this package."""

    def __init__(self, name: str, function: Callable[..., Any], real: Callable[..., Any], with_keyset: bool) -> None:
        self.name, self.function, self.real, self.with_keyset = name, function, real, with_keyset

    def __call__(self, keyset: Any, *args: Any, **keywords: Any) -> Any:
        if choice.is_cpu or not devices.depth.value:
            return self.real(keyset, *args, **keywords)
        takes_numbers = any(
            is_tensor and isinstance(value, Number) for is_tensor, value in zip(self.takes_tensors, args, strict=False)
        )
        if takes_numbers and not has_tensor((args, keywords)) or asked_by_package():
            return self.of_the_cpu(*args, **keywords) if takes_numbers else self.real(keyset, *args, **keywords)
        result = self.function(*([keyset] if self.with_keyset else []), *args, **keywords)
        return self.of_the_cpu(*args, **keywords) if result is NotImplemented else result

    def of_the_cpu(self, *args: Any, **keywords: Any) -> Any:
        """What the CPU's kernel makes of operands some of which are numbers. A kernel that is called by itself takes
        tensors only, and a call of the operator makes tensors of numbers."""
        choice.is_cpu = True
        try:
            return self.operator(*args, **keywords)
        finally:
            choice.is_cpu = False

    @cached_property
    def operator(self) -> Any:
        namespace, _, name = self.name.partition("::")
        packet, _, overload = name.partition(".")
        return getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")

    @cached_property
    def takes_tensors(self) -> list[bool]:
        """Whether each argument is a tensor by the operator's schema."""
        return [isinstance(argument.type, torch.TensorType) for argument in self.operator._schema.arguments]


def has_tensor(values: Any) -> bool:
    """Whether a tensor is among arguments, or in a list of them."""
    return any(isinstance(value, torch.Tensor) for value in tree_leaves(values))


def asked_by_package() -> bool:
    """Whether the operator that runs was called by this package, itself or through functions of torch."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        caller = frame.f_globals.get("__name__", "")
        if caller not in PASSED_ON and not caller.startswith("torch."):
            return bool(caller.startswith(PACKAGE))
        frame = frame.f_back
    return False


PATCHES = [Patch(Library, "impl", impl)]
