"""Puts functions that a kernel calls (`noinline=True`) in the place of their calls.

Each call gets a copy: its pointers are its own, so that its accesses are checked against the arguments of that call.
"""

from __future__ import annotations

import copy

from fuzz.backends.cpu.errors import UnsupportedOperation
from fuzz.backends.cpu.frontend.ir import FuncOp, walk


def inline_calls(functions: list[FuncOp]) -> FuncOp:
    """The kernel of a module; its calls hold the blocks of what they call as their region."""
    kernel = next(function for function in functions if function.public)
    inline_into(kernel, {function.name: function for function in functions}, (kernel.name,))
    return kernel


def inline_into(function: FuncOp, known: dict[str, FuncOp], path: tuple[str, ...]) -> None:
    """Give every call in the function its callee's blocks, and those the same. Recursion is refused."""
    calls = [op for _, op in walk(function.blocks) if op.name == "tt.call"]
    for op in calls:
        name = str(op.attributes["callee"])
        if name in path:
            raise UnsupportedOperation(f"recursion of function {name}", path[0], str(op.location))
        callee = copy.deepcopy(known[name])
        inline_into(callee, known, (*path, name))
        op.regions = [callee.blocks]
