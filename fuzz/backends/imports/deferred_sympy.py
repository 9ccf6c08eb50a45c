"""Lets `torch.distributed.tensor` be imported without sympy, which takes longer than most libraries.

Libraries import it to ask whether a tensor is a `DTensor`. It takes two functions and an exception from torch's module
of symbolic shapes, and needs none of them before a tensor is one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

from fuzz.backends.import_hook import ImportHook

IMPORTER = "torch.distributed.tensor"
PACKAGE, SUBMODULE = "torch.fx.experimental", "symbolic_shapes"
NAME = f"{PACKAGE}.{SUBMODULE}"


def deferred(name: str) -> Callable[..., Any]:
    """A function of the module, which its first call imports."""

    def call(*args: Any, **keywords: Any) -> Any:
        return getattr(import_module(NAME), name)(*args, **keywords)

    return call


DEFERRED: dict[str, Any] = {name: deferred(name) for name in ("guard_or_false", "statically_known_true")}
ERROR = "GuardOnDataDependentSymNode"
# Nothing raises it: what the module raises has taken its place by then.
DEFERRED[ERROR] = type(ERROR, (RuntimeError,), {})


class StandIn(ModuleType):
    """Has those names until any other is asked for, which imports the module itself."""

    def __getattr__(self, name: str) -> Any:
        if name in DEFERRED and sys.modules.get(NAME) is self:
            return DEFERRED[name]
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        self.leave()
        return getattr(import_module(NAME), name)

    def leave(self) -> None:
        """Makes way for the module, which is imported by the next who asks for it, as an attribute too."""
        if sys.modules.get(NAME) is self:
            del sys.modules[NAME]
            vars(import_module(PACKAGE)).setdefault("__getattr__", attribute_of_package)


def attribute_of_package(name: str) -> ModuleType:
    if name != SUBMODULE:
        raise AttributeError(f"module {PACKAGE!r} has no attribute {name!r}")
    return import_module(NAME)


@contextmanager
def standing_in() -> Iterator[None]:
    """What is imported inside is given the stand-in; what is imported later is not."""
    if NAME in sys.modules:
        yield
        return
    module = sys.modules[NAME] = StandIn(NAME)
    try:
        yield
    finally:
        module.leave()


@contextmanager
def replacing() -> Iterator[None]:
    """Puts what the module defines, which is executed inside, where the importer's modules hold what was deferred."""
    yield
    found = vars(sys.modules[NAME])
    for importer in [vars(module) for name, module in sys.modules.items() if name.startswith(IMPORTER)]:
        importer.update({name: found[name] for name in DEFERRED if importer.get(name) is DEFERRED[name]})


HOOKS = (ImportHook(IMPORTER, standing_in), ImportHook(NAME, replacing))


def defer_sympy() -> None:
    """From now on `torch.distributed.tensor` is imported without sympy, unless it or the module has been imported."""
    if HOOKS[0] not in sys.meta_path and not {IMPORTER, NAME} & sys.modules.keys():
        sys.meta_path[:0] = HOOKS
