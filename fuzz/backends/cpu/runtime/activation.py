"""Makes the backend Triton's active one, and undoes it. Nothing is installed: only this process changes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from triton.backends import Backend, backends
from triton.runtime.driver import driver as drivers

from fuzz.backends import started_threads
from fuzz.backends.cpu.runtime.compiled_kernel import PATCHES
from fuzz.backends.cpu.runtime.driver import CPUDriver
from fuzz.backends.cpu.runtime.triton_backend import CPUCompiler
from fuzz.backends.triton_host import autotune, cheap_compilation, fake_cuda
from fuzz.backends.triton_host.dynamo import DynamoFinder, install
from fuzz.backends.triton_host.identity import pretence
from fuzz.backends.triton_host.knobs import knobs
from fuzz.backends.triton_host.patching import ABSENT, Patch, patched

CPU = Backend(CPUCompiler, CPUDriver)
DRIVER = CPUDriver()
# One for each `activate()` that is not undone yet.
activations: list[ExitStack] = []


def activate() -> None:
    """Runs `kernel[grid](...)` on the CPU from now on, and answers what launchers ask of a GPU."""
    if activations and drivers._active is DRIVER:
        activations.append(ExitStack())
        return
    with ExitStack() as stack:
        stack.callback(register, backends.get("cpu", ABSENT))
        backends["cpu"] = CPU
        patches = (
            *fake_cuda.PATCHES,
            *autotune.PATCHES,
            *cheap_compilation.PATCHES,
            *started_threads.PATCHES,
            *PATCHES,
            Patch(drivers, "_active", DRIVER),
        )
        before = stack.enter_context(patched(patches))
        pretended = stack.enter_context(pretence(DRIVER)) if knobs.identity == "cuda" else []
        stack.callback(install(DynamoFinder(lambda: patched([*pretended, *before]))))
        activations.append(stack.pop_all())


def deactivate() -> None:
    """Undoes the last `activate()`: everything is as it was before it. RuntimeError where none is left."""
    if not activations:
        raise RuntimeError("the cpu backend is not active")
    activations.pop().close()


@contextmanager
def active() -> Iterator[None]:
    """`activate()` on entry and `deactivate()` on exit."""
    activate()
    try:
        yield
    finally:
        deactivate()


def register(backend: object) -> None:
    """Sets what Triton knows as the backend `cpu`, or removes it."""
    backends["cpu"] = backend
    if backend is ABSENT:
        del backends["cpu"]
