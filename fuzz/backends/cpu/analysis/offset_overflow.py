"""Computes offsets a second time in 64 bits, to find where their 32-bit arithmetic wrapped around.

A pointer whose offset wrapped around carries a tag in the upper bits of its address. It does no harm in lanes that are
masked off; an active lane reports it. Sums, products and shifts that lead to an offset are recomputed; everything else
(hashes, remainders, loaded indexes) is taken as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from fuzz.backends.cpu.analysis.affine import TooLong
from fuzz.backends.cpu.codegen.index import Index, IndexFunction, current_index, make_index_function
from fuzz.backends.cpu.codegen.lower import Lowering
from fuzz.backends.cpu.codegen.operands import FastPath, LoopNest, Operand, Uniform, indexed_view
from fuzz.backends.cpu.frontend.ir import Location, Op, Value

OPERATORS = {"arith.addi": "+", "arith.subi": "-", "arith.muli": "*"}
LARGEST = 48
"""Values in one recomputed offset at most."""


@dataclass(slots=True)
class WideOffset:
    """Recomputes one value in 64 bits. `leaves` are the values that it takes as they are; `location` is that of the
    outermost 32-bit operation, None where there is none."""

    lowering: Lowering
    leaves: list[tuple[Value, Operand]] = field(default_factory=list)
    location: Location | None = None
    size: int = 0

    def text(
        self, value: Value, index: Index, loop: LoopNest | None, function: IndexFunction = lambda index: index
    ) -> str:
        """The value at an index in 64 bits; `function` gives the index from that of the lane."""
        self.size += 1
        op = self.lowering.producers.get(value)
        if op is not None and self.size < LARGEST and value.type.size >= 4:
            if op.name in OPERATORS or is_shift(op, self.lowering):
                return self.arithmetic(op, index, loop, function)
            if op.definition.index_map is not None and op.operands[0].type.size >= 4:
                step = make_index_function(op.definition.index_map(op))
                return self.text(op.operands[0], step(index), loop, lambda i: step(function(i)))
        source = self.lowering.operand(value)
        self.leaves.append((value, indexed_view(value.type, source, function)))
        return f"(i64){source.at(index, loop)}"

    def arithmetic(self, op: Op, index: Index, loop: LoopNest | None, function: IndexFunction) -> str:
        if op.result.type.size == 4 and self.location is None:
            self.location = op.location
        first, second = (self.text(operand, index, loop, function) for operand in op.operands)
        return f"({first} {OPERATORS.get(op.name, '<<')} {second})"


def is_shift(op: Op, lowering: Lowering) -> bool:
    """A shift to the left by a constant that empties nothing."""
    if op.name != "arith.shli" or op.result.type.size == 8:
        return False
    by = lowering.operand(op.operands[1])
    return isinstance(by, Uniform) and by.constant is not None and 0 <= by.constant < 31


def lower_tagged_offset(lowering: Lowering, op: Op, scale: str) -> bool:
    """Lowers a `tt.addptr` whose offset is the result of 32-bit arithmetic. False where it is not."""
    offset, shape = op.operands[1], op.result.type.shape
    probe = WideOffset(lowering)
    probe.text(offset, current_index(shape), None if not shape else LoopNest(shape))
    if probe.location is None:
        return False
    number = len(lowering.offset_locations)
    lowering.offset_locations.append(probe.location)
    operands = [*lowering.operands(op), *(leaf for _, leaf in probe.leaves if leaf.type.is_tensor)]
    if not shape:
        wide = WideOffset(lowering).text(offset, (), None)
        lowering.elementwise(op.result, operands, lambda texts: tag_overflow(texts, wide, scale, number))
        return True
    loop = lowering.loop_for(shape, operands)
    texts = [operand.at(current_index(shape), loop) for operand in operands[:2]]
    wide = WideOffset(lowering).text(offset, current_index(shape), loop)
    name = lowering.identifiers.pick(op.result.name)
    statement = lowering.add_lane(op.result, name, loop, tag_overflow(texts, wide, scale, number))
    conditions = no_overflow_conditions(lowering, offset)
    if conditions is not None:
        loop.add_before(*conditions)
        statement.fast = FastPath((), f"{texts[0]} + (i64){texts[1]}{scale}")
    return True


def tag_overflow(texts: list[str], wide: str, scale: str, number: int) -> str:
    return f"({texts[0]} + (i64){texts[1]}{scale}) + ({wide} == {texts[1]} ? 0 : TAG({number}))"


def no_overflow_conditions(lowering: Lowering, offset: Value) -> list[str] | None:
    """C that sets `slow` unless no lane of the offset wraps around; None where that cannot be decided."""
    try:
        form = lowering.affine.exact_form(offset)
        scalars = list(scalar_conditions(lowering, offset))
    except TooLong:
        return None
    return None if form is None else [f"slow |= !({text});" for text in (*form.conditions, *scalars)]


def scalar_conditions(lowering: Lowering, value: Value, depth: int = 0) -> Iterator[str]:
    """That no scalar which the value is made of wrapped around: forms take scalars as they are."""
    op = lowering.producers.get(value)
    if op is None or depth > 16:
        return
    if value.type.is_tensor:
        for operand in op.operands:
            yield from scalar_conditions(lowering, operand, depth + 1)
        return
    wide = WideOffset(lowering)
    if value.type.element in ("i32", "i64"):
        text = wide.text(value, (), None)
        if wide.location is not None:
            yield f"{text} == {lowering.scalar(value)}"
