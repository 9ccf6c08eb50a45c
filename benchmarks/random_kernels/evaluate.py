"""A kernel's meaning in numpy: what memory holds after all programs ran, one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from . import operations  # noqa: F401  (they register)
from .dtypes import DTYPES, Array, from_memory, to_memory
from .registry import OPERATIONS
from .tree import Atomic, Expr, For, Function, If, Kernel, Let, Statement, Store, While

Memory = dict[str, Array]


class Stray(AssertionError):
    """A kernel that reads or writes outside of its buffers: a fault of the generator."""


class Evaluator:
    """One program."""

    def __init__(self, kernel: Kernel, memory: Memory, program: tuple[int, int]) -> None:
        self.memory = memory
        self.program = program
        self.dtypes = {buffer.name: buffer.dtype for buffer in kernel.buffers}
        self.values: dict[str, Array] = {s.name: DTYPES[s.dtype].held(s.value) for s in kernel.scalars}

    # expressions

    def value(self, node: Expr) -> Array:
        return OPERATIONS[node.op](self, node, *map(self.value, node.args))

    def call(self, function: Function, arguments: Iterable[Array]) -> list[Array]:
        """The function applied to every element."""
        arguments = list(arguments)
        outer = self.values
        self.values = {f"p{number}": argument for number, argument in enumerate(arguments)}
        shape = np.shape(arguments[0])
        results = [np.broadcast_to(self.value(result), shape) for result in function.results]
        self.values = outer
        return results

    # memory

    def places(self, buffer: str, index: Array, mask: Array | None) -> tuple[Array, Array]:
        """Indexes, 0 where masked off, and the mask."""
        index = np.asarray(index).astype(np.int64)
        active = np.broadcast_to(True if mask is None else mask, index.shape)
        index = np.where(active, index, 0)
        if index.size and (index.min() < 0 or index.max() >= len(self.memory[buffer])):
            raise Stray(buffer)
        return index, active

    def load(self, buffer: str, index: Array, mask: Array | None, other: Array | None) -> Array:
        places, active = self.places(buffer, index, mask)
        dtype = self.dtypes[buffer]
        found = from_memory(dtype, self.memory[buffer][places])
        empty = np.zeros((), DTYPES[dtype].held) if other is None else other
        return np.where(active, found, empty)

    def store(self, buffer: str, index: Array, value: Array, mask: Array | None) -> None:
        places, active = self.places(buffer, index, mask)
        words = np.broadcast_to(to_memory(self.dtypes[buffer], np.asarray(value)), places.shape)
        self.memory[buffer][places[active]] = words[active]

    def atomic(self, node: Atomic) -> None:
        """Lane after lane; 0 where masked off."""
        mask = None if node.mask is None else self.value(node.mask)
        places, active = self.places(node.buffer, self.value(node.index), mask)
        values = np.broadcast_to(self.value(node.value), places.shape)
        compared = None if node.compare is None else np.broadcast_to(self.value(node.compare), places.shape)
        memory, old = self.memory[node.buffer], np.zeros(places.shape, values.dtype)
        for lane in np.ndindex(places.shape):
            if active[lane]:
                before = old[lane] = memory[places[lane]]
                if compared is None:
                    memory[places[lane]] = ATOMICS[node.kind](before, values[lane])
                elif before == compared[lane]:
                    memory[places[lane]] = values[lane]
        self.values[node.name] = old

    # statements

    def run(self, body: Iterable[Statement]) -> None:
        for node in body:
            match node:
                case Let():
                    self.values[node.name] = self.value(node.value)
                case Store():
                    mask = None if node.mask is None else self.value(node.mask)
                    self.store(node.buffer, self.value(node.index), self.value(node.value), mask)
                case Atomic():
                    self.atomic(node)
                case If():
                    yes = bool(self.value(node.condition))
                    self.run(node.yes if yes else node.no)
                    self.bind(node.names, node.yes_values if yes else node.no_values)
                case For():
                    self.bind(node.names, node.first)
                    low, high = (int(self.value(bound)) for bound in node.bounds)
                    for turn in range(low, high, node.step):
                        self.values[node.counter] = np.int32(turn)
                        self.run(node.body)
                        self.bind(node.names, node.following)
                case While():
                    self.bind(node.names, node.first)
                    while bool(self.value(node.condition)):
                        self.run(node.body)
                        self.bind(node.names, node.following)

    def bind(self, names: Iterable[str], nodes: Iterable[Expr]) -> None:
        self.values |= dict(zip(names, [self.value(node) for node in nodes], strict=True))


ATOMICS: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "min": np.minimum,
    "max": np.maximum, "xchg": lambda old, new: new,
}  # fmt: skip


def evaluate(kernel: Kernel, memory: Memory) -> None:
    """Run the kernel on these buffers."""
    with np.errstate(all="ignore"):
        for y in range(kernel.grid[1]):
            for x in range(kernel.grid[0]):
                Evaluator(kernel, memory, (x, y)).run(kernel.body)
