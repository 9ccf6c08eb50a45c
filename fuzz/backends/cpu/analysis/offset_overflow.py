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
from fuzz.backends.cpu.frontend.ir import Op, SourceLocation, Value

OPERATORS = {"arith.addi": "+", "arith.subi": "-", "arith.muli": "*"}
MOST_VALUES = 48
"""Values of one recomputed offset at most; what lies behind them is taken as it is."""
DEEPEST = 16
"""Operations on the way from an offset to a scalar that it is made of, at most."""


@dataclass(slots=True)
class WideOffset:
    """Writes the C that recomputes one value in 64 bits.

    `leaves` are the values that it takes as they are, `visited` counts all values. `location` is that of the outermost
    32-bit operation, None where there is none.
    """

    lowering: Lowering
    leaves: list[tuple[Value, Operand]] = field(default_factory=list)
    location: SourceLocation | None = None
    visited: int = 0

    def text(
        self, value: Value, index: Index, loop: LoopNest | None, index_of_lane: IndexFunction = lambda index: index
    ) -> str:
        """The value at an index in 64 bits; `index_of_lane` gives that index from the lane's."""
        self.visited += 1
        op = self.lowering.producers.get(value)
        if op is not None and self.visited < MOST_VALUES and value.type.size >= 4:
            if op.name in OPERATORS or is_recomputable_shift(op, self.lowering):
                return self.arithmetic(op, index, loop, index_of_lane)
            if op.definition.index_map is not None and op.operands[0].type.size >= 4:
                step = make_index_function(op.definition.index_map(op))
                return self.text(op.operands[0], step(index), loop, lambda lane: step(index_of_lane(lane)))
        source = self.lowering.operand(value)
        self.leaves.append((value, indexed_view(value.type, source, index_of_lane)))
        return f"(i64){source.at(index, loop)}"

    def arithmetic(self, op: Op, index: Index, loop: LoopNest | None, index_of_lane: IndexFunction) -> str:
        if op.result.type.size == 4 and self.location is None:
            self.location = op.location
        first, second = (self.text(operand, index, loop, index_of_lane) for operand in op.operands)
        return f"({first} {OPERATORS.get(op.name, '<<')} {second})"


def is_recomputable_shift(op: Op, lowering: Lowering) -> bool:
    """Whether it is a 32-bit shift to the left by a constant of less than 31."""
    if op.name != "arith.shli" or op.result.type.size == 8:
        return False
    by = lowering.operand(op.operands[1])
    return isinstance(by, Uniform) and by.constant is not None and 0 <= by.constant < 31


def lower_tagged_offset(lowering: Lowering, op: Op, scale: str) -> bool:
    """Lowers a `tt.addptr` whose offset is the result of 32-bit arithmetic; returns whether it is.

    `scale` is C that multiplies an offset in elements by the size of one, such as `` * 4``.
    """
    offset, shape = op.operands[1], op.result.type.shape
    # Which leaves the loop has to load is known only once the text is written, which therefore is written twice.
    probe = WideOffset(lowering)
    probe.text(offset, current_index(shape), None if not shape else LoopNest(shape))
    if probe.location is None:
        return False
    number = len(lowering.offset_locations)
    lowering.offset_locations.append(probe.location)
    operands = [*lowering.operands(op), *(leaf for _, leaf in probe.leaves if leaf.type.is_tensor)]
    if not shape:
        wide = WideOffset(lowering).text(offset, (), None)
        lowering.elementwise(op.result, operands, lambda texts: tag_overflow(texts[0], texts[1], wide, scale, number))
        return True
    loop = lowering.loop_for(shape, operands)
    pointer, narrow = (operand.at(current_index(shape), loop) for operand in operands[:2])
    wide = WideOffset(lowering).text(offset, current_index(shape), loop)
    name = lowering.identifiers.pick(op.result.name)
    statement = lowering.add_lane(op.result, name, loop, tag_overflow(pointer, narrow, wide, scale, number))
    conditions = no_overflow_conditions(lowering, offset)
    if conditions is not None:
        loop.add_before(*conditions)
        statement.fast = FastPath((), f"{pointer} + (i64){narrow}{scale}")
    return True


def tag_overflow(pointer: str, narrow: str, wide: str, scale: str, number: int) -> str:
    """C of a pointer plus an offset, tagged where the offset in 32 bits (`narrow`) differs from that in 64.

    A pointer has one tag, the first: two would add up to an address that has none.
    """
    return f"({pointer} + (i64){narrow}{scale}) + ({wide} == {narrow} || TAGGED({pointer}) ? 0 : TAG({number}))"


def no_overflow_conditions(lowering: Lowering, offset: Value) -> list[str] | None:
    """C that sets `slow` unless no lane of the offset wraps around; None where that cannot be decided."""
    try:
        form = lowering.affine.exact_form(offset)
        scalars = list(scalar_conditions(lowering, offset))
    except TooLong:
        return None
    return None if form is None else [f"slow |= !({text});" for text in (*form.conditions, *scalars)]


def pointer_conditions(lowering: Lowering, pointer: Value) -> Iterator[str]:
    """C conditions that no scalar of which the offsets of a tensor of pointers are made wrapped around.

    The form of such a tensor says nothing of tags: it takes scalars as they are. Raises TooLong as scalar_conditions.
    """
    while pointer.type.is_tensor:
        if pointer in lowering.shifted:
            pointer, _ = lowering.shifted[pointer]
            continue
        op = lowering.producers.get(pointer)
        if op is None or not op.operands:
            return
        if op.name == "tt.addptr":
            yield from scalar_conditions(lowering, op.operands[1])
        pointer = op.operands[0]


def scalar_conditions(lowering: Lowering, value: Value, depth: int = 0) -> Iterator[str]:
    """C conditions that no scalar of which a value is made wrapped around; affine forms take scalars as they are.

    Raises TooLong where scalars may lie deeper than DEEPEST.
    """
    op = lowering.producers.get(value)
    if op is None:
        return
    if depth > DEEPEST:
        raise TooLong
    if value.type.is_tensor:
        for operand in op.operands:
            yield from scalar_conditions(lowering, operand, depth + 1)
        return
    wide = WideOffset(lowering)
    if value.type.element in ("i32", "i64"):
        text = wide.text(value, (), None)
        if wide.location is not None:
            yield f"{text} == {lowering.scalar(value)}"
