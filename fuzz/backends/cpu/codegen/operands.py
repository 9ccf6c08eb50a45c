"""Values on their way to C: scalars, lanes of a loop, arrays, and lazy views that only rewrite indexes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from fuzz.backends.cpu.frontend.types import Type

Index = tuple[str, ...]
Remap = Callable[[Index], Index]


# Deeper nests are one loop with computed indexes: C compilers take exponential time on nests of twenty loops.
DEEPEST = 4
# Loops of up to so many turns are unrolled by gcc before it vectorises the one around them; prelude.c says when not.
UNROLLED = 16


def is_deep(shape: tuple[int, ...]) -> bool:
    return sum(size > 1 for size in shape) > DEEPEST


def loop_heads(shape: tuple[int, ...], rolled: bool = False) -> list[str]:
    """C that opens a loop nest over the shape and names the indexes; one closing brace ends it."""
    sizes = [(axis, size) for axis, size in enumerate(shape) if size > 1]
    if not is_deep(shape):
        heads = [f"for (int d{axis} = 0; d{axis} < {size}; d{axis}++)" for axis, size in sizes]
        inner = [f"ROLLED {head}" if size <= UNROLLED else head for head, (_, size) in zip(heads, sizes, strict=True)]
        return [" ".join([*heads[:1], *(inner if rolled else heads)[1:], "{"])]
    strides = {axis: math.prod(shape[axis + 1 :]) for axis, _ in sizes}
    indexes = [f"d{axis} = p / {strides[axis]} % {size}" for axis, size in sizes]
    return [f"for (int p = 0; p < {math.prod(shape)}; p++) {{", f"const int {', '.join(indexes)};"]


def identity(shape: tuple[int, ...]) -> Index:
    """The index of the current lane of a loop nest over the shape."""
    return tuple("0" if size == 1 else f"d{axis}" for axis, size in enumerate(shape))


def current(shape: tuple[int, ...]) -> str:
    """The row-major position of the current lane of a loop nest over the shape."""
    return "p" if is_deep(shape) else flat(identity(shape), shape)


def flat(index: Index, shape: tuple[int, ...]) -> str:
    """The row-major position of an index."""
    terms, stride = [], 1
    for position, size in zip(reversed(index), reversed(shape), strict=True):
        if position != "0":
            term = position if position.isidentifier() or position.isdecimal() else f"({position})"
            terms.append(term if stride == 1 else f"{term} * {stride}")
        stride *= size
    return " + ".join(reversed(terms)) or "0"


@dataclass(eq=False, slots=True)
class Loop:
    """One C loop nest over a shape, in which elementwise operations gather."""

    shape: tuple[int, ...]
    lines: list[tuple[Lane | None, str]] = field(default_factory=list)
    loads: bool = False
    stores: bool = False
    foreign: set[Lane] = field(default_factory=set)
    read: set[Lane] = field(default_factory=set)
    # Statements before and after the loop, and by line: what the fast loop has instead (statements, expression).
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    fast: dict[int, tuple[list[str], str]] = field(default_factory=dict)
    # Sums over the lanes, which either loop computes from the start.
    sums: list[str] = field(default_factory=list)

    def needs(self, line: str) -> None:
        """Have a statement before the loop, once."""
        if line not in self.before:
            self.before.append(line)

    def reads(self, operand: Operand) -> None:
        """Note the arrays that an operand reads, and those of them at other lanes than the current one."""
        for lane, index in operand.lanes(identity(self.shape)):
            self.read.add(lane)
            if index != lane.here:
                self.foreign.add(lane)

    @property
    def loads_some(self) -> bool:
        """Whether the fast loop has a load of which some lanes may be off."""
        return any(" ? load_" in text for _, text in self.fast.values())

    @property
    def retries(self) -> bool:
        """Whether all lanes may be done twice: the fast loop may find that one needs a closer look."""
        return any("slow |=" in line for statements, _ in self.fast.values() for line in statements)


class Operand:
    """What an SSA value is while it is being lowered."""

    type: Type

    def at(self, index: Index, loop: Loop | None) -> str:
        """A C expression for one element, valid inside the loop."""
        raise NotImplementedError

    def lanes(self, index: Index) -> Iterator[tuple[Lane, Index]]:
        """The computed lanes that reading this index reads."""
        return iter(())


@dataclass(eq=False, slots=True)
class Uniform(Operand):
    """A scalar, or a tensor with the same value everywhere: a C name or literal."""

    type: Type
    text: str

    def at(self, index: Index, loop: Loop | None) -> str:
        return self.text


@dataclass(eq=False, slots=True)
class Lane(Operand):
    """A tensor computed lane by lane in a loop; kept in an array once something outside of its lane reads it."""

    type: Type
    name: str
    loop: Loop | None = None
    kept: bool = False

    @property
    def here(self) -> Index:
        return identity(self.type.shape)

    @property
    def array(self) -> str:
        return self.name if self.loop is None else f"{self.name}_all"

    def at(self, index: Index, loop: Loop | None) -> str:
        if loop is not None and loop is self.loop and index == self.here:
            return self.name
        self.kept = True
        shape = self.type.shape
        # The same names index a larger loop, of whose lanes several read one of these.
        here = loop is not None and loop.shape == shape and index == self.here
        return f"{self.array}[{current(shape) if here else flat(index, shape)}]"

    def lanes(self, index: Index) -> Iterator[tuple[Lane, Index]]:
        yield self, index


@dataclass(eq=False, slots=True)
class View(Operand):
    """A tensor that is other tensors read at rewritten indexes."""

    type: Type
    fetch: Callable[[Index, Loop | None], str]
    sources: Sequence[tuple[Operand, Remap]] = ()

    def at(self, index: Index, loop: Loop | None) -> str:
        return self.fetch(index, loop)

    def lanes(self, index: Index) -> Iterator[tuple[Lane, Index]]:
        for source, remap in self.sources:
            yield from source.lanes(remap(index))


def remapped(type: Type, source: Operand, remap: Remap) -> View:
    """The source read at rewritten indexes."""
    return View(type, lambda index, loop: source.at(remap(index), loop), [(source, remap)])
