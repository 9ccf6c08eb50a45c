"""Where the values of an integer or pointer tensor lie, as C expressions: proofs about a whole block at once.

A tensor is `constant + sum(step[k] * index[k]) + rest`, with `rest` anywhere in an interval. The C functions `plus`,
`times`, ... of checks.c are exact or set `slow`; so a proof is never made with a value that wrapped around.
A value of 32 bits equals its form modulo 2**32, and exactly once `fits` is among the conditions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from fuzz.backends.cpu.analysis.provenance import is_table
from fuzz.backends.cpu.codegen.lower import Lowering
from fuzz.backends.cpu.codegen.operands import Lane
from fuzz.backends.cpu.frontend.ir import Op, Value
from fuzz.backends.cpu.frontend.types import Type

LIMIT = 2**62
# Longer expressions than this cost more than they save.
LONGEST = 600


class Text(str):
    """A C expression of type i64 whose value is at most 2**bits in magnitude."""

    bits: int

    def __new__(cls, text: str, bits: int) -> Text:
        made = super().__new__(cls, text)
        made.bits = bits
        return made


Term = int | Text


def bits_of(term: Term) -> int:
    return term.bits if isinstance(term, Text) else abs(term).bit_length()


class TooLong(Exception):
    """The form of a value is no longer worth its text."""


@dataclass(frozen=True, slots=True)
class Form:
    """`conditions` are C expressions that must hold for the form to be right."""

    constant: Term
    steps: tuple[Term, ...] = ()
    rest: tuple[Term, Term] = (0, 0)
    conditions: tuple[str, ...] = ()

    @property
    def is_uniform(self) -> bool:
        return self.rest == (0, 0) and not any(self.steps)

    @property
    def is_affine(self) -> bool:
        return self.rest == (0, 0)


def call(name: str, first: Term, second: Term, bits: int = 63) -> Text:
    return short(f"{name}({first}, {second}, &slow)", bits)


def short(text: str, bits: int) -> Text:
    if len(text) > LONGEST:
        raise TooLong
    return Text(text, bits)


def arithmetic(name: str, operator: str, first: Term, second: Term, bits: int) -> Text:
    """Plain C where nothing can overflow."""
    return short(f"({first} {operator} {second})", bits) if bits < 63 else call(name, first, second)


def plus(first: Term, second: Term) -> Term:
    if first == 0 or second == 0:
        return second if first == 0 else first
    if isinstance(first, int) and isinstance(second, int) and abs(first + second) < LIMIT:
        return first + second
    return arithmetic("plus", "+", first, second, 1 + max(bits_of(first), bits_of(second)))


def times(first: Term, second: Term) -> Term:
    if 0 in (first, second):
        return 0
    if 1 in (first, second):
        return second if first == 1 else first
    if isinstance(first, int) and isinstance(second, int) and abs(first * second) < LIMIT:
        return first * second
    return arithmetic("times", "*", first, second, bits_of(first) + bits_of(second))


def lesser(first: Term, second: Term) -> Term:
    return extreme("lesser", min, first, second)


def greater(first: Term, second: Term) -> Term:
    return extreme("greater", max, first, second)


def extreme(name: str, compute: Callable[[int, int], int], first: Term, second: Term) -> Term:
    if isinstance(first, int) and isinstance(second, int):
        return compute(first, second)
    return first if first == second else call(name, first, second, max(bits_of(first), bits_of(second)))


def span(form: Form, low: tuple[Term, ...], high: tuple[Term, ...]) -> tuple[Term, Term]:
    """The least and greatest value while every index lies in [low, high]."""
    least, most = plus(form.constant, form.rest[0]), plus(form.constant, form.rest[1])
    for step, start, end in zip(form.steps, low, high, strict=True):
        ends = times(step, start), times(step, end)
        if isinstance(step, int):
            ends = ends if step >= 0 else ends[::-1]
        else:
            ends = lesser(*ends), greater(*ends)
        least, most = plus(least, ends[0]), plus(most, ends[1])
    return least, most


def whole(form: Form, shape: tuple[int, ...]) -> tuple[Term, Term]:
    return span(form, tuple(0 for _ in shape), tuple(size - 1 for size in shape))


def add(first: Form, second: Form, sign: int = 1) -> Form:
    low, high = (times(sign, term) for term in second.rest)
    rest = plus(first.rest[0], min_of(sign, low, high)), plus(first.rest[1], min_of(-sign, low, high))
    steps = tuple(plus(a, times(sign, b)) for a, b in zip(first.steps, second.steps, strict=True))
    constant = plus(first.constant, times(sign, second.constant))
    return Form(constant, steps, rest, first.conditions + second.conditions)


def min_of(sign: int, low: Term, high: Term) -> Term:
    return low if sign > 0 else high


def scale(form: Form, factor: Form) -> Form:
    by = factor.constant
    low, high = times(form.rest[0], by), times(form.rest[1], by)
    rest = (0, 0) if form.rest == (0, 0) else (lesser(low, high), greater(low, high))
    steps = tuple(times(step, by) for step in form.steps)
    return Form(times(form.constant, by), steps, rest, form.conditions + factor.conditions)


class Intervals:
    """The forms of a function's values, made when asked for."""

    def __init__(self, lowering: Lowering) -> None:
        self.lowering = lowering
        self.known: dict[Value, Form | None] = {}

    def form(self, value: Value) -> Form | None:
        """The form of an integer or pointer value; None where it has none worth having."""
        if value not in self.known:
            try:
                self.known[value] = self.tensor(value) if value.typed.is_tensor else self.scalar(value)
            except TooLong:
                self.known[value] = None
        return self.known[value]

    def scalar(self, value: Value) -> Form | None:
        """What the C variable holds is what the kernel computed, wrapped around or not."""
        if value.typed.is_float:
            return None
        op = self.lowering.makers.get(value)
        if op is not None and op.name == "arith.constant":
            return constant_of(op)
        # Addresses of this machine; anything may have been added to other pointers.
        bits = 48 if value in self.lowering.function.parameters and value.typed.is_pointer else value.typed.bits - 1
        return Form(Text(f"(i64){self.lowering.operand(value).at((), None)}", bits))

    def tensor(self, value: Value) -> Form | None:
        op = self.lowering.makers.get(value)
        if op is None:
            return self.carried(value)
        rule = RULES.get(op.name)
        return None if rule is None or value.typed.is_float else rule(self, op)

    def carried(self, value: Value) -> Form | None:
        """A tensor that a loop carries and only shifts: its first form, moved as far as its first lane is."""
        origin = self.lowering.shifted.get(value)
        first = None if origin is None else self.form(origin[0])
        now = self.lowering.values.get(value)
        if origin is None or first is None or not isinstance(now, Lane):
            return None
        start = now.at(tuple("0" for _ in value.typed.shape), None)
        moved = Text(f"((i64){start} - {origin[1]})", 63 if value.typed.size == 8 else 32)
        return replace(first, constant=plus(first.constant, moved))

    def exact(self, value: Value) -> Form | None:
        """The form, with the condition under which it is the value and not only equal modulo 2**32."""
        form = self.form(value)
        if form is None or value.typed.size == 8 or not value.typed.is_tensor:
            return form
        low, high = whole(form, value.typed.shape)
        if form.is_uniform and bits_of(form.constant) < 32:
            return form
        if isinstance(low, int) and isinstance(high, int):
            return form if -(2**31) <= low and high < 2**31 else None
        return replace(form, conditions=(*form.conditions, f"FITS({low}, {high})"))

    def forms(self, op: Op) -> list[Form | None]:
        return [self.form(operand) for operand in op.operands]


