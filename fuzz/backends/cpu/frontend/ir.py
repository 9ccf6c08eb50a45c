"""The tree that the parser makes of a kernel's TTIR: values, operations, blocks and functions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from fuzz.backends.cpu.frontend.types import Type

Attribute = int | float | bool | str | list[int]


@dataclass(eq=False, slots=True)
class Value:
    """One SSA value. `arguments` are the function parameters that a pointer may derive from."""

    name: str
    type: Type | None = None
    arguments: set[int] = field(default_factory=set)

    @property
    def typed(self) -> Type:
        assert self.type is not None, f"%{self.name} has no type"
        return self.type


@dataclass(frozen=True, slots=True)
class Location:
    """A line of Python source."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(eq=False, slots=True)
class Block:
    """Operations in a row, entered with arguments."""

    label: str
    arguments: list[Value] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Op:
    """One operation: `words` are bare keywords in their order, `attributes` everything that has a name."""

    name: str
    results: list[Value] = field(default_factory=list)
    operands: list[Value] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    attributes: dict[str, Attribute] = field(default_factory=dict)
    regions: list[list[Block]] = field(default_factory=list)
    successors: list[tuple[str, list[Value]]] = field(default_factory=list)
    location: Location = Location("?", 0)

    @property
    def result(self) -> Value:
        return self.results[0]

    def integer(self, name: str) -> int:
        value = self.attributes[name]
        assert isinstance(value, int)
        return value


@dataclass(eq=False, slots=True)
class Function:
    """One `tt.func`."""

    name: str
    blocks: list[Block]
    location: Location
    public: bool = True

    @property
    def parameters(self) -> list[Value]:
        return self.blocks[0].arguments


def walk(blocks: list[Block]) -> Iterator[tuple[Block, Op]]:
    """Every operation of the blocks and of the regions inside, outer first."""
    for block in blocks:
        for op in block.ops:
            yield block, op
            for region in op.regions:
                yield from walk(region)
