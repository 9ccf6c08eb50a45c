"""Reads the plain value of a parameter's default from a file's source, without executing it."""

from __future__ import annotations

import ast
import builtins
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from fuzz.model.case import LARGEST_INTEGER, LEAST_INTEGER

LARGEST_EXPONENT = 1 << 10
"""Of a power and a shift, so that reading a file takes no time."""
OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
    ast.LShift: operator.lshift, ast.RShift: operator.rshift,
}  # fmt: skip
SIGNS: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {ast.USub: operator.neg, ast.UAdd: operator.pos}
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "float": float, "int": int,
    "math.sqrt": math.sqrt, "math.log": math.log, "math.log2": math.log2, "math.exp": math.exp,
}  # fmt: skip
NUMBERS = {"inf": math.inf, "nan": math.nan, "pi": math.pi, "e": math.e}
"""Attributes that several modules have for these numbers."""
MODULES_OF_NUMBERS = ("math", "torch", "np", "numpy")


def constants_of(tree: ast.Module) -> dict[str, ast.expr]:
    """The names that a file assigns once, at its top, with what they are assigned."""
    found: dict[str, ast.expr] = {}
    repeated = set()
    for statement in tree.body:
        places = statement.targets if isinstance(statement, ast.Assign) else []
        if isinstance(statement, ast.AnnAssign | ast.AugAssign):
            places = [statement.target]
        for place in places:
            if isinstance(place, ast.Name) and isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value:
                repeated |= {place.id} & found.keys()
                found[place.id] = statement.value
            elif isinstance(place, ast.Name):
                repeated.add(place.id)
    return {name: value for name, value in found.items() if name not in repeated}


def plain_text(node: ast.expr, constants: Mapping[str, ast.expr]) -> str:
    """A default that an option may be (a bool, a number, a text or None), as source text; empty for another one.

    Also empty for one that is not known from the source.
    """
    try:
        value = _value(node, constants)
        if type(value) not in (bool, int, float, str, type(None)):
            return ""
        if type(value) is int and not LEAST_INTEGER <= value <= LARGEST_INTEGER:
            return ""
        return f'float("{value}")' if isinstance(value, float) and not math.isfinite(value) else repr(value)
    except (ArithmeticError, TypeError, ValueError):
        return ""


def free_names(text: str) -> list[str]:
    """The names that an expression takes from its module."""
    nodes = list(ast.walk(ast.parse(text, mode="eval")))
    bound = {node.arg for node in nodes if isinstance(node, ast.arg)}
    bound |= {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    used = dict.fromkeys(node.id for node in nodes if isinstance(node, ast.Name))
    return [name for name in used if name not in bound and not hasattr(builtins, name)]


def _value(node: ast.expr, constants: Mapping[str, ast.expr]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name) and node.id in constants:
        # Without its own name, so that no definition goes round in a circle.
        return _value(constants[node.id], {name: value for name, value in constants.items() if name != node.id})
    if isinstance(node, ast.Attribute) and node.attr in NUMBERS and ast.unparse(node.value) in MODULES_OF_NUMBERS:
        return NUMBERS[node.attr]
    if isinstance(node, ast.UnaryOp) and type(node.op) in SIGNS:
        return SIGNS[type(node.op)](_value(node.operand, constants))
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        left, right = _value(node.left, constants), _value(node.right, constants)
        if not isinstance(left, int | float) or not isinstance(right, int | float):
            raise ValueError("no numbers")
        if isinstance(node.op, ast.Pow | ast.LShift) and abs(right) > LARGEST_EXPONENT:
            raise ValueError("too large a number")
        return OPERATORS[type(node.op)](left, right)
    if isinstance(node, ast.Call) and not node.keywords and (function := FUNCTIONS.get(ast.unparse(node.func))):
        return function(*(_value(argument, constants) for argument in node.args))
    raise ValueError("only the file's execution would tell")
