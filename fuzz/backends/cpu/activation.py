"""Making the backend Triton's active one, and back. Nothing is installed: it is a matter of this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from triton.backends import Backend, backends
from triton.runtime.driver import driver as drivers

from .backend import CPUBackend
from .driver import CPUDriver

OURS = Backend(CPUBackend, CPUDriver)
DRIVER = CPUDriver()
# What was registered and active before each `activate()` that is not undone yet.
before: list[tuple[Any, Any]] = []


def activate() -> None:
    """Let `kernel[grid](...)` run on the CPU from now on."""
    before.append((backends.get("cpu"), drivers._active))
    backends["cpu"] = OURS
    drivers.set_active(DRIVER)


def deactivate() -> None:
    """Undo the last `activate()`: what was active before is active again."""
    if not before:
        raise RuntimeError("the cpu backend is not active")
    registered, driver = before.pop()
    if registered is None:
        backends.pop("cpu", None)
    else:
        backends["cpu"] = registered
    drivers._active = driver


@contextmanager
def active() -> Iterator[None]:
    """`activate()` on entry and `deactivate()` on exit."""
    activate()
    try:
        yield
    finally:
        deactivate()
