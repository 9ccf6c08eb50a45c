"""Implements the device as Triton's runtime sees it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

import torch
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime.driver import driver as drivers

from fuzz.backends.cpu.instruments import device_name
from fuzz.backends.cpu.runtime.kernel_function import load_kernel
from fuzz.backends.cpu.runtime.launcher import Launcher
from fuzz.backends.cpu.runtime.observation import current_instruments
from fuzz.backends.cpu.runtime.triton_backend import TARGET
from fuzz.backends.triton_host.knobs import knobs

UNLIMITED = 1 << 30
REGISTERS = 32
"""Of a thread: launchers divide by this number."""


class Utilities:
    """Loading of compiled kernels, and device properties."""

    def get_device_properties(self, device: Any) -> dict[str, int]:
        return {
            "max_shared_mem": knobs.max_shared_mem,
            "multiprocessor_count": knobs.multiprocessor_count,
            "max_num_regs": 65536,
            "warpSize": 1,
            "sm_clock_rate": 1_000_000,
            "mem_clock_rate": 1_000_000,
            "mem_bus_width": 64,
        }

    def load_binary(self, name: str, kernel: Any, shared: int, device: Any) -> tuple[Any, Any, int, int, int]:
        """Loads a kernel's C, a KernelText: (module, function, registers, spills, threads at most)."""
        function = load_kernel(name, kernel)
        return function, function, REGISTERS, 0, UNLIMITED

    def unload_module(self, module: Any) -> None:
        """A kernel of the GPU that ends while this driver is active; Triton 3.9 asks the active driver."""
        if drivers._default is not None:
            drivers._default.utils.unload_module(module)


def launcher(src: Any, metadata: Any) -> Callable[..., None]:
    """What Triton calls for every launch of a compiled kernel."""
    made = Launcher(src, metadata)
    run: Any = made.run
    run.launcher = made
    return cast(Callable[..., None], run)


class CPUDriver(DriverBase):  # type: ignore[misc]
    """Runs kernels in this process, one program after another."""

    utils = Utilities()
    launcher_cls: Any = staticmethod(launcher)

    def __init__(self) -> None:
        super().__init__()
        # Plain functions: these are called at every launch.
        self.get_current_device: Callable[[], str] = lambda: device_name(current_instruments())
        self.get_current_stream: Callable[[Any], int] = lambda device: 0
        self.set_current_device: Callable[[Any], None] = lambda device: None

    @classmethod
    def is_active(cls) -> bool:
        """Never by itself: only `activate()` makes it active."""
        return False

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_current_target(self) -> GPUTarget:
        return TARGET

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_device_interface(self) -> Any:
        """Timers and `synchronize`, which fake_cuda.py replaces."""
        return torch.cuda

    def get_device_capability(self, device: Any = None) -> tuple[int, int]:
        return knobs.capability

    def get_benchmarker(self) -> Callable[..., Any]:
        return benchmark

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(1 << 16, dtype=torch.int32)

    def clear_cache(self, cache: torch.Tensor) -> None:
        cache.zero_()


def benchmark(call: Callable[[], Any], quantiles: list[float] | None = None, **_: Any) -> Any:
    """Milliseconds of one call: the median of five, for every quantile asked."""
    call()
    times = []
    for _round in range(5):
        start = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - start))
    median = sorted(times)[2]
    return median if quantiles is None else [median] * len(quantiles)
