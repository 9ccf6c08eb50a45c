"""Which lanes a mask lets through: a box of indexes around them, as C expressions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from fuzz.backends.cpu.analysis.affine import Form, Intervals, Term, TooLong, add, greater, lesser, plus, times, whole
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


def full(shape: tuple[int, ...]) -> Box:
    return Box(tuple(0 for _ in shape), tuple(size - 1 for size in shape))


def box_of(intervals: Intervals, mask: Value) -> Box:
    """The smallest box that is easy to tell; the whole tensor where nothing is known."""
    op = intervals.lowering.makers.get(mask)
    rule = RULES.get(op.name) if op is not None else None
    try:
        found = rule(intervals, op) if rule is not None and op is not None else None
    except TooLong:
        found = None
    return found or full(mask.typed.shape)


Rule = Callable[[Intervals, Op], Box | None]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


@rule("arith.andi")
def both(intervals: Intervals, op: Op) -> Box | None:
    first, second = (box_of(intervals, operand) for operand in op.operands)
    low = tuple(greater(a, b) for a, b in zip(first.low, second.low, strict=True))
    high = tuple(lesser(a, b) for a, b in zip(first.high, second.high, strict=True))
    return Box(low, high, first.only_if + second.only_if, first.conditions + second.conditions)


@rule("tt.splat")
def splat(intervals: Intervals, op: Op) -> Box | None:
    text = intervals.lowering.operand(op.operands[0]).at((), None)
    return replace(full(op.result.typed.shape), only_if=(text,))


@rule("tt.expand_dims")
def expand_dims(intervals: Intervals, op: Op) -> Box | None:
    box, axis = box_of(intervals, op.operands[0]), op.integer("axis")
    return replace(box, low=(*box.low[:axis], 0, *box.low[axis:]), high=(*box.high[:axis], 0, *box.high[axis:]))


@rule("tt.broadcast")
def broadcast(intervals: Intervals, op: Op) -> Box | None:
    """An axis of one element holds for all indexes or for none."""
    box, old, new = box_of(intervals, op.operands[0]), op.operands[0].typed.shape, op.result.typed.shape
    low, high, only_if = list(box.low), list(box.high), list(box.only_if)
    for axis, (before, after) in enumerate(zip(old, new, strict=True)):
        if before != after:
            if (low[axis], high[axis]) != (0, 0):
                only_if.append(f"{low[axis]} <= 0 && {high[axis]} >= 0")
            low[axis], high[axis] = 0, after - 1
    return replace(box, low=tuple(low), high=tuple(high), only_if=tuple(only_if))


@rule("tt.trans")
def trans(intervals: Intervals, op: Op) -> Box | None:
    box, order = box_of(intervals, op.operands[0]), op.attributes["order"]
    assert isinstance(order, list)
    return replace(box, low=tuple(box.low[axis] for axis in order), high=tuple(box.high[axis] for axis in order))


@rule("arith.cmpi")
def compare(intervals: Intervals, op: Op) -> Box | None:
    """`index < bound` and its kin, where the difference moves by one along one axis, or not at all."""
    predicate, type = op.words[0], op.operands[0].typed
    if predicate in ("eq", "ne") or type.size < 4 or type.is_pointer or not type.is_tensor:
        return None
    first, second = (intervals.exact(operand) for operand in op.operands)
    if first is None or second is None:
        return None
    conditions = first.conditions + second.conditions
    if predicate[0] == "u":
        conditions += tuple(f"{whole(form, type.shape)[0]} >= 0" for form in (first, second))
    difference = add(first, second, -1) if predicate[1] == "l" else add(second, first, -1)
    return at_most(difference, 0 if predicate[2] == "e" else -1, type.shape, conditions)


def at_most(form: Form, limit: int, shape: tuple[int, ...], conditions: tuple[str, ...]) -> Box | None:
    """The lanes where the form is at most the limit."""
    moving = [axis for axis, step in enumerate(form.steps) if step != 0]
    box = replace(full(shape), conditions=conditions)
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