Rule = Callable[[Intervals, Op], Form | None]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def constant_of(op: Op) -> Form | None:
    text = str(op.attributes["value"])
    if text in ("true", "false") or is_table(op):
        return None
    return Form(int(text, 0), tuple(0 for _ in op.result.typed.shape))


@rule("arith.constant")
def constant(intervals: Intervals, op: Op) -> Form | None:
    return constant_of(op)


@rule("tt.make_range")
def make_range(intervals: Intervals, op: Op) -> Form | None:
    return Form(op.integer("start"), unit_free((1,), op.result.typed))


@rule("tt.splat")
def splat(intervals: Intervals, op: Op) -> Form | None:
    (form,) = intervals.forms(op)
    return None if form is None else replace(form, steps=tuple(0 for _ in op.result.typed.shape))


@rule("tt.expand_dims")
def expand_dims(intervals: Intervals, op: Op) -> Form | None:
    (form,) = intervals.forms(op)
    axis = op.integer("axis")
    return None if form is None else replace(form, steps=(*form.steps[:axis], 0, *form.steps[axis:]))


@rule("tt.broadcast", "arith.index_cast", "arith.trunci")
def unchanged(intervals: Intervals, op: Op) -> Form | None:
    return intervals.form(op.operands[0])


@rule("tt.trans")
def trans(intervals: Intervals, op: Op) -> Form | None:
    (form,) = intervals.forms(op)
    order = op.attributes["order"]
    assert isinstance(order, list)
    return None if form is None else replace(form, steps=tuple(form.steps[axis] for axis in order))


