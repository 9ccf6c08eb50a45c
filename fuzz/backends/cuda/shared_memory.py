"""Refuses a configuration that an autotuner tries as soon as it is known to need more shared memory than the GPU has.

Triton looks at that when it loads the kernel, with the same error: after LLVM and ptxas, which take most of the time of
the compilation. How much one needs is kept in Triton's cache, so that other processes do not compile it to know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from triton.backends.nvidia.compiler import CUDABackend
from triton.compiler import compiler
from triton.runtime.cache import get_cache_manager
from triton.runtime.driver import driver as drivers
from triton.runtime.errors import OutOfResources

from fuzz.backends.triton_host.autotune import IS_BENCHMARK
from fuzz.backends.triton_host.patching import Patch

Stage = Callable[[Any, dict[str, Any]], Any]
NEEDED = "shared_memory.txt"
"""The file in a kernel's folder of the cache with the bytes that it needs, where these are too many."""
add_all_stages = CUDABackend.add_stages


def add_stages(backend: Any, stages: dict[str, Stage], *others: Any) -> None:
    """Triton's stages of a compilation; those of a configuration that is tried end where it needs too much."""
    add_all_stages(backend, stages, *others)
    if IS_BENCHMARK.get():
        first = next(iter(stages))
        stages[first], stages["ptx"] = after(check_cache, stages[first]), after(check_need, stages["ptx"])


def after(check: Callable[[dict[str, Any]], None], stage: Stage) -> Stage:
    """The stage, with a check of the kernel's metadata before it."""

    def checked(module: Any, metadata: dict[str, Any]) -> Any:
        check(metadata)
        return stage(module, metadata)

    return checked


def check_cache(metadata: dict[str, Any]) -> None:
    """Raises OutOfResources where a process has found that a kernel needs more than there is."""
    if path := get_cache_manager(metadata["hash"]).get_file(NEEDED):
        with open(path, encoding="ascii") as file:
            check_bytes(int(file.read()))


def check_need(metadata: dict[str, Any]) -> None:
    """Raises OutOfResources, and keeps what a kernel needs, where that is more than there is."""
    try:
        check_bytes(metadata["shared"])
    except OutOfResources as error:
        get_cache_manager(metadata["hash"]).put(str(error.required), NEEDED, binary=False)
        raise


def check_bytes(needed: int) -> None:
    """Raises OutOfResources where a program cannot have so many bytes of shared memory."""
    most = compiler.max_shared_mem(drivers.active.get_current_device())
    if needed > most:
        raise OutOfResources(needed, most, "shared memory")


PATCHES = [Patch(CUDABackend, "add_stages", add_stages)]
