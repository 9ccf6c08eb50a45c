"""Offsets computed a second time in 64 bits, to tell where their 32-bit arithmetic wrapped around.

A pointer whose offset wrapped around carries a tag in the upper bits of its address. It does no harm in lanes that are
masked off; an active lane reports it. Sums, products and shifts that lead to an offset are recomputed; everything else
(hashes, remainders, loaded indexes) is taken as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from fuzz.backends.cpu.analysis.affine import TooLong
from fuzz.backends.cpu.codegen.lower import Lowering
from fuzz.backends.cpu.codegen.operands import Index, Lane, Loop, Operand, Uniform, identity, remapped
from fuzz.backends.cpu.frontend.ir import Location, Op, Value

OPERATORS = {"arith.addi": "+", "arith.subi": "-", "arith.muli": "*"}
MOVES = ("tt.splat", "tt.broadcast", "tt.expand_dims", "tt.trans", "arith.extsi", "arith.index_cast")
LARGEST = 48

Remap = Callable[[Index], Index]


@dataclass(slots=True)
class Wide:
    """What a value is made of. `location` is that of the outermost 32-bit operation, None where there is none."""

    lowering: Lowering
    leaves: list[tuple[Value, Operand]] = field(default_factory=list)
    location: Location | None = None
    size: int = 0

    def text(self, value: Value, index: Index, loop: Loop | None, remap: Remap = lambda index: index) -> str:
        """The value at an index in 64 bits."""
        self.size += 1
        op = self.lowering.makers.get(value)
        if op is not None and self.size < LARGEST and value.typed.size >= 4:
            if op.name in OPERATORS or is_shift(op, self.lowering):
                return self.arithmetic(op, index, loop, remap)
            if op.name in MOVES and op.operands[0].typed.size >= 4:
                step = moved(op)
                return self.text(op.operands[0], step(index), loop, lambda i: step(remap(i)))
        source = self.lowering.operand(value)
        self.leaves.append((value, remapped(value.typed, source, remap)))
        return f"(i64){source.at(index, loop)}"

    def arithmetic(self, op: Op, index: Index, loop: Loop | None, remap: Remap) -> str:
        if op.result.typed.size == 4 and self.location is None:
            self.location = op.location
        first, second = (self.text(operand, index, loop, remap) for operand in op.operands)
        return f"({first} {OPERATORS.get(op.name, '<<')} {second})"


def is_shift(op: Op, lowering: Lowering) -> bool:
    """A shift to the left by a constant that empties nothing."""
    if op.name != "arith.shli":
        return False
    by = lowering.operand(op.operands[1])
    return isinstance(by, Uniform) and by.text.isdecimal() and int(by.text) < 31


def moved(op: Op) -> Remap:
    """The index of the operand's element that an operation moves to an index of its result."""
    if op.name == "tt.splat":
        return lambda index: ()
    if op.name == "tt.expand_dims":
        axis = op.integer("axis")
        return lambda index: index[:axis] + index[axis + 1 :]
    if op.name == "tt.trans":
        order = op.attributes["order"]
        assert isinstance(order, list)
        back = [order.index(axis) for axis in range(len(order))]
        return lambda index: tuple(index[axis] for axis in back)
    shape = op.operands[0].typed.shape
    return lambda index: tuple("0" if size == 1 else at for at, size in zip(index, shape, strict=True))


def tagged_offset(lowering: Lowering, op: Op, scale: str) -> bool:
    """Lower a `tt.addptr` whose offset is the result of 32-bit arithmetic. False where it is not."""
    pointer, offset = op.operands
    shape = op.result.typed.shape
    probe = Wide(lowering)
    probe.text(offset, identity(shape), None if not shape else Loop(shape))
    if probe.location is None:
        return False
    number = len(lowering.wraps)
    lowering.wraps.append(probe.location)
    operands = [*lowering.operands(op), *(leaf for _, leaf in probe.leaves if leaf.type.is_tensor)]
    if not shape:
        wide = Wide(lowering).text(offset, (), None)
        lowering.elementwise(op.result, operands, lambda texts: tagged(texts, wide, scale, number))
        return True
    loop = lowering.loop_for(shape, operands)
    texts = [operand.at(identity(shape), loop) for operand in operands[:2]]
    wide = Wide(lowering).text(offset, identity(shape), loop)
    lane = Lane(op.result.typed, lowering.names.pick(op.result.name), loop)
    lowering.arrays.append(lane)
    lowering.into(loop, lane, tagged(texts, wide, scale, number))
    conditions = proof(lowering, op)
    if conditions is not None:
        loop.before += [line for line in conditions if line not in loop.before]
        loop.fast[len(loop.lines) - 1] = [], f"{texts[0]} + (i64){texts[1]}{scale}"
    lowering.values[op.result] = lane
    return True


def tagged(texts: list[str], wide: str, scale: str, number: int) -> str:
    return f"({texts[0]} + (i64){texts[1]}{scale}) + ({wide} == {texts[1]} ? 0 : TAG({number}))"


def proof(lowering: Lowering, op: Op) -> list[str] | None:
    """Conditions under which no lane of the offset wraps around."""
    try:
        form = lowering.intervals.exact(op.operands[1])
        scalars = list(scalar_conditions(lowering, op.operands[1]))
    except TooLong:
        return None
    return None if form is None else [f"slow |= !({text});" for text in (*form.conditions, *scalars)]


def scalar_conditions(lowering: Lowering, value: Value, depth: int = 0) -> Iterator[str]:
    """That no scalar which the value is made of wrapped around: forms take scalars as they are."""
    op = lowering.makers.get(value)
    if op is None or depth > 16:
        return
    if value.typed.is_tensor:
        for operand in op.operands:
            yield from scalar_conditions(lowering, operand, depth + 1)
        return
    wide = Wide(lowering)
    if value.typed.element in ("i32", "i64"):
        text = wide.text(value, (), None)
        if wide.location is not None:
            yield f"{text} == {lowering.operand(value).at((), None)}"
