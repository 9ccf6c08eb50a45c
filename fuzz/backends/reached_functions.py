"""Finds the functions that a launcher or a kernel reaches by name: kernels, their helpers, and classes' methods."""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

FOREIGN = ("torch", "triton", "numpy", "fuzz", "builtins", "math", "typing", "functools", "hypothesis", "inspect")
"""Packages whose code is not the kernel's; targets have modules of their own names."""
MAX_DEPTH, MAX_FUNCTIONS = 6, 300
"""Calls that are followed, and functions that are read."""


def find_functions(start: Any) -> list[FunctionType]:
    """The function of a launcher or kernel and those that it reaches by name, nearest first."""
    seen: dict[FunctionType, None] = {}
    level = list(unwrap(start))
    for _ in range(MAX_DEPTH):
        fresh = [function for function in level if function not in seen][:MAX_FUNCTIONS]
        seen |= dict.fromkeys(fresh)
        level = [reached for function in fresh for value in referenced_values(function) for reached in unwrap(value)]
    return list(seen)[:MAX_FUNCTIONS]


def unwrap(value: Any) -> Iterator[FunctionType]:
    """The functions of the user's in a value: a function, a kernel (whose function is `fn`), or a class's methods."""
    for _ in range(4):  # A kernel may be wrapped in heuristics and an autotuner.
        if isinstance(value, FunctionType | type) or not hasattr(value, "fn"):
            break
        value = value.fn
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    if isinstance(value, type) and not is_foreign(value):
        for member in vars(value).values():
            if isinstance(member, FunctionType | staticmethod | classmethod):
                yield from unwrap(member)
    elif isinstance(value, FunctionType) and not is_foreign(value):
        yield value


def is_foreign(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).partition(".")[0] in FOREIGN


def referenced_values(function: FunctionType) -> Iterator[Any]:
    """What a function's names stand for: globals, what its modules hold under its names, and what it encloses."""
    space, names = function.__globals__, all_names(function.__code__)
    for name in names:
        value = space.get(name)
        if isinstance(value, ModuleType):
            if value.__name__.partition(".")[0] not in FOREIGN:
                yield from (vars(value)[other] for other in names if other in vars(value))
        elif value is not None:
            yield value
    for cell in function.__closure__ or ():
        yield cell.cell_contents


def all_names(code: CodeType) -> list[str]:
    inner = (name for part in code.co_consts if isinstance(part, CodeType) for name in all_names(part))
    return [*code.co_names, *inner]
