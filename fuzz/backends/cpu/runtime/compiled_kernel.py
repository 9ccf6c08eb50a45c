"""Reads compiled kernels from Triton's cache, in a third of the time that Triton takes, and loads them."""

from __future__ import annotations

import json
from collections import namedtuple
from collections.abc import Mapping
from functools import lru_cache
from pathlib import PurePath
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import AsmDict, CompiledKernel

from fuzz.backends.cpu.runtime.gpu_code import Texts, check_gpu_limits, with_gpu_sizes
from fuzz.backends.cpu.runtime.triton_backend import TARGET
from fuzz.backends.triton_host.knobs import knobs
from fuzz.backends.triton_host.patching import Patch

read_unpatched, load_unpatched = CompiledKernel.__init__, CompiledKernel._init_handles


def read(kernel: CompiledKernel, src: Any, metadata_group: Mapping[str, str], hash: str) -> None:
    """What Triton's own `__init__` does, with one class for the metadata of all kernels."""
    files = {PurePath(name).suffix[1:]: path for name, path in metadata_group.items()}
    metadata = json.loads(read_bytes(files.pop("json")))
    target = GPUTarget(**metadata["target"])
    if target != TARGET:
        read_unpatched(kernel, src, metadata_group, hash)
        return
    kernel.metadata = metadata_class(tuple(sorted(metadata)))(**metadata | {"target": target})
    kernel.packed_metadata = kernel.metadata
    kernel.src, kernel.hash, kernel.name = src, hash, kernel.metadata.name
    kernel.metadata_group = metadata_group
    kernel.kernel = read_bytes(files["c"])
    texts = {ending: read_bytes(path).decode() for ending, path in files.items() if ending != "c"}
    kernel.asm = AsmDict(texts | {"c": kernel.kernel})
    kernel.module = kernel.function = kernel._run = kernel._module_pid = None


def read_bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


@lru_cache(maxsize=64)
def metadata_class(fields: tuple[str, ...]) -> Any:
    return namedtuple("KernelMetadata", fields)


def load(kernel: CompiledKernel) -> None:
    """Loads a kernel that no driver is to unload: when it ends, another one may be active."""
    is_first = kernel.module is None
    try:
        load_unpatched(kernel)
        if is_first and knobs.gpu_limits and not isinstance(kernel.asm, Texts):
            check_gpu_limits(kernel)
    except Exception:
        # Triton takes a kernel that has its launcher for loaded.
        kernel.module = kernel._run = None
        raise
    kernel._module_pid = None
    if isinstance(kernel.asm.get("c"), bytes):
        kernel.asm["c"] = c_source(kernel)
        kernel.asm = Texts(kernel)
        kernel.metadata = with_gpu_sizes(kernel)


def c_source(compiled: Any) -> str:
    """The C text of a compiled kernel: of what `kernel[grid](...)` or `kernel.warmup(...)` returned."""
    c: str | bytes = compiled.asm["c"]
    return c if isinstance(c, str) else c.decode()


PATCHES = [Patch(CompiledKernel, "__init__", read), Patch(CompiledKernel, "_init_handles", load)]
