"""Compiles what a launcher would launch on a GPU into Triton's cache on disk, in a process that never uses the GPU.

The launcher runs on CPU tensors with the alignment of those on the GPU, so that it asks for the same specialisations,
which Triton compiles for the GPU that the driver describes. No kernel runs, nothing is allocated on the GPU, and CUDA
makes no context, which would take a second and half a GiB in each process.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import driver as nvidia
from triton.runtime.driver import driver as drivers

from fuzz.backends.base import Backend
from fuzz.backends.cpu.runtime.driver import UNLIMITED, CPUDriver, Utilities
from fuzz.backends.cuda.launch_loop import driver as cuda
from fuzz.backends.triton_host import autotune
from fuzz.backends.triton_host.fake_cuda import PATCHES, WARP
from fuzz.backends.triton_host.knobs import knobs
from fuzz.backends.triton_host.patching import Patch, patched

ATTRIBUTES = {
    "multiprocessor_count": 16, "max_shared_mem": 97, "max_num_regs": 12, "warpSize": 10, "sm_clock_rate": 13,
    "mem_clock_rate": 36, "mem_bus_width": 37, "major": 75, "minor": 76,
}  # fmt: skip
"""CUdevice_attribute by name of the properties that Triton and launchers read."""
CAPABILITY = ("major", "minor")
"""Attributes that Triton's driver does not give as properties."""


def read_properties() -> dict[str, int]:
    """Properties of the first GPU by CUDA's driver, without a context. Raises OSError where there is no driver,
    RuntimeError where it finds no GPU or lacks an attribute."""
    device, value, properties = ctypes.c_int(), ctypes.c_int(), {}
    if cuda().cuInit(0) or cuda().cuDeviceGet(ctypes.byref(device), 0):
        raise RuntimeError("CUDA's driver finds no GPU")
    for name, attribute in ATTRIBUTES.items():
        if cuda().cuDeviceGetAttribute(ctypes.byref(value), attribute, device):
            raise RuntimeError(f"CUDA's driver does not know {name}")
        properties[name] = value.value
    total = ctypes.c_size_t()
    cuda().cuDeviceTotalMem_v2(ctypes.byref(total), device)
    return properties | {"total_memory": total.value}


class DriverUtilities(Utilities):
    """Gives the GPU's properties to Triton; a compiled kernel is not loaded."""

    def __init__(self, properties: Mapping[str, int]) -> None:
        self.properties = properties

    def get_device_properties(self, device: Any) -> dict[str, int]:
        return {name: self.properties[name] for name in ATTRIBUTES if name not in CAPABILITY}

    def load_binary(self, name: str, kernel: bytes, shared: int, device: Any) -> tuple[Any, Any, int, int, int]:
        return None, None, 0, 0, UNLIMITED


def make_launcher(src: Any, metadata: Any) -> Callable[..., None]:
    """A function to call in place of a launch. Up to Triton 3.6 a launcher is compiled for each signature too."""
    if hasattr(nvidia, "make_launcher"):
        with suppress(Exception):  # The process that launches reports the error.
            nvidia.CudaLauncher(src, metadata)
    return launch_nothing


def launch_nothing(*_: Any) -> None:
    """Nothing is launched."""


class CompileOnlyDriver(CPUDriver):
    """Triton's driver of a GPU for which everything is compiled and nothing launched."""

    launcher_cls = staticmethod(make_launcher)

    def __init__(self, properties: Mapping[str, int]) -> None:
        super().__init__()
        self.target = GPUTarget("cuda", 10 * properties["major"] + properties["minor"], WARP)
        self.utils = DriverUtilities(properties)
        self.get_current_device: Callable[[], Any] = lambda: 0

    def get_current_target(self) -> GPUTarget:
        return self.target


def refuse(*_: Any) -> None:
    raise RuntimeError("nothing runs on a GPU in a process that only compiles for it")


class CompileOnlyBackend(Backend):
    """A backend that compiles for a GPU and does nothing else."""

    name = "cuda"
    arithmetic = "libdevice"

    def __init__(self) -> None:
        self.patches = ExitStack()

    def prepare(self, counters: bool = False) -> None:
        """Sets up for good. Raises as `read_properties` does."""
        self.patches.enter_context(compile_only(read_properties()))


@contextmanager
def compile_only(properties: Mapping[str, int]) -> Iterator[None]:
    """Inside, kernels are compiled for a GPU with these properties and not launched."""
    device = {name: properties[name] for name in ("multiprocessor_count", "max_shared_mem", "total_memory")}
    patches = [*PATCHES, *autotune.PATCHES]
    patches += [Patch(drivers, "_active", CompileOnlyDriver(properties)), Patch(torch.cuda, "_lazy_init", refuse)]
    with knobs.set(capability=(properties["major"], properties["minor"]), **device), patched(patches):
        yield
