"""What a random kernel is made of: expressions in statements over buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from math import prod
from typing import Any

from .dtypes import DTYPES, DType


@dataclass(frozen=True, slots=True)
class Type:
    """A scalar has no shape; sizes are powers of two."""

    name: str
    shape: tuple[int, ...] = ()

    @property
    def dtype(self) -> DType:
        return DTYPES[self.name]

    @property
    def count(self) -> int:
        return prod(self.shape)

    def of(self, name: str) -> Type:
        return Type(name, self.shape)

    def shaped(self, *shape: int) -> Type:
        return Type(self.name, shape)


@dataclass(frozen=True, slots=True, eq=False)
class Expr:
    """`data` is what is no expression: a constant, an axis, a name, a function."""

    op: str
    type: Type
    args: tuple[Expr, ...] = ()
    data: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A function of scalars, applied element by element, or the region of a reduction or scan. Parameters are
    named p0, p1, ...; it returns as many values as it has results."""

    name: str
    parameters: tuple[Type, ...]
    results: tuple[Expr, ...]
    noinline: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Let:
    name: str
    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Store:
    buffer: str
    index: Expr
    value: Expr
    mask: Expr | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Atomic:
    """`kind` is that of tl.atomic_<kind>; `cas` has a value to compare with. The old value is bound to `name`."""

    name: str
    kind: str
    buffer: str
    index: Expr
    value: Expr
    compare: Expr | None = None
    mask: Expr | None = None


@dataclass(frozen=True, slots=True, eq=False)
class For:
    """`names` start as `first` and become `following`, all at once, at the end of each turn."""

    counter: str
    bounds: tuple[Expr, Expr]
    step: int
    names: tuple[str, ...]
    first: tuple[Expr, ...]
    body: tuple[Statement, ...]
    following: tuple[Expr, ...]
    static: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class While:
    condition: Expr
    names: tuple[str, ...]
    first: tuple[Expr, ...]
    body: tuple[Statement, ...]
    following: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class If:
    """`names` are bound in both branches."""

    condition: Expr
    names: tuple[str, ...]
    yes: tuple[Statement, ...]
    yes_values: tuple[Expr, ...]
    no: tuple[Statement, ...]
    no_values: tuple[Expr, ...]


Statement = Let | Store | Atomic | For | While | If


@dataclass(frozen=True, slots=True)
class Buffer:
    """An argument that is a pointer; `written` where the kernel stores to it."""

    name: str
    dtype: str
    count: int
    written: bool = False


@dataclass(frozen=True, slots=True)
class Scalar:
    name: str
    dtype: str
    value: int | float


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    seed: int
    name: str
    grid: tuple[int, int]
    buffers: tuple[Buffer, ...]
    scalars: tuple[Scalar, ...]
    body: tuple[Statement, ...]

    @property
    def functions(self) -> list[Function]:
        """Those that the body uses."""
        return list({node.name: node for node in walk(self) if isinstance(node, Function)}.values())


def children(node: Any) -> Iterator[Any]:
    """Expressions, statements and functions right below a node."""
    for item in fields(node):
        value = getattr(node, item.name)
        for part in value if isinstance(value, tuple) else (value,):
            if is_dataclass(part) and not isinstance(part, (Type, Buffer, Scalar)):
                yield part


def walk(node: Any) -> Iterator[Any]:
    """A node and all below."""
    yield node
    for child in children(node):
        yield from walk(child)


def rebuild(node: Any, change: Callable[[Any], Any]) -> Any:
    """The node with every child that `change` gives another one for; tuples drop what becomes None."""
    altered = {}
    for item in fields(node):
        value = getattr(node, item.name)
        if isinstance(value, tuple):
            new = tuple(kept for part in value if (kept := change(part) if is_dataclass(part) else part) is not None)
            if len(new) != len(value) or any(a is not b for a, b in zip(new, value, strict=True)):
                altered[item.name] = new
        elif is_dataclass(value):
            new_value = change(value)
            if new_value is not value:
                altered[item.name] = new_value
    return replace(node, **altered) if altered else node
