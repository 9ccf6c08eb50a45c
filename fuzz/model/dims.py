"""Defines dims, named sizes, and evaluates arithmetic over them that is written as text.

A shape is a tuple of expressions such as ``M``, ``2*P`` or ``G*K + 1``: integers, names, ``+ - * //`` and brackets.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from fuzz.errors import TargetError

LONGEST_EXPRESSION = 400
"""Characters of the longest size expression that is declared or read."""
OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
}


@dataclass(frozen=True)
class Expression:
    """Arithmetic over named sizes; builds further expressions with ``+ - * //``."""

    text: str

    def __add__(self, other: Expression | int) -> Expression:
        return Expression(f"({self.text} + {_text(other)})")

    def __radd__(self, other: int) -> Expression:
        return Expression(f"({other} + {self.text})")

    def __sub__(self, other: Expression | int) -> Expression:
        return Expression(f"({self.text} - {_text(other)})")

    def __rsub__(self, other: int) -> Expression:
        return Expression(f"({other} - {self.text})")

    def __mul__(self, other: Expression | int) -> Expression:
        return Expression(f"{self.text}*{_factor(other)}")

    def __rmul__(self, other: int) -> Expression:
        return Expression(f"{other}*{_factor(self)}")

    def __or__(self, one: int) -> OneOr:
        """The dim or 1, where a tensor may be broadcast: ``N | 1``."""
        if one != 1:
            raise TargetError(f"{self.text} | {one}: a dim is full or 1")
        return OneOr(self)

    def __floordiv__(self, other: Expression | int) -> Expression:
        return Expression(f"{self.text}//{_divisor(other)}")


@dataclass(frozen=True)
class OneOr:
    """A dim of a tensor that may be broadcast: of its full size, or 1."""

    base: Expression


@dataclass(frozen=True)
class Size(Expression):
    """A named size between `low` and `high`, both included, and a multiple of `multiple`."""

    low: int = 1
    high: int = 1
    multiple: int = 1

    @property
    def name(self) -> str:
        return self.text

    @cached_property
    def least(self) -> int:
        """The least allowed size."""
        return -(-self.low // self.multiple) * self.multiple

    def clamp(self, value: int) -> int:
        """The allowed size nearest to value, downwards where there is a choice."""
        return max(self.least, min(value, self.high) // self.multiple * self.multiple)


def _text(value: Expression | int) -> str:
    return value.text if isinstance(value, Expression) else str(value)


def _factor(value: Expression | int) -> str:
    """What is multiplied from the left: a quotient in brackets, as `*` and `//` are evaluated in their order."""
    text = _text(value)
    return f"({text})" if "//" in text and _is_product(text) else text


def _divisor(value: Expression | int) -> str:
    """What something is divided by: a product or a quotient in brackets."""
    text = _text(value)
    return f"({text})" if _is_product(text) else text


def _is_product(text: str) -> bool:
    """Whether an expression is a product or a quotient without brackets around it; sums always have them."""
    node = _parse(text)
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.FloorDiv)


def evaluate(text: str, dims: Mapping[str, int]) -> int:
    """The value of an expression; TargetError where it uses a name that dims lacks."""
    try:
        return _compile(text)(dims)
    except ZeroDivisionError:
        raise TargetError(f"size expression {text!r} divides by 0 at {dict(dims)}") from None


@lru_cache(maxsize=4096)
def names(text: str) -> tuple[str, ...]:
    """The dims that an expression uses."""
    return tuple(node.id for node in ast.walk(_parse(text)) if isinstance(node, ast.Name))


def resolve(shape: tuple[str, ...], dims: Mapping[str, int]) -> tuple[int, ...]:
    """The shape in elements for these dims."""
    # Nearly all expressions are the name of a dim.
    return tuple([dims[text] if text in dims else evaluate(text, dims) for text in shape])


def _parse(text: str) -> ast.expr:
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise TargetError(f"size expression {text!r} is not arithmetic over named sizes") from None


@lru_cache(maxsize=4096)
def _compile(text: str) -> Callable[[Mapping[str, int]], int]:
    return _closure(_parse(text), text)


def _closure(node: ast.expr, text: str) -> Callable[[Mapping[str, int]], int]:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        constant = node.value
        return lambda dims: constant
    if isinstance(node, ast.Name):
        return lambda dims: _lookup(dims, node.id, text)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        operator = OPERATORS[type(node.op)]
        left, right = _closure(node.left, text), _closure(node.right, text)
        return lambda dims: operator(left(dims), right(dims))
    raise TargetError(f"size expression {text!r} may hold names, integers, + - * // and brackets only")


def _lookup(dims: Mapping[str, int], name: str, text: str) -> int:
    try:
        return dims[name]
    except KeyError:
        raise TargetError(f"size expression {text!r} uses {name!r}, which is not a dim of this case") from None
