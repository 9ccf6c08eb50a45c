"""Making the backend Triton's active one, and back. Nothing is installed: it is a matter of this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

from triton.backends import Backend, backends
from triton.runtime.driver import driver as drivers

from fuzz.backends.cpu.runtime.driver import PATCHES, CPUDriver
from fuzz.backends.cpu.runtime.triton_backend import CPUCompiler
from fuzz.backends.triton_host import autotune, fake_cuda
from fuzz.backends.triton_host.dynamo import Finder, watch
from fuzz.backends.triton_host.fake_cuda import Patch

OURS = Backend(CPUCompiler, CPUDriver)
DRIVER = CPUDriver()
# One for each `activate()` that is not undone yet.
undo: list[ExitStack] = []
ABSENT = object()


def activate() -> None:
    """Let `kernel[grid](...)` run on the CPU from now on, and answer what launchers ask of a GPU."""
    if undo and drivers._active is DRIVER:
        undo.append(ExitStack())
        return
    with ExitStack() as stack:
        stack.callback(register, backends.get("cpu", ABSENT))
        backends["cpu"] = OURS
        ours = (*fake_cuda.PATCHES, *autotune.PATCHES, *PATCHES, Patch(drivers, "_active", DRIVER))
        before = stack.enter_context(patched(ours))
        stack.callback(watch(Finder(lambda: patched(before))))
        undo.append(stack.pop_all())


def deactivate() -> None:
    """Undo the last `activate()`: everything is as it was before it."""
    if not undo:
        raise RuntimeError("the cpu backend is not active")
    undo.pop().close()


@contextmanager
def active() -> Iterator[None]:
    """`activate()` on entry and `deactivate()` on exit."""
    activate()
    try:
        yield
    finally:
        deactivate()


def register(backend: object) -> None:
    """What Triton knows as the backend `cpu`."""
    backends["cpu"] = backend
    if backend is ABSENT:
        del backends["cpu"]


@contextmanager
def patched(patches: Iterable[Patch]) -> Iterator[list[Patch]]:
    """Other attributes for a block, which gets those of before."""
    before: list[Patch] = []
    try:
        for patch in patches:
            old = patch._replace(value=vars(patch.owner).get(patch.name, ABSENT))
            put(patch)
            before.append(old)
        yield before
    finally:
        for old in reversed(before):
            put(old)


def put(patch: Patch) -> None:
    """Set an attribute, or remove it: an inherited one then shows again."""
    if patch.value is ABSENT:
        delattr(patch.owner, patch.name)
    else:
        setattr(patch.owner, patch.name, patch.value)
