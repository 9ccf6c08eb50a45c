"""Compiles for the GPU that CUDA's driver describes, in a process that never uses it.

CUDA makes no context for that, which would take a second and half a GiB in each process.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import driver as nvidia

from fuzz.backends.base import Backend
from fuzz.backends.cuda import shared_memory
from fuzz.backends.cuda.launch_loop import driver as cuda
from fuzz.backends.triton_host.compile_only import Accelerator, compile_for, front_end_only, launch_nothing
from fuzz.backends.triton_host.fake_cuda import WARP
from fuzz.backends.triton_host.patching import patched

ATTRIBUTES = {
    "multiprocessor_count": 16, "max_shared_mem": 97, "max_num_regs": 12, "warpSize": 10, "sm_clock_rate": 13,
    "mem_clock_rate": 36, "mem_bus_width": 37, "major": 75, "minor": 76,
}  # fmt: skip
"""CUdevice_attribute by name of the properties that Triton and launchers read."""
NOT_TRITONS = ("major", "minor", "total_memory")
"""Properties that Triton's driver does not give."""


class CompileOnlyBackend(Backend):
    """A backend that compiles for an NVIDIA GPU and does nothing else."""

    name = "cuda"
    arithmetic = "libdevice"

    def __init__(self) -> None:
        self.patches = ExitStack()

    def prepare(self, counters: bool = False) -> None:
        """Sets up for good. Raises as `read_properties` does."""
        self.patches.enter_context(compile_only(read_properties()))

    def front_end_only(self) -> AbstractContextManager[None]:
        return front_end_only()


@contextmanager
def compile_only(properties: Mapping[str, int]) -> Iterator[None]:
    """Inside, kernels are compiled for a GPU with these properties and not launched."""
    capability = properties["major"], properties["minor"]
    target = GPUTarget("cuda", 10 * capability[0] + capability[1], WARP)
    given = {name: value for name, value in properties.items() if name not in NOT_TRITONS}
    accelerator = Accelerator(target, capability, given, properties["total_memory"])
    with compile_for(accelerator, make_launcher), patched(shared_memory.PATCHES):
        yield


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


def make_launcher(source: Any, metadata: Any) -> Callable[..., None]:
    """A function to call in place of a launch. Up to Triton 3.6 a launcher is compiled for each signature too."""
    if hasattr(nvidia, "make_launcher"):
        with suppress(Exception):  # The process that launches reports the error.
            nvidia.CudaLauncher(source, metadata)
    return launch_nothing
