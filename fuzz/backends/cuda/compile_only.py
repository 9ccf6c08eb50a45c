"""Ahead: what a launcher would launch on a GPU, compiled into Triton's cache on disk by a process that never uses it.

The launcher runs on CPU tensors that lie as those on the GPU would, so that it asks for the same specialisations, which
Triton compiles for the GPU that the driver tells of. No kernel runs, nothing is allocated on the GPU, and CUDA makes no
context, which would take a second and half a GiB in each process.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import driver as nvidia
from triton.runtime.driver import driver as drivers

from fuzz.backends.base import Session
from fuzz.backends.cpu.runtime.activation import patched
from fuzz.backends.cpu.runtime.driver import UNLIMITED, CPUDriver, Utilities
from fuzz.backends.cuda.launch_loop import driver as cuda
from fuzz.backends.triton_host import autotune
from fuzz.backends.triton_host.fake_cuda import PATCHES, WARP, Patch
from fuzz.backends.triton_host.knobs import knobs
from fuzz.model.outcome import Returned

ASKED = {
    "multiprocessor_count": 16, "max_shared_mem": 97, "max_num_regs": 12, "warpSize": 10, "sm_clock_rate": 13,
    "mem_clock_rate": 36, "mem_bus_width": 37, "major": 75, "minor": 76,
}  # fmt: skip
"""CUdevice_attribute of what Triton and launchers ask."""
OTHERWISE_TOLD = ("major", "minor")
"""Those that a driver of Triton's does not tell as properties."""


def properties() -> dict[str, int]:
    """What CUDA's driver tells of the first GPU; this makes no context. OSError without a driver, RuntimeError."""
    device, value, found = ctypes.c_int(), ctypes.c_int(), {}
    if cuda().cuInit(0) or cuda().cuDeviceGet(ctypes.byref(device), 0):
        raise RuntimeError("CUDA's driver finds no GPU")
    for name, attribute in ASKED.items():
        if cuda().cuDeviceGetAttribute(ctypes.byref(value), attribute, device):
            raise RuntimeError(f"CUDA's driver does not tell {name}")
        found[name] = value.value
    total = ctypes.c_size_t()
    cuda().cuDeviceTotalMem_v2(ctypes.byref(total), device)
    return found | {"total_memory": total.value}


class Answers(Utilities):
    """Properties of the GPU; a compiled kernel is not loaded."""

    def __init__(self, told: Mapping[str, int]) -> None:
        self.told = told

    def get_device_properties(self, device: Any) -> dict[str, int]:
        return {name: self.told[name] for name in ASKED if name not in OTHERWISE_TOLD}

    def load_binary(self, name: str, kernel: bytes, shared: int, device: Any) -> tuple[Any, Any, int, int, int]:
        return None, None, 0, 0, UNLIMITED


def launcher(src: Any, metadata: Any) -> Callable[..., None]:
    """What is called in the place of a launch. Up to Triton 3.6 a launcher is compiled for each signature too."""
    if hasattr(nvidia, "make_launcher"):
        with suppress(Exception):  # The process that launches says what is wrong.
            nvidia.CudaLauncher(src, metadata)
    return nothing


def nothing(*_: Any) -> None:
    """Nothing is launched."""


class Driver(CPUDriver):
    """A GPU, for which everything is compiled and nothing launched."""

    launcher_cls = staticmethod(launcher)

    def __init__(self, told: Mapping[str, int]) -> None:
        super().__init__()
        self.target = GPUTarget("cuda", 10 * told["major"] + told["minor"], WARP)
        self.utils = Answers(told)
        self.get_current_device: Callable[[], Any] = lambda: 0

    def get_current_target(self) -> GPUTarget:
        return self.target


def refuse(*_: Any) -> None:
    raise RuntimeError("nothing runs on a GPU in a process that only compiles for it")


class Ahead:
    """A backend that compiles for a GPU, and does nothing else."""

    name = "cuda"
    device = "cpu"

    def __init__(self) -> None:
        self.kept = ExitStack()

    def unusable(self) -> str:
        """Never: it stands for the backend `cuda`, which says it."""
        return ""

    def prepare(self, counters: bool = False) -> None:
        """For good. Raises where the GPU cannot be asked what it is."""
        self.kept.enter_context(compiling(properties()))

    def told(self, outcome: Returned) -> tuple[tuple[int, ...], tuple[float, ...]]:
        return (), ()

    @contextmanager
    def session(self, order: int | None) -> Iterator[Session]:
        yield Session()

    def unwatched(self) -> Any:
        return nullcontext()

    def finish(self) -> None:
        """Nothing runs."""

    def fatal(self, error: BaseException) -> bool:
        return False

    def crowded(self, error: BaseException) -> str:
        return ""


@contextmanager
def compiling(told: Mapping[str, int]) -> Iterator[None]:
    """Inside, kernels are compiled for a GPU with these properties and not launched."""
    device = {name: told[name] for name in ("multiprocessor_count", "max_shared_mem", "total_memory")}
    patches = [*PATCHES, *autotune.PATCHES]
    patches += [Patch(drivers, "_active", Driver(told)), Patch(torch.cuda, "_lazy_init", refuse)]
    with knobs.set(capability=(told["major"], told["minor"]), **device), patched(patches):
        yield
