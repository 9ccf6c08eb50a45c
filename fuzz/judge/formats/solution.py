"""Defines what a format of solutions has to provide, in the process that holds the solution."""

from __future__ import annotations

import importlib.util
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from triton.runtime.jit import JITFunction, KernelInterface

from fuzz.backends.triton_host.patching import Patch, patched
from fuzz.judge.formats.weights import Weight
from fuzz.judge.problem.description import NotComparable, Setting

MODULE = "fuzz_judged_solution"
MADE: MutableMapping[ModuleType, int] = WeakKeyDictionary()
"""By the module of a solution how many kernels its own code has made while it was loaded."""


class Solution(ABC):
    """A solution that is loaded from a module."""

    module: ModuleType
    renamed: str = ""
    """Which weights of a solution stand for which of the problem's, where their names differ."""

    def count_kernels(self) -> int:
        """How many Triton kernels its file has made, wherever it keeps them, or has names for."""
        named = sum(isinstance(value, KernelInterface) for value in vars(self.module).values())
        return max(named, MADE.get(self.module, 0))

    @abstractmethod
    def build(self, setting: Setting) -> Callable[..., Any]:
        """What is called with the arguments: a module, or a function."""

    def set_state(self, module: Any, state: Mapping[str, torch.Tensor], wanted: Sequence[Weight]) -> None:
        """Gives a module the state of the problem's, which `wanted` describes, in the order in which that is made.

        Raises NotComparable where it has no such state.
        """
        if state:
            raise NotComparable(f"a solution of this format has no state, and the problem has {', '.join(state)}")

    def call_differentiably(
        self, module: Callable[..., Any], state: Mapping[str, torch.Tensor], arguments: tuple[Any, ...], keywords: Any
    ) -> Any:
        """The result of a call in which autograd follows the arguments, and the state where it has any."""
        return module(*arguments, **keywords)


def load_module(path: Path) -> ModuleType:
    """The module of a solution's file. Raises what executing it raises."""
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(MODULE, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    with made_kernels() as made:
        spec.loader.exec_module(module)
    # What it imports, such as a library, may define hundreds that it does not launch.
    MADE[module] = sum(kernel.fn.__code__.co_filename == str(path) for kernel in made)
    return module


@contextmanager
def made_kernels() -> Iterator[list[JITFunction]]:
    """The kernels that are made inside."""
    make, made = JITFunction.__init__, list[JITFunction]()

    def make_and_keep(kernel: JITFunction, *args: Any, **kwargs: Any) -> None:
        make(kernel, *args, **kwargs)
        made.append(kernel)

    with patched([Patch(JITFunction, "__init__", make_and_keep)]):
        yield made
