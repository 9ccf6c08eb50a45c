"""Finds out which operations a module registers, and keeps its functions instead of handing them to the dispatcher.

What is registered for operations of PyTorch itself takes effect nowhere: the code that judges calls these operations
too. Runs in the process of the solution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS
from torch.library import Library, fallthrough_kernel

from fuzz.backends import DEFAULT
from fuzz.backends.triton_host.patching import Patch, patched
from fuzz.errors import one_line
from fuzz.judge.formats.solution import load_module
from fuzz.judge.ops.requests import ListOperations
from fuzz.judge.ops.schemas import ATEN, find_counterpart, find_overload, full_name
from fuzz.judge.problem.description import Unsupported
from fuzz.judge.processes.device import OnDevice, stay_on_processor
from fuzz.judge.processes.requests import Refusal
from fuzz.judge.processes.sandbox import leave_network, limit_files

KEYS = ("CUDA", "CPU", "CompositeExplicitAutograd", "CompositeImplicitAutograd", "")
"""Dispatch keys whose functions compute results, the first of them first where several are registered."""
AUTOGRAD_KEYS = ("AutogradCUDA", "AutogradCPU", "Autograd")
"""Dispatch keys whose functions can be differentiated."""
IMPLEMENTATION = "_kernel_impl"
"""How BackendBench ends the name of a function, which begins with that of its folder."""
ESCAPE = "__"
"""What stands for a dot in the name of a folder of BackendBench."""


@dataclass(frozen=True)
class Registration:
    """A function that a module registers for an operation."""

    operation: str
    key: str
    function: Callable[..., Any]


@dataclass(frozen=True)
class LoadedModule:
    """A module with its functions by the full name of the operation that each implements.

    `differentiable` is what is called of an operation where autograd follows the call: what was registered for
    autograd itself, or the operation where it has a formula of its own.
    """

    module: ModuleType
    functions: dict[str, Callable[..., Any]]
    differentiable: dict[str, Callable[..., Any]]


@contextmanager
def record_registrations() -> Iterator[list[Registration]]:
    """While active, what is registered is recorded; that for aten does not take effect."""
    found: list[Registration] = []
    register: Callable[..., None] = Library.impl

    def impl(self: Any, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any) -> None:
        name = full_name(op_name) if isinstance(op_name, torch._ops.OpOverload) else str(op_name)
        key = dispatch_key or self.dispatch_key
        is_plain = not options.get("with_keyset") and fn is not fallthrough_kernel
        if key in KEYS and is_plain or key in AUTOGRAD_KEYS and (is_plain or self.ns != ATEN):
            found.append(Registration(f"{self.ns}::{name.rpartition('::')[2]}", key, fn))
        if self.ns != ATEN:
            register(self, op_name, fn, dispatch_key, **options)

    with patched([Patch(Library, "impl", impl)]):
        yield found


def load_registrations(path: Path) -> LoadedModule:
    """A module with what it registers. Raises what it raises."""
    with record_registrations() as found:
        module = load_module(path)
    functions: dict[str, Callable[..., Any]] = {}
    differentiable: dict[str, Callable[..., Any]] = {}
    for one in sorted(found, key=lambda one: (*KEYS, *AUTOGRAD_KEYS).index(one.key)):
        overload = find_overload(one.operation)
        name = full_name(overload) if overload is not None else one.operation
        if one.key not in AUTOGRAD_KEYS:
            functions.setdefault(name, one.function)
        elif name.partition("::")[0] == ATEN:
            functions.setdefault(name, one.function)
            differentiable.setdefault(name, one.function)
        elif overload is not None and has_formula(one.operation):
            differentiable[name] = overload
    for folder in implemented_folders(module, path.parent.name, bool(functions)):
        overload = find_overload(folder_operation(folder))
        name = full_name(overload) if overload is not None else f"{ATEN}::{folder_operation(folder)}"
        functions[name] = getattr(module, folder + IMPLEMENTATION)
    return LoadedModule(module, functions, differentiable)


def implemented_folders(module: ModuleType, folder: str, has_registered: bool) -> list[str]:
    """The folders of BackendBench that a module has the function of: its own one.

    A file that lies elsewhere, and registers nothing, may have functions of any.
    """
    found = [name.removesuffix(IMPLEMENTATION) for name in vars(module) if name.endswith(IMPLEMENTATION)]
    if folder in found:
        return [folder]
    return [] if has_registered else [name for name in found if find_overload(folder_operation(name)) is not None]


def has_formula(operation: str) -> bool:
    """Whether an operation with a function for autograd has a formula: a custom one always has such a function."""
    definition = OPDEFS.get(operation)
    return definition is None or definition._backward_fn is not None


def folder_operation(folder: str) -> str:
    """The operation that a folder of BackendBench is for: the last two underlines of ``add___Tensor`` are a dot."""
    return ".".join(part[::-1] for part in reversed(folder[::-1].split(ESCAPE)))


def make_handler(config: None) -> Callable[[ListOperations], tuple[tuple[str, str], ...] | Refusal]:
    """Makes the handler of the process that lists what a module registers."""
    leave_network()
    limit_files()
    torch.set_num_threads(1)
    DEFAULT.prepare()
    stay_on_processor()

    def handle(request: ListOperations) -> tuple[tuple[str, str], ...] | Refusal:
        try:
            with OnDevice(DEFAULT.device):
                functions = load_registrations(request.path).functions
        except Exception as error:
            return Refusal(f"the module cannot be loaded: {one_line(error)}", Unsupported.__name__)
        counterparts = {name: find_counterpart(name) for name in functions}
        return tuple((name, full_name(one) if one is not None else "") for name, one in counterparts.items())

    return handle
