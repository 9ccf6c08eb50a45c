"""Pretends that CPU tensors are on a GPU, for code that compares devices by name or allocates on `cuda`.

While the pretence is on, `tensor.device` is `cuda:0` for everybody but this package, and a device `cuda` among the
arguments of torch's functions is the CPU. It holds in the thread that began it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from triton._C.libtriton import nvidia
from triton.backends import backends
from triton.backends.compiler import GPUTarget

from fuzz.backends.triton_host.blas import CublasLt
from fuzz.backends.triton_host.dynamo import patched_dynamo
from fuzz.backends.triton_host.generators import PhiloxGenerator
from fuzz.backends.triton_host.knobs import knobs
from fuzz.backends.triton_host.patching import Patch, patched
from fuzz.backends.triton_host.pretence import compiled_functions, devices, operators, programs
from fuzz.backends.triton_host.pretence.devices import GPU

WARP = 32
CUDA_VERSION = "12.8"


class PretendedTarget(GPUTarget):  # type: ignore[misc]
    """Triton's target of an NVIDIA GPU, for which the cpu backend compiles."""


def pretended_target() -> PretendedTarget:
    major, minor = knobs.capability
    return PretendedTarget("cuda", 10 * major + minor, WARP)


class AnyGenerator(type(torch.Generator)):  # type: ignore[misc]
    """Every generator of torch is an instance of its classes."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, real_generator)


real_generator = torch.Generator


class HostGenerator(PhiloxGenerator, metaclass=AnyGenerator):
    """`torch.Generator`, of any device."""


def pretended_device(real: Callable[[], str]) -> Callable[[], str]:
    """What names the device by which Triton's caches in memory know kernels for the pretended target."""

    def name() -> str:
        major, minor = knobs.capability
        return f"{real()}:sm_{major}{minor}"

    return name


def supports_real_targets(supports: Callable[[GPUTarget], bool]) -> Any:
    """What another backend of Triton says, but of the pretended target."""
    return staticmethod(lambda target: not isinstance(target, PretendedTarget) and supports(target))


@contextmanager
def pretence(driver: Any) -> Iterator[list[Patch]]:
    """Inside, CPU tensors and Triton's driver, an instance or class, say that they are of a GPU. The block gets the
    patches that restore what was there before."""
    others = [backend.compiler for name, backend in backends.items() if name != "cpu"]
    patches = [
        Patch(driver, "get_current_target", pretended_target),
        Patch(driver, "get_current_device", pretended_device(driver.get_current_device)),
        Patch(driver, "get_active_torch_device", lambda: GPU),
        Patch(torch, "Generator", HostGenerator),
        Patch(nvidia.cublas, "CublasLt", CublasLt),
        Patch(torch.version, "cuda", CUDA_VERSION),
        *(Patch(other, "supports_target", supports_real_targets(other.supports_target)) for other in others),
        *devices.PATCHES,
        *operators.PATCHES,
    ]
    with (
        patched(patches) as before,
        patched_dynamo(compiled_functions.patches),
        devices.pretended_devices(),
        programs.pretended_programs(),
    ):
        yield before
