"""Notices replaced functions, classes and methods of PyTorch, Triton and the clocks: a judge or a timer uses them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from operator import is_
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import torch
from torch._compile import _disable_dynamo

MODULES = (
    "torch", "torch.autograd", "torch.linalg", "torch.special", "torch.nn.functional", "triton", "time", "timeit", "gc",
    "builtins", "math", "numpy", "numpy.testing",
)  # fmt: skip
"""Modules whose own attributes are compared."""
MODULES_WITH_CLASSES = (
    "torch.cuda", "torch.nn", "torch.testing", "torch.testing._comparison", "torch.autograd.profiler",
    "torch.utils.benchmark", "torch.utils.benchmark.utils.timer", "torch.utils.benchmark.utils.common",
    "triton.testing",
)  # fmt: skip
"""Modules of which those of every class in them are compared as well."""
HIDING = _disable_dynamo(print).__code__
"""The code of the functions by which PyTorch hides others from its compiler."""


class Owner(NamedTuple):
    """A module or a class, the name by which programs reach it, and the attributes that it had itself."""

    value: Any
    name: str
    attributes: dict[str, Any]


class AttributeSnapshot:
    """What the attributes of all watched modules and classes were when it was made."""

    def __init__(self) -> None:
        self.owners = [Owner(value, name, vars(value).copy()) for name, value in find_owners().items()]

    def find_replaced(self) -> Iterator[str]:
        """The names of functions, classes, methods and properties that are others by now, or hide an inherited one.

        Attributes that are new, such as a module's that is imported meanwhile, are none of them.
        """
        for owner in self.owners:
            now, before = vars(owner.value), owner.attributes
            if len(now) == len(before) and all(map(is_, now.values(), before.values())):
                continue
            names = [name for name, value in before.items() if is_code(value) and not is_same(now.get(name), value)]
            yield from (f"{owner.name}.{name}" for name in (*names, *find_hiding(owner)))


class CodeSnapshot:
    """What the functions of all watched modules and classes executed when they were looked at first.

    Nothing but a solution changes that, so that this is not done again and again.
    """

    def __init__(self) -> None:
        self.codes: dict[FunctionType, tuple[str, CodeType]] = {}
        self.look()

    def look(self) -> None:
        """Adds functions that have been put there since, as a backend does."""
        for owner, value in find_owners().items():
            for name, attribute in vars(value).items():
                function = attribute.__func__ if isinstance(attribute, staticmethod | classmethod) else attribute
                if type(function) is FunctionType:
                    self.codes.setdefault(function, (f"{owner}.{name}", function.__code__))

    def find_replaced(self) -> Iterator[str]:
        """The names of functions that execute other code by now."""
        return (name for function, (name, code) in self.codes.items() if function.__code__ is not code)


def find_owners() -> dict[str, Any]:
    """Every module and class that is watched, by name."""
    owners: dict[str, Any] = {name: import_module(name) for name in (*MODULES, *MODULES_WITH_CLASSES)}
    classes = {
        f"{name}.{attribute}": value
        for name in MODULES_WITH_CLASSES
        for attribute, value in vars(owners[name]).items()
        if isinstance(value, type)
    }
    return {**owners, "torch.Tensor": torch.Tensor, **classes}


def find_hiding(owner: Owner) -> Iterator[str]:
    """The attributes that a class has got itself in the place of those that it inherits."""
    if isinstance(owner.value, type):
        for name in vars(owner.value).keys() - owner.attributes.keys():
            inherited = (vars(base)[name] for base in owner.value.__mro__[1:] if name in vars(base))
            if is_code(next(inherited, None)):
                yield name


def is_code(value: Any) -> bool:
    """Whether an attribute is what programs call or read through: a function, a class, a property or a module."""
    return callable(value) or hasattr(type(value), "__get__") or isinstance(value, ModuleType | torch.dtype)


def is_same(value: Any, before: Any) -> bool:
    """Whether an attribute is as before, or as PyTorch's compiler replaces it when it is imported or first used."""
    if value is before:
        return True
    code = getattr(value, "__code__", None)
    wraps = any(code is one for one in find_wrappers())
    return wraps and any(cell.cell_contents is before for cell in value.__closure__)


def find_wrappers() -> Iterator[CodeType]:
    """The code of the functions that PyTorch's compiler puts around others, as far as it has been imported."""
    yield HIDING
    if guard := sys.modules.get("torch._dynamo.mutation_guard"):
        constants = guard.install_generation_tagging_init.__code__.co_consts
        yield from (one for one in constants if isinstance(one, CodeType))
