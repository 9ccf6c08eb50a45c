"""Represents a kernel's TTIR as a tree: functions, blocks, operations and values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fuzz.backends.cpu.frontend.types import Type

if TYPE_CHECKING:
    from fuzz.backends.cpu.ops.definition import OpDef

Attribute = int | float | bool | str | list[int]


@dataclass(eq=False, slots=True)
class Value:
    """One SSA value. A use may be parsed before the definition, which then declares the type.

    `provenance` are the numbers of the function's parameters that an address may be computed from.
    """

    name: str
    declared_type: Type | None = None
    provenance: set[int] = field(default_factory=set)

    @property
    def type(self) -> Type:
        assert self.declared_type is not None, f"%{self.name} has no type"
        return self.declared_type

    @property
    def is_address(self) -> bool:
        """Whether the value may be an address: a pointer, or an integer that is wide enough."""
        return self.type.is_pointer or self.type.element == "i64"


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A line of Python source."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(eq=False, slots=True)
class Block:
    """A sequence of operations, entered with arguments."""

    label: str
    arguments: list[Value] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Op:
    """One operation: `keywords` are bare words in their order, `attributes` everything that has a name."""

    name: str
    results: list[Value] = field(default_factory=list)
    operands: list[Value] = field(default_factory=list)
    keywords: list[str] = field(default_factory=list)
    attributes: dict[str, Attribute] = field(default_factory=dict)
    regions: list[list[Block]] = field(default_factory=list)
    successors: list[tuple[str, list[Value]]] = field(default_factory=list)
    location: SourceLocation = SourceLocation("?", 0)
    # Set by the parser.
    definition: OpDef = field(init=False)

    @property
    def result(self) -> Value:
        return self.results[0]

    def integer(self, name: str) -> int:
        value = self.attributes[name]
        assert isinstance(value, int)
        return value

    def integers(self, name: str) -> list[int]:
        value = self.attributes[name]
        assert isinstance(value, list)
        return value


@dataclass(eq=False, slots=True)
class FuncOp:
    """One `tt.func`."""

    name: str
    blocks: list[Block]
    location: SourceLocation
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
