"""Finds the code that a target's coverage is about: what runs below its launcher, and what that code refers to."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CellType, CodeType, FrameType, FunctionType
from typing import Any

from fuzz.backends.reached_functions import FOREIGN, referenced_values, unwrap
from fuzz.coverage_report.protocol import SourceFunction

OTHERS = {*FOREIGN, *sys.stdlib_module_names, "coverage"}
"""Packages whose code is neither the target's nor its library's."""


class Scope:
    """The functions of a target and of its library: those `called`, and those `referenced` in these by name.

    `kernels` are the functions of kernels, whether launched or not, and the functions that they inline. `wrapped` are
    the functions of the library that the target's own code calls; their packages are the library. What runs while a
    module is imported is left out.
    """

    def __init__(self, target_file: Path) -> None:
        self.folder = str(target_file.resolve().parent)
        self.packages: set[str] = set()
        self.called: dict[CodeType, SourceFunction | None] = {}
        self.referenced: set[SourceFunction] = set()
        self.kernels: set[SourceFunction] = set()
        self.wrapped: set[SourceFunction] = set()

    def add_call(self, frame: FrameType) -> SourceFunction | None:
        """Takes in a call; its function where it belongs to the target or its library."""
        code = frame.f_code
        if code not in self.called:
            if _is_importing(frame):
                return None
            self.called[code] = self._add_function(frame)
        return self.called[code]

    def _add_function(self, frame: FrameType) -> SourceFunction | None:
        package = _package(frame.f_globals)
        if package in OTHERS or (found := describe(function := _function_of(frame))) is None:
            return None
        if not self._is_beside_target(frame.f_code):
            if self._is_called_by_target(frame):
                self.wrapped.add(found)
                self.packages.add(package)
            if package not in self.packages:
                return None
        self._add_references(function, depth=3)
        return found

    def _add_references(self, function: FunctionType, depth: int) -> None:
        """Takes in the functions and kernels that a function or a kernel refers to; kernels with what they inline."""
        for value in referenced_values(function):
            is_kernel = not isinstance(value, FunctionType | type) and hasattr(value, "fn")
            for inner in unwrap(value):
                described = describe(inner) if self._is_own(inner) else None
                known = self.kernels if is_kernel else self.referenced
                if described and described not in known:
                    known.add(described)
                    if is_kernel and depth:
                        self._add_references(inner, depth - 1)

    def _is_own(self, function: FunctionType) -> bool:
        code = function.__code__
        return _package(function.__globals__) in self.packages or self._is_beside_target(code)

    def _is_beside_target(self, code: CodeType) -> bool:
        return str(Path(code.co_filename).resolve().parent) == self.folder

    def _is_called_by_target(self, frame: FrameType) -> bool:
        """Whether the nearest caller that is no code of torch or Triton and no decorator is the target's own code."""
        caller = frame.f_back
        while caller is not None and (_package(caller.f_globals) in OTHERS - {"fuzz"} or _passes_on(caller.f_code)):
            caller = caller.f_back
        return caller is not None and self._is_beside_target(caller.f_code)


def _function_of(frame: FrameType) -> FunctionType:
    """A function of the frame's code that refers to what the one that was called refers to."""
    code = frame.f_code
    cells = tuple(CellType(frame.f_locals.get(name)) for name in code.co_freevars)
    return FunctionType(code, frame.f_globals, closure=cells)


def _package(names: dict[str, Any]) -> str:
    return str(names.get("__name__", "")).partition(".")[0]


def _passes_on(code: CodeType) -> bool:
    """Whether a function takes whatever it is given, as the wrapper that a decorator puts around another does."""
    return bool(code.co_flags & inspect.CO_VARARGS and code.co_flags & inspect.CO_VARKEYWORDS and code.co_freevars)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_globals.get("__name__") != __package__ + ".observe":
        if frame.f_code.co_name == "<module>" or _package(frame.f_globals) == "importlib":
            return True
        frame = frame.f_back
    return False


def describe(function: FunctionType) -> SourceFunction | None:
    """The record of a function; None where it is no `def` in a file that can be read."""
    code = function.__code__
    is_function = code.co_flags & inspect.CO_OPTIMIZED  # The body of a class, which runs as code too, is none.
    if not is_function or code.co_name.startswith("<") or not Path(code.co_filename).is_file():
        return None
    return SourceFunction(code.co_filename, code.co_firstlineno, code.co_qualname)


def parameters(code: CodeType) -> Iterator[str]:
    """The names of a function's parameters, `*args` and `**keywords` among them."""
    extra = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    yield from code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + extra]
