"""Compiles a kernel for a GPU as well, by Triton's own backend, where somebody reads its texts or asks for its limits.

No GPU is needed for that: Triton's wheel holds LLVM and ptxas.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import triton
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import AsmDict, ASTSource, CompiledKernel
from triton.runtime.errors import OutOfResources

from fuzz.backends.cpu.runtime.triton_backend import make_source
from fuzz.backends.triton_host.cheap_compilation import make_context
from fuzz.backends.triton_host.knobs import knobs
from fuzz.backends.triton_host.patching import Patch, patched

WARP = 32
LARGEST_GRID = (2**31 - 1, 65535, 65535)
TEXTS = ("ttgir", "llir", "ptx", "cubin", "sass")
OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "debug")
"""Of a launch: those that a GPU's compiler gets as well."""
SHARED_MEMORY: WeakKeyDictionary[CompiledKernel, dict[tuple[int, int], int]] = WeakKeyDictionary()
"""The bytes that kernels take, by the capability of the GPU: with limits each launch asks for them."""


def compile_for_gpu(kernel: CompiledKernel) -> CompiledKernel:
    """The kernel for the capability of the knobs, not loaded. Raises what Triton raises where a GPU refuses it."""
    major, minor = knobs.capability
    options = {name: getattr(kernel.metadata, name) for name in OPTIONS}
    options = {name: value for name, value in options.items() if value is not None} | {"enable_fp_fusion": True}
    # The dialects of a GPU do not belong in the context that kernels for the CPU share.
    with patched([Patch(ir, "context", make_context)]):
        return triton.compile(kernel.src, target=GPUTarget("cuda", 10 * major + minor, WARP), options=options)


def shared_memory(kernel: CompiledKernel) -> int:
    """The bytes of shared memory that a kernel takes on a GPU of the knobs' capability."""
    sizes = SHARED_MEMORY.setdefault(kernel, {})
    if knobs.capability not in sizes:
        sizes[knobs.capability] = compile_for_gpu(kernel).metadata.shared
    return sizes[knobs.capability]


class Texts(AsmDict):  # type: ignore[misc]
    """The texts of a compiled kernel; those of a GPU, and the IR before the first pass, are made when they are read."""

    def __init__(self, kernel: CompiledKernel, texts: Mapping[str, str]) -> None:
        super().__init__(texts)
        self.kernel = kernel

    def __missing__(self, key: str) -> Any:
        if key == "source" and isinstance(self.kernel.src, ASTSource):
            self[key] = make_source(self.kernel)
        elif key in TEXTS:
            self[key] = compile_for_gpu(self.kernel).asm[key]
        else:
            raise KeyError(f"Unknown key: '{key}'")
        return self[key]


class GpuSizes:
    """Of the metadata of a kernel: the bytes of shared memory that it takes on a GPU, compiled when they are read."""

    kernel: CompiledKernel

    @property
    def shared(self) -> int:
        return shared_memory(self.kernel)


@lru_cache(maxsize=64)
def gpu_sizes_class(plain: Any) -> Any:
    return type("KernelMetadata", (GpuSizes, plain), {})


def with_gpu_sizes(kernel: CompiledKernel) -> Any:
    """The metadata of a kernel, with the shared memory of a GPU."""
    plain: Any = type(kernel.metadata)
    metadata = gpu_sizes_class(plain)(*kernel.metadata)
    metadata.kernel = kernel
    return metadata


def check_gpu_limits(kernel: CompiledKernel) -> None:
    """Raises what a GPU would raise: a CompilationError or an AssertionError by its compiler, or OutOfResources."""
    shared = shared_memory(kernel)
    if shared > knobs.max_shared_mem:
        raise OutOfResources(shared, knobs.max_shared_mem, "shared memory")


def check_grid(x: int, y: int, z: int) -> None:
    """RuntimeError, as of a GPU's driver, where an extent of a grid is below 0 or, by the knob, too large.

    Where their product is 0 or less, Triton launches nothing and asks no driver.
    """
    largest = LARGEST_GRID if knobs.gpu_limits else (math.inf,) * 3
    if x * y * z > 0 and not all(0 < one <= most for one, most in zip((x, y, z), largest, strict=True)):
        raise RuntimeError(f"Triton Error [CUDA]: invalid argument: grid ({x}, {y}, {z})")
