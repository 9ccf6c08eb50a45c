"""Finds numbers of half precision and e5m2 that a kernel only moves, and has them moved as integers.

Held as float, a signalling NaN would become quiet.
"""

from __future__ import annotations

from collections.abc import Mapping

from fuzz.backends.cpu.frontend.ir import FuncOp, Op, Value, walk

INTEGERS = {"f16": "i16", "f8E5M2": "i8"}
"""The types whose NaNs a conversion to float changes, and those that their bits are moved in."""
BITCASTS = ("tt.bitcast", "arith.bitcast")
VIEWS = ("tt.broadcast", "tt.expand_dims", "tt.trans", "tt.reshape", "tt.splat")


def move_as_integers(function: FuncOp) -> None:
    """Gives loads and bitcasts, whose numbers are only stored or cast by their bits, the type of an integer."""
    uses: dict[Value, list[Op]] = {}
    branched: set[Value] = set()
    for _, op in walk(function.blocks):
        for operand in op.operands:
            uses.setdefault(operand, []).append(op)
        branched |= {value for _, values in op.successors for value in values}
    for _, op in walk(function.blocks):
        if op.name in ("tt.load", *BITCASTS) and is_moved(op.result, uses) and not branched & closure(op.result, uses):
            for value in closure(op.result, uses):
                value.declared_type = value.type.with_element(INTEGERS[value.type.element])


def is_moved(value: Value, uses: Mapping[Value, list[Op]]) -> bool:
    """Whether a value has such a type, and nothing is done with it but what keeps its bits."""
    return value.type.element in INTEGERS and all(keeps_bits(op, value, uses) for op in uses.get(value, ()))


def keeps_bits(op: Op, value: Value, uses: Mapping[Value, list[Op]]) -> bool:
    if op.name in VIEWS:
        return is_moved(op.result, uses)
    return op.name in BITCASTS or (op.name == "tt.store" and value is op.operands[1])


def closure(value: Value, uses: Mapping[Value, list[Op]]) -> set[Value]:
    """A value and the views of it."""
    views = (op.result for op in uses.get(value, ()) if op.name in VIEWS)
    return {value}.union(*(closure(view, uses) for view in views))
