"""Reads the numbers in the code of a launcher, of the kernels that it runs, and of the functions that those call.

Comparisons with constants of compilation are decided before a kernel is compiled, so that nothing of them is left in
the compiled code: `if N == 4097` where N is a `tl.constexpr` is visible in the source only.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

from fuzz.backends.reached_functions import all_names, find_functions


def find_numbers(launcher: Any) -> list[float]:
    """Numbers in the order in which they stand, the launcher's first, each once."""
    in_order: dict[float, None] = {}
    for function in find_functions(launcher):
        for value in (*numbers(function.__code__), *global_numbers(function)):
            in_order.setdefault(value)
    return list(in_order)


def global_numbers(function: FunctionType) -> Iterator[float]:
    """Numbers that a function's global names stand for, also as a `tl.constexpr`."""
    for name in all_names(function.__code__):
        value = function.__globals__.get(name)
        value = getattr(value, "value", value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield value


def numbers(code: CodeType) -> Iterator[float]:
    """The numbers among a code's constants; arithmetic on literals is done when the code is made."""
    for value in code.co_consts:
        yield from flatten_numbers(value)


def flatten_numbers(value: Any) -> Iterator[float]:
    if isinstance(value, CodeType):
        yield from numbers(value)
    elif isinstance(value, tuple | frozenset):
        for part in sorted(value, key=repr) if isinstance(value, frozenset) else value:
            yield from flatten_numbers(part)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value
