"""The ways to run a Case. `cpu` is Triton compiled for the CPU, the default where there is no GPU."""

from fuzz.backends.base import Backend
from fuzz.backends.cpu.backend import CpuBackend
from fuzz.backends.cuda.backend import Cuda
from fuzz.backends.interpreter import Interpreter
from fuzz.errors import BackendError

BACKENDS: dict[str, Backend] = {"cpu": CpuBackend(), "cuda": Cuda(), "interpreter": Interpreter()}


def backend(name: str) -> Backend:
    """The backend of that name; ``auto`` is cuda where a GPU is usable, else cpu. BackendError where it cannot run."""
    if name == "auto":
        name = "cpu" if BACKENDS["cuda"].unavailable_reason() else "cuda"
    if name not in BACKENDS:
        raise BackendError(f"unknown backend {name!r}; known: auto, cpu, cuda")
    if reason := BACKENDS[name].unavailable_reason():
        raise BackendError(reason)
    return BACKENDS[name]
