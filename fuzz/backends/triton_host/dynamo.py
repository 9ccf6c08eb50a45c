"""`torch._dynamo`, first imported while the backend is active, sees the real `torch.cuda`.

On import it makes a table of torch's functions for the rest of the process: no answer of ours belongs there.
"""

from __future__ import annotations

import importlib.abc
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

NAME = "torch._dynamo"


class Finder(importlib.abc.MetaPathFinder):
    """Finds that one module, and only where it is not imported yet. `lifted()` takes the answers away for a block."""

    def __init__(self, lifted: Callable[[], AbstractContextManager[object]]) -> None:
        self.lifted = lifted

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name == NAME else None
        if spec is not None and spec.loader is not None:
            spec.loader = Loader(spec.loader, self.lifted)
        return spec


class Loader(importlib.abc.Loader):
    """Executes a module without the answers."""

    def __init__(self, loader: Any, lifted: Callable[[], AbstractContextManager[object]]) -> None:
        self.loader, self.lifted = loader, lifted

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self.loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        with self.lifted():
            self.loader.exec_module(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)


def watch(finder: Finder) -> Callable[[], None]:
    """Let the finder watch imports, unless one does that takes all answers away; returns what ends that."""
    if NAME in sys.modules or any(isinstance(other, Finder) for other in sys.meta_path):
        return lambda: None
    sys.meta_path.insert(0, finder)
    return lambda: sys.meta_path.remove(finder)
