"""Packages that releases import and that what is searched here does not need, each replaced by one that has every name.

A release of some years ago imports models that are written for libraries of its time, and fails with today's. Importing
this module makes `import NAME` give a stand-in for the names in the variable; a tensor that reaches one raises.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

VARIABLE = "ARCHAEOLOGY_STAND_INS"
"""The environment's variable with the names of packages, with commas between them."""


class Names(type):
    """A class that has every name and every item."""

    def __getattr__(cls, name: str) -> Any:
        return named(name)

    def __getitem__(cls, key: object) -> Any:
        return Anything


class Anything(metaclass=Names):
    """Is inherited from, registers what it is given, and decorates."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __init_subclass__(cls, **_: object) -> None:
        pass

    def __bool__(self) -> bool:
        return False  # Nothing is available that a package is asked for.

    def __call__(self, decorated: Any) -> Any:
        if not callable(decorated):
            raise TypeError("a stand-in computes nothing")
        return decorated


def named(name: str) -> type:
    """A class of its own for a name: one that inherits from two names may not do so twice."""
    if name.startswith("__"):
        raise AttributeError(name)
    return Names(name, (Anything,), {})


class StandIn(ModuleType):
    """A module of a package that is replaced."""

    __path__: Sequence[str] = ()
    __version__ = "0"
    __all__: Sequence[str] = ()

    def __getattr__(self, name: str) -> Any:
        return named(name)


class Finder(MetaPathFinder, Loader):
    """Finds stand-ins for packages and for all modules below them."""

    def __init__(self, packages: Sequence[str]) -> None:
        self.packages = packages

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        found = any(f"{fullname}.".startswith(f"{package}.") for package in self.packages)
        return ModuleSpec(fullname, self) if found else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


sys.meta_path.insert(0, Finder([name for name in os.environ.get(VARIABLE, "").split(",") if name]))
