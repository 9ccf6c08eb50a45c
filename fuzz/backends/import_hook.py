"""Executes a module in a context, whoever imports it."""

from __future__ import annotations

import importlib.abc
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

Context = Callable[[], AbstractContextManager[object]]


class ImportHook(importlib.abc.MetaPathFinder):
    """Finds one module, to be put into `sys.meta_path` before it is imported."""

    def __init__(self, name: str, context: Context) -> None:
        self.name, self.context = name, context

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name == self.name else None
        if spec is not None and spec.loader is not None:
            spec.loader = ContextLoader(spec.loader, self.context)
        return spec


class ContextLoader(importlib.abc.Loader):
    """Loads as another loader does, and executes the module in the context."""

    def __init__(self, loader: Any, context: Context) -> None:
        self.loader, self.context = loader, context

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self.loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        with self.context():
            self.loader.exec_module(module)

    def __getattr__(self, name: str) -> Any:
        # Who copies it asks for methods before it has this one.
        if name == "loader":
            raise AttributeError(name)
        return getattr(self.loader, name)
