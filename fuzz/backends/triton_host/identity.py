"""Pretends that CPU tensors are on a GPU, for code that compares devices by name or allocates on `cuda`.

While the pretence is on, `tensor.device` is `cuda:0` for everybody but this package, and a device `cuda` among the
arguments of torch's functions is the CPU. It holds in the thread that began it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from triton._C.libtriton import nvidia
from triton.backends import backends
from triton.backends.compiler import GPUTarget

from fuzz.backends.triton_host.blas import CublasLt
from fuzz.backends.triton_host.generators import PhiloxGenerator
from fuzz.backends.triton_host.knobs import knobs
from fuzz.backends.triton_host.patching import Patch, patched

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
NAME = re.compile(r"cuda(:\d+)?")
PACKAGE = __name__.partition(".")[0] + "."
DEVICE_OF: Any = torch.Tensor.device.__get__
NUMBER_OF: Any = torch.Tensor.get_device
WARP = 32
CUDA_VERSION = "12.8"


class PretendedTarget(GPUTarget):  # type: ignore[misc]
    """Triton's target of an NVIDIA GPU, for which the cpu backend compiles."""


def pretended_target() -> PretendedTarget:
    major, minor = knobs.capability
    return PretendedTarget("cuda", 10 * major + minor, WARP)


class DevicePretence(TorchFunctionMode):
    """Answers for devices, and takes those of a GPU for the CPU, in every function of torch."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func == DEVICE_OF or func == NUMBER_OF:
            return self.device(func, args[0], sys._getframe(1).f_globals.get("__name__", ""))
        if func is torch.device:
            return func(*args, **(kwargs or {}))
        keywords = {name: on_cpu(value) for name, value in (kwargs or {}).items() if name != "pin_memory"}
        return func(*map(on_cpu, args), **keywords)

    @staticmethod
    def device(func: Callable[..., Any], tensor: torch.Tensor, caller: str) -> Any:
        real = func(tensor)
        if caller.startswith(PACKAGE) or real not in (CPU, -1):
            return real
        return GPU if isinstance(real, torch.device) else GPU.index


def on_cpu(value: Any) -> Any:
    """An argument, with the CPU in place of a GPU."""
    if isinstance(value, torch.device):
        return CPU if value.type == "cuda" else value
    return "cpu" if isinstance(value, str) and NAME.fullmatch(value) else value


class AnyGenerator(type(torch.Generator)):  # type: ignore[misc]
    """Every generator of torch is an instance of its classes."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, real_generator)


real_generator = torch.Generator


class HostGenerator(PhiloxGenerator, metaclass=AnyGenerator):
    """`torch.Generator`, of any device."""


def supports_real_targets(supports: Callable[[GPUTarget], bool]) -> Any:
    """What another backend of Triton says, but of the pretended target."""
    return staticmethod(lambda target: not isinstance(target, PretendedTarget) and supports(target))


@contextmanager
def pretence(driver: Any) -> Iterator[None]:
    """Inside, CPU tensors and Triton's driver, an instance or class, say that they are of a GPU."""
    others = [backend.compiler for name, backend in backends.items() if name != "cpu"]
    patches = [
        Patch(driver, "get_current_target", pretended_target),
        Patch(driver, "get_active_torch_device", lambda: GPU),
        Patch(torch, "Generator", HostGenerator),
        Patch(nvidia.cublas, "CublasLt", CublasLt),
        Patch(torch.version, "cuda", CUDA_VERSION),
        *(Patch(other, "supports_target", supports_real_targets(other.supports_target)) for other in others),
    ]
    with patched(patches), DevicePretence():
        yield
