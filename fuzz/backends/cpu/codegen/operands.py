"""Represents the values of a kernel as C: scalars, lanes of a loop, arrays, and lazy views that only map indexes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from fuzz.backends.cpu.codegen.index import Index, IndexFunction, current_index, current_position, is_deep, row_major
from fuzz.backends.cpu.frontend.types import Type

# Loops of up to so many turns are unrolled by gcc before it vectorises the one around them; prelude.c says when not.
UNROLLED = 16


@dataclass(frozen=True, slots=True)
class FastPath:
    """What the fast loop has instead of a statement: `setup` before it, and its own text."""

    setup: Sequence[str]
    text: str
    # Whether it may set `slow`, after which all lanes are done again.
    may_retry: bool = False
    # Whether the text is a load that is off in some lanes.
    masked_load: bool = False


@dataclass(slots=True)
class Statement:
    """One line of a loop: the value of `lane`, or a C statement where there is none."""

    text: str
    lane: Lane | None = None
    fast: FastPath | None = None


@dataclass(eq=False, slots=True)
class LoopNest:
    """One C loop nest over a shape, to which elementwise operations are added."""

    shape: tuple[int, ...]
    statements: list[Statement] = field(default_factory=list)
    loads: bool = False
    stores: bool = False
    # The arrays that it reads, and those of them that it reads at another lane than the current one.
    lanes_read: set[Lane] = field(default_factory=set)
    lanes_read_elsewhere: set[Lane] = field(default_factory=set)
    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    # Sums over the lanes, which the fast and the slow loop each compute from the start.
    sums: list[str] = field(default_factory=list)

    def add_before(self, *lines: str) -> None:
        """Adds statements before the loop, each once."""
        self.before += [line for line in lines if line not in self.before]

    def note_read(self, operand: Operand) -> None:
        for lane, index in operand.lanes(current_index(self.shape)):
            self.lanes_read.add(lane)
            if index != lane.here:
                self.lanes_read_elsewhere.add(lane)

    @property
    def fast_paths(self) -> list[FastPath]:
        return [statement.fast for statement in self.statements if statement.fast is not None]

    @property
    def may_retry(self) -> bool:
        return any(fast.may_retry for fast in self.fast_paths)

    def lines(self) -> list[str]:
        """The C of the loop nest; where it has a fast version, that one first, then the slow one if a lane needs it."""
        sums = [f"{name} = 0;" for name in self.sums]
        declared = [f"int {line}" for line in sums]
        if not self.fast_paths:
            if not (self.before or self.after or sums):
                return self.nest_lines(fast=False)
            return ["{", *self.before, *declared, *self.nest_lines(fast=False), *self.after, "}"]
        lines = ["{", "int slow = 0;", *self.before, *declared, "if (!slow) {", *self.nest_lines(fast=True), "}"]
        lines += ["if (__builtin_expect(slow, 0)) {", *sums, *self.nest_lines(fast=False), "}"]
        return [*lines, *self.after, "}"]

    def nest_lines(self, fast: bool) -> list[str]:
        """Lanes that are read elsewhere are stored in their arrays."""
        lines = loop_heads(self.shape, rolled=fast and any(path.masked_load for path in self.fast_paths))
        for statement in self.statements:
            lane, text = statement.lane, statement.text
            if fast and statement.fast is not None:
                lines += statement.fast.setup
                text = statement.fast.text
            lines.append(text if lane is None else f"const {lane.type.c} {lane.name} = {text};")
            if lane is not None and lane.needs_array:
                lines.append(f"{lane.array}[{current_position(self.shape)}] = {lane.name};")
        return [*lines, "}"]


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


class Operand:
    """What an SSA value is in C while its function is being lowered."""

    type: Type

    def at(self, index: Index, loop: LoopNest | None) -> str:
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
    # The value, where it is an integer constant.
    constant: int | None = None

    def at(self, index: Index, loop: LoopNest | None) -> str:
        return self.text


@dataclass(eq=False, slots=True)
class Lane(Operand):
    """A tensor computed lane by lane in a loop; stored in an array once something outside of its lane reads it."""

    type: Type
    name: str
    loop: LoopNest | None = None
    needs_array: bool = False

    @property
    def here(self) -> Index:
        return current_index(self.type.shape)

    @property
    def array(self) -> str:
        return self.name if self.loop is None else f"{self.name}_all"

    def at(self, index: Index, loop: LoopNest | None) -> str:
        if loop is not None and loop is self.loop and index == self.here:
            return self.name
        self.needs_array = True
        shape = self.type.shape
        # The same names index a larger loop, of whose lanes several read one of these.
        is_here = loop is not None and loop.shape == shape and index == self.here
        return f"{self.array}[{current_position(shape) if is_here else row_major(index, shape)}]"

    def lanes(self, index: Index) -> Iterator[tuple[Lane, Index]]:
        yield self, index


@dataclass(eq=False, slots=True)
class View(Operand):
    """A tensor computed from elements of other tensors wherever it is read; `sources` tell which elements."""

    type: Type
    element: Callable[[Index, LoopNest | None], str]
    sources: Sequence[tuple[Operand, IndexFunction]] = ()

    def at(self, index: Index, loop: LoopNest | None) -> str:
        return self.element(index, loop)

    def lanes(self, index: Index) -> Iterator[tuple[Lane, Index]]:
        for source, function in self.sources:
            yield from source.lanes(function(index))


def indexed_view(type: Type, source: Operand, function: IndexFunction) -> View:
    """A view whose every element is the element of the source at the index that the function gives."""
    return View(type, lambda index, loop: source.at(function(index), loop), [(source, function)])
