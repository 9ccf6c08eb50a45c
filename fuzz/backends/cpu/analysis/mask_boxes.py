"""Finds a box of indexes around the lanes that a mask lets through, as C expressions."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fuzz.backends.cpu.analysis.affine import (
    AffineAnalysis,
    AffineForm,
    Term,
    TooLong,
    add_forms,
    full_range,
    greater,
    lesser,
    plus,
    times,
)
from fuzz.backends.cpu.codegen.index import IndexMap
from fuzz.backends.cpu.frontend.ir import Op, Value

Bounds = tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Box:
    """Per axis the least and greatest index. No lane is let through unless all of `only_if` hold; the box is right
    where all `conditions` do."""

    low: Bounds
    high: Bounds
    only_if: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()


def full_box(shape: tuple[int, ...]) -> Box:
    return Box(tuple(0 for _ in shape), tuple(size - 1 for size in shape))


def box_of(analysis: AffineAnalysis, mask: Value) -> Box:
    """The smallest box that is easy to find; the whole tensor where nothing is known."""
    try:
        return known_box(analysis, mask) or full_box(mask.type.shape)
    except TooLong:
        return full_box(mask.type.shape)


def known_box(analysis: AffineAnalysis, mask: Value) -> Box | None:
    op = analysis.lowering.producers.get(mask)
    if op is None:
        return None
    if op.definition.mask_box is not None:
        return op.definition.mask_box(analysis, op)
    if op.definition.index_map is None:
        return None
    operand = op.operands[0]
    return move_box(box_of(analysis, operand), op.definition.index_map(op), operand.type.shape, mask.type.shape)


def move_box(box: Box, index_map: IndexMap, old: tuple[int, ...], new: tuple[int, ...]) -> Box:
    """The box of a result whose elements are those of an operand with this box, at the indexes of the map."""
    low, high = list(full_box(new).low), list(full_box(new).high)
    only_if = list(box.only_if)
    for coordinate, size, first, last in zip(index_map, old, box.low, box.high, strict=True):
        axis, start = coordinate.axis, coordinate.start
        if axis is None:
            # All lanes of the result read the same index of the operand.
            if (first, last) != (0, size - 1):
                only_if.append(f"{first} <= {start} && {last} >= {start}")
        elif coordinate.step == 1:
            low[axis], high[axis] = plus(first, -start), plus(last, -start)
        elif coordinate.step == -1:
            low[axis], high[axis] = plus(start, times(-1, last)), plus(start, times(-1, first))
    return replace(box, low=tuple(low), high=tuple(high), only_if=tuple(only_if))


def conjunction(analysis: AffineAnalysis, op: Op) -> Box | None:
    first, second = (box_of(analysis, operand) for operand in op.operands)
    low = tuple(greater(a, b) for a, b in zip(first.low, second.low, strict=True))
    high = tuple(lesser(a, b) for a, b in zip(first.high, second.high, strict=True))
    return Box(low, high, first.only_if + second.only_if, first.conditions + second.conditions)


def splat(analysis: AffineAnalysis, op: Op) -> Box | None:
    return replace(full_box(op.result.type.shape), only_if=(analysis.lowering.scalar(op.operands[0]),))


def comparison(analysis: AffineAnalysis, op: Op) -> Box | None:
    """`index < bound` and its kin, where the difference moves by one along one axis, or not at all."""
    predicate, type = op.keywords[0], op.operands[0].type
    if predicate in ("eq", "ne") or type.size < 4 or type.is_pointer or not type.is_tensor:
        return None
    first, second = (analysis.exact_form(operand) for operand in op.operands)
    if first is None or second is None:
        return None
    conditions = first.conditions + second.conditions
    if predicate[0] == "u":
        conditions += tuple(f"{full_range(form, type.shape)[0]} >= 0" for form in (first, second))
    difference = add_forms(first, second, -1) if predicate[1] == "l" else add_forms(second, first, -1)
    return at_most(difference, 0 if predicate[2] == "e" else -1, type.shape, conditions)


def at_most(form: AffineForm, limit: int, shape: tuple[int, ...], conditions: tuple[str, ...]) -> Box | None:
    """The lanes where the form is at most the limit."""
    moving = [axis for axis, step in enumerate(form.steps) if step != 0]
    box = replace(full_box(shape), conditions=conditions)
    if not form.is_affine or len(moving) > 1:
        return None
    if not moving:
        return replace(box, only_if=(f"{form.constant} <= {limit}",))
    axis, low, high = moving[0], list(box.low), list(box.high)
    if form.steps[axis] == 1:
        high[axis] = lesser(high[axis], plus(limit, times(-1, form.constant)))
    elif form.steps[axis] == -1:
        low[axis] = greater(low[axis], plus(form.constant, -limit))
    else:
        return None
    return replace(box, low=tuple(low), high=tuple(high))
