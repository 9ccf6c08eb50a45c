"""Gives up a configuration that an autotuner tries as soon as it is known to need more shared memory than the GPU has.

Triton looks at that when it loads the kernel, with the same error: after LLVM and ptxas, which take most of the time of
the compilation. How much one needs is kept in Triton's cache, so that nothing of it is compiled again to know.
"""

from __future__ import annotations

import time
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from triton.backends.nvidia.compiler import CUDABackend
from triton.compiler import compiler
from triton.runtime.cache import get_cache_manager
from triton.runtime.driver import driver as drivers
from triton.runtime.errors import OutOfResources

from fuzz.backends.triton_host.autotune import IS_BENCHMARK
from fuzz.backends.triton_host.patching import Patch
from fuzz.worker.profile import PROFILE

NEEDED = "shared_memory.txt"
"""The file in a kernel's folder of the cache with the bytes that it needs, where these were too many."""
STARTED: ContextVar[float] = ContextVar("started", default=0.0)
"""When this thread's compilation began."""
add_all_stages = CUDABackend.add_stages


def find_kernel(key: str) -> Any:
    """The kernel's folder of the cache, which Triton asks for before it compiles. Raises OutOfResources as below."""
    folder = get_cache_manager(key)
    if IS_BENCHMARK.get():
        STARTED.set(time.perf_counter())
        if (path := folder.get_file(NEEDED)) and (needed := Path(path).read_text(encoding="ascii")).isdecimal():
            check(int(needed))
    return folder


def add_stages(backend: Any, stages: dict[str, Any], *others: Any) -> None:
    """Triton's stages of a compilation; that of a configuration that is tried and needs too much ends before PTX."""
    add_all_stages(backend, stages, *others)
    if not IS_BENCHMARK.get():
        return
    make_ptx = stages["ptx"]

    def make_ptx_of_what_fits(module: Any, metadata: dict[str, Any]) -> Any:
        try:
            check(metadata["shared"])
        except OutOfResources as error:
            get_cache_manager(metadata["hash"]).put(str(error.required), NEEDED, binary=False)
            # Triton calls its listener at the end of a compilation.
            PROFILE.move("compile", time.perf_counter() - STARTED.get())
            raise
        return make_ptx(module, metadata)

    stages["ptx"] = make_ptx_of_what_fits


def check(needed: int) -> None:
    """Raises OutOfResources where a program cannot have so many bytes of shared memory."""
    most = compiler.max_shared_mem(drivers.active.get_current_device())
    if needed > most:
        raise OutOfResources(needed, most, "shared memory")


PATCHES = [Patch(CUDABackend, "add_stages", add_stages), Patch(compiler, "get_cache_manager", find_kernel)]
