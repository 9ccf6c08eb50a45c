"""Compiles what a launcher would launch on an accelerator into Triton's cache on disk, in a process that never uses it.

The launcher runs on CPU tensors with the alignment of those on the device, so that it asks for the same
specialisations, which Triton compiles for the device that is described to it. No kernel runs, and nothing is allocated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import make_backend
from triton.runtime.driver import driver as drivers
from triton.runtime.jit import JITFunction

from fuzz.backends.cpu.runtime.driver import UNLIMITED, CPUDriver, Utilities
from fuzz.backends.triton_host import autotune, fake_cuda
from fuzz.backends.triton_host.knobs import knobs
from fuzz.backends.triton_host.patching import Patch, patched

MakeLauncher = Callable[[Any, Any], Callable[..., None]]


@dataclass(frozen=True)
class Accelerator:
    """A device to compile for. `properties` are those that Triton's driver of it gives, `total_memory` is in bytes."""

    target: GPUTarget
    capability: tuple[int, int]
    properties: Mapping[str, int]
    total_memory: int


class DriverUtilities(Utilities):
    """Gives the device's properties to Triton; a compiled kernel is not loaded."""

    def __init__(self, properties: Mapping[str, int]) -> None:
        self.properties = properties

    def get_device_properties(self, device: Any) -> dict[str, int]:
        return dict(self.properties)

    def load_binary(self, name: str, kernel: bytes, shared: int, device: Any) -> tuple[Any, Any, int, int, int]:
        return None, None, 0, 0, UNLIMITED


def launch_nothing(*_: Any) -> None:
    """Is called in place of a launch."""


class CompileOnlyDriver(CPUDriver):
    """Triton's driver of a device for which everything is compiled and nothing launched."""

    def __init__(self, accelerator: Accelerator, make_launcher: MakeLauncher) -> None:
        super().__init__()
        self.target = accelerator.target
        self.utils = DriverUtilities(accelerator.properties)
        self.launcher_cls = make_launcher
        self.get_current_device: Callable[[], Any] = lambda: 0

    def get_current_target(self) -> GPUTarget:
        return self.target


def refuse(*_: Any) -> None:
    raise RuntimeError("nothing runs on a GPU in a process that only compiles for it")


@contextmanager
def compile_for(
    accelerator: Accelerator, make_launcher: MakeLauncher = lambda source, metadata: launch_nothing
) -> Iterator[None]:
    """Inside, kernels are compiled for a device and not launched; `make_launcher` makes what is called instead."""
    counts = {name: accelerator.properties[name] for name in ("multiprocessor_count", "max_shared_mem")}
    device = {"capability": accelerator.capability, "total_memory": accelerator.total_memory, **counts}
    patches = [*fake_cuda.PATCHES, *autotune.PATCHES]
    patches += [Patch(drivers, "_active", CompileOnlyDriver(accelerator, make_launcher))]
    patches += [Patch(torch.cuda, "_lazy_init", refuse)]
    with knobs.set(**device), patched(patches):
        yield


@contextmanager
def front_end_only() -> Iterator[None]:
    """Inside, a kernel that this process has not compiled goes through Triton's front end alone, once.

    What that refuses is known before what is launched earlier is compiled, which may take a minute. Nothing of it is
    kept, nor which configurations autotuners choose, as no kernel is loaded that may be too large. A launch returns
    None; what a launcher keeps of that is what it has afterwards.
    """
    seen: set[tuple[int, Any]] = set()

    def run_once(
        kernel: Any, key: Any, signature: Any, device: Any, constants: Any, options: Any, attributes: Any, *_: Any
    ) -> None:
        """Is called in place of a compilation; None says that there is nothing to launch."""
        if (id(kernel), key) not in seen:
            _, _, target, *_ = kernel.device_caches[device]
            run_front_end(kernel.ASTSource(kernel, signature, constants, attributes), target, options)
            seen.add((id(kernel), key))

    choices = [Patch(autotune, name, WeakKeyDictionary()) for name in ("CACHES", "HAS_CHOSEN")]
    with patched([Patch(JITFunction, "_do_compile", run_once), *choices]):
        yield


def run_front_end(source: Any, target: Any, options: Any) -> None:
    """Generates the first IR of a kernel, as Triton does where its cache has no such kernel."""
    backend, context = make_backend(target), ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    functions, modules = backend.get_codegen_implementation(options), backend.get_module_map()
    source.make_ir(target, options, functions, modules, context)