@rule("arith.extsi")
def extend(intervals: Intervals, op: Op) -> Form | None:
    return intervals.exact(op.operands[0]) if op.operands[0].typed.size >= 4 else None


@rule("arith.addi")
def sum_of(intervals: Intervals, op: Op) -> Form | None:
    first, second = intervals.forms(op)
    return None if first is None or second is None or op.result.typed.size < 4 else add(first, second)


@rule("arith.subi")
def difference(intervals: Intervals, op: Op) -> Form | None:
    first, second = intervals.forms(op)
    return None if first is None or second is None or op.result.typed.size < 4 else add(first, second, -1)


@rule("arith.muli")
def product(intervals: Intervals, op: Op) -> Form | None:
    first, second = intervals.forms(op)
    if first is None or second is None or op.result.typed.size < 4 or not (first.is_uniform or second.is_uniform):
        return None
    return scale(first, second) if second.is_uniform else scale(second, first)


@rule("tt.addptr")
def addptr(intervals: Intervals, op: Op) -> Form | None:
    pointer, offset = intervals.form(op.operands[0]), intervals.exact(op.operands[1])
    if pointer is None or offset is None or op.operands[1].typed.size < 4:
        return None
    return add(pointer, scale(offset, Form(Type(op.result.typed.pointee).size)))


@rule("arith.remsi", "arith.remui", "arith.divsi", "arith.divui")
def divided(intervals: Intervals, op: Op) -> Form | None:
    """Of a value that is never negative, by a positive uniform number."""
    value, by = intervals.exact(op.operands[0]), intervals.exact(op.operands[1])
    if value is None or by is None or not by.is_uniform or op.result.typed.size < 4:
        return None
    low, high = whole(value, op.result.typed.shape)
    conditions = (*value.conditions, *by.conditions, f"{low} >= 0 && {by.constant} > 0")
    if op.name.startswith("arith.rem"):
        rest: tuple[Term, Term] = 0, lesser(high, plus(by.constant, -1))
    else:
        rest = call("over", low, by.constant, bits_of(low)), call("over", high, by.constant, bits_of(high))
    return Form(0, tuple(0 for _ in value.steps), rest, conditions)


@rule("arith.minsi", "arith.maxsi", "arith.select")
def chosen(intervals: Intervals, op: Op) -> Form | None:
    first, second = (intervals.exact(value) for value in op.operands[-2:])
    if first is None or second is None or op.result.typed.is_pointer or op.result.typed.size < 4:
        return None
    shape = op.result.typed.shape
    (low, high), (other_low, other_high) = whole(first, shape), whole(second, shape)
    least = {"arith.maxsi": greater}.get(op.name, lesser)(low, other_low)
    most = {"arith.minsi": lesser}.get(op.name, greater)(high, other_high)
    return Form(0, tuple(0 for _ in shape), (least, most), first.conditions + second.conditions)


def unit_free(steps: tuple[Term, ...], type: Type) -> tuple[Term, ...]:
    """An axis of one element has no step."""
    return tuple(0 if size == 1 else step for step, size in zip(steps, type.shape, strict=True))
