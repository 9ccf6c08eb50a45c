"""Represents indexes of tensor elements as C text, and how an operation maps one to an index of its operand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

Index = tuple[int | str, ...]
"""For each axis a constant or a C expression."""
IndexFunction = Callable[[Index], Index]

# Deeper nests are one loop with computed indexes: C compilers take exponential time on nests of twenty loops.
DEEPEST = 4


@dataclass(frozen=True, slots=True)
class Coordinate:
    """One index of an operand: `start + step * index[axis]` of the result's index, or `start` where `axis` is None."""

    axis: int | None = None
    step: int = 1
    start: int = 0

    def of(self, index: Index) -> int | str:
        if self.axis is None:
            return self.start
        position = index[self.axis]
        if (self.step, self.start) == (1, 0):
            return position
        return f"{self.start} + {self.step} * ({position})"


IndexMap = tuple[Coordinate, ...]
"""Which element of the operand an element of the result is: a coordinate for each axis of the operand."""


def make_index_function(index_map: IndexMap) -> IndexFunction:
    return lambda index: tuple(coordinate.of(index) for coordinate in index_map)


def same_axes(rank: int) -> IndexMap:
    """The map of an operation that leaves every element at its index."""
    return tuple(map(Coordinate, range(rank)))


def origin(shape: tuple[int, ...]) -> Index:
    """The index of the first element."""
    return (0,) * len(shape)


def current_index(shape: tuple[int, ...]) -> Index:
    """The index of the current lane of a loop nest over the shape."""
    return tuple(0 if size == 1 else f"d{axis}" for axis, size in enumerate(shape))


def current_position(shape: tuple[int, ...]) -> str:
    """The row-major position of the current lane of a loop nest over the shape."""
    return "p" if is_deep(shape) else row_major(current_index(shape), shape)


def is_deep(shape: tuple[int, ...]) -> bool:
    return sum(size > 1 for size in shape) > DEEPEST


def row_major(index: Index, shape: tuple[int, ...]) -> str:
    """The row-major position of an index."""
    terms, stride = [], 1
    for position, size in zip(reversed(index), reversed(shape), strict=True):
        if position != 0:
            terms.append(parenthesised(position) if stride == 1 else f"{parenthesised(position)} * {stride}")
        stride *= size
    return " + ".join(reversed(terms)) or "0"


def parenthesised(position: int | str) -> str:
    text = str(position)
    return text if text.isidentifier() or text.isdecimal() else f"({text})"


def index_at(position: str, shape: tuple[int, ...]) -> Index:
    """The index of a row-major position, the inverse of `row_major`."""
    if len(shape) == 1:
        return (position,)
    index: list[int | str] = []
    stride = math.prod(shape)
    for axis, size in enumerate(shape):
        stride //= size
        text = f"({position})" if stride == 1 else f"({position}) / {stride}"
        index.append(0 if size == 1 else text if axis == 0 else f"{text} % {size}")
    return tuple(index)
