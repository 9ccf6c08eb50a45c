"""The ways to run a Case. `cpu` is Triton compiled for the CPU, the default where there is no GPU."""

from fuzz.backends.base import Backend
from fuzz.backends.cpu.backend import CpuBackend
from fuzz.backends.cuda.backend import CudaBackend
from fuzz.backends.interpreter import InterpreterBackend
from fuzz.errors import BackendError

DEFAULT = CpuBackend()
"""The backend that runs on every machine."""
BACKENDS: dict[str, Backend] = {one.name: one for one in (DEFAULT, CudaBackend(), InterpreterBackend())}
SELECTABLE = ("auto", *(name for name, one in BACKENDS.items() if one.selectable))
"""The names that a person can choose from."""


def check_name(name: str) -> None:
    """Raises BackendError where no person can choose a backend of that name."""
    if name not in SELECTABLE:
        raise BackendError(f"unknown backend {name!r}; known: {', '.join(SELECTABLE)}")


def backend(name: str) -> Backend:
    """The backend of that name; ``auto`` is an accelerator where one is usable, else the default.

    Raises BackendError where there is none of that name, or it cannot run here.
    """
    if name == "auto":
        accelerators = (one for one in BACKENDS.values() if one.is_accelerator and not one.unavailable_reason())
        return backend(next(accelerators, DEFAULT).name)
    if name not in BACKENDS:
        check_name(name)
    if reason := BACKENDS[name].unavailable_reason():
        raise BackendError(reason)
    return BACKENDS[name]
