"""Reads compiled kernels from Triton's cache, in a fifth of the time that Triton takes, and loads them."""

from __future__ import annotations

import json
import os
import threading
from collections import namedtuple
from collections.abc import Mapping
from copy import copy
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import ASTSource, CompiledKernel

from fuzz.backends.cpu.compilers.kernel_text import KernelText
from fuzz.backends.cpu.runtime.gpu_code import Texts, check_gpu_limits, with_gpu_sizes
from fuzz.backends.cpu.runtime.launcher import Launcher
from fuzz.backends.cpu.runtime.triton_backend import TARGET, make_ir
from fuzz.backends.triton_host.knobs import knobs
from fuzz.backends.triton_host.patching import Patch

read_unpatched, load_unpatched = CompiledKernel.__init__, CompiledKernel._init_handles
LOADING = threading.RLock()
"""Is held while a kernel is loaded."""


def renew_lock() -> None:
    """In a forked process: the thread that holds the lock, for as long as a C compiler takes, is not there."""
    global LOADING
    LOADING = threading.RLock()


os.register_at_fork(after_in_child=renew_lock)


class CPUKernel(CompiledKernel):  # type: ignore[misc]
    """A kernel for the CPU. Its texts are read when somebody asks for them: a launch needs none."""

    def __del__(self) -> None:
        """Nothing is unloaded: Triton asks the driver for it that is active by then, which may be that of a GPU."""

    @cached_property
    def asm(self) -> Texts:
        """The texts of the kernel by the endings of their files, and those of a GPU."""
        files = by_ending(self.metadata_group)
        files.pop("json")
        return Texts(self, {ending: Path(path).read_text(encoding="utf-8") for ending, path in files.items()})


def read(kernel: CompiledKernel, src: Any, metadata_group: Mapping[str, str], hash: str) -> None:
    """What Triton's own `__init__` does, but for the texts, and with one class for the metadata of all kernels."""
    # Triton's `__del__` asks for them, of a kernel whose files are missing as well.
    kernel.module = kernel.function = kernel._run = kernel._module_pid = None
    files = by_ending(metadata_group)
    with open(files["json"], "rb") as file:
        metadata = json.loads(file.read())
    target = GPUTarget(**metadata["target"])
    if target != TARGET:
        read_unpatched(kernel, src, metadata_group, hash)
        return
    kernel.__class__ = CPUKernel
    kernel.metadata = metadata_class(tuple(sorted(metadata)))(**metadata | {"target": target})
    kernel.packed_metadata = kernel.metadata
    kernel.src, kernel.hash, kernel.name = src, hash, kernel.metadata.name
    # Triton lists the IR before the first pass, which is not written.
    kernel.metadata_group = {name: path for name, path in metadata_group.items() if not name.endswith(".source")}
    kernel.kernel = KernelText(kernel.metadata.c_digest, kernel.metadata.c_characters, files["c"])


def by_ending(metadata_group: Mapping[str, str]) -> dict[str, str]:
    """The paths of a kernel's files by the endings of their names."""
    return {name.rpartition(".")[2]: path for name, path in metadata_group.items()}


@lru_cache(maxsize=64)
def metadata_class(fields: tuple[str, ...]) -> Any:
    return namedtuple("KernelMetadata", fields)


def load(kernel: CompiledKernel) -> None:
    """Loads a kernel that no driver is to unload: when it ends, another one may be active."""
    with LOADING:
        if kernel.module is None:
            # Triton takes a kernel with a launcher for loaded. It gets that first, also where loading then fails.
            loaded = copy(kernel)
            load_unpatched(loaded)
            loaded._module_pid = None
            if isinstance(kernel, CPUKernel):
                launcher: Launcher = loaded._run.launcher
                launcher.ttir_path = Path(by_ending(kernel.metadata_group)["ttir"])
                launcher.check_limits = partial(check_gpu_limits, kernel)
                loaded.metadata = with_gpu_sizes(kernel)
            vars(kernel).update(vars(loaded))
            loaded.module = None
    if knobs.gpu_limits and isinstance(kernel, CPUKernel):
        check_gpu_limits(kernel)


def c_source(compiled: Any) -> str:
    """The C text of a compiled kernel: of what `kernel[grid](...)` or `kernel.warmup(...)` returned."""
    c: str = compiled.asm["c"]
    return c


PATCHES = [
    Patch(ASTSource, "make_ir", make_ir), Patch(CompiledKernel, "__init__", read),
    Patch(CompiledKernel, "_init_handles", load),
]  # fmt: skip
