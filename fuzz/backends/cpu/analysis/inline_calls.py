"""Functions that a kernel calls (`noinline=True`) are put in the place of their calls.

A copy a call: each has pointers of its own, so that accesses inside are checked against what that call was given.
"""

from __future__ import annotations

import copy

from fuzz.backends.cpu.errors import UnsupportedOperation
from fuzz.backends.cpu.frontend.ir import Function, walk


def merge(functions: list[Function]) -> Function:
    """The kernel of a module; its calls hold the blocks of what they call as their region."""
    kernel = next(function for function in functions if function.public)
    expand(kernel, {function.name: function for function in functions}, (kernel.name,))
    return kernel


def expand(function: Function, known: dict[str, Function], path: tuple[str, ...]) -> None:
    """Give every call in the function its callee's blocks, and those the same. Recursion is refused."""
    calls = [op for _, op in walk(function.blocks) if op.name == "tt.call"]
    for op in calls:
        name = str(op.attributes["callee"])
        if name in path:
            raise UnsupportedOperation(f"recursion of function {name}", path[0], str(op.location))
        callee = copy.deepcopy(known[name])
        expand(callee, known, (*path, name))
        op.regions = [callee.blocks]
