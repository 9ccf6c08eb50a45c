"""Finds where the values of an integer or pointer tensor lie, as C expressions, for checks of a whole block at once.

A tensor is `constant + sum(step[k] * index[k]) + rest`, with `rest` anywhere in an interval. The C functions `plus`,
`times`, ... of checks.c are exact or set `slow`; so nothing is proved with a value that wrapped around.
A value of 32 bits equals its form modulo 2**32, and exactly where `FITS` is among the conditions and holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from fuzz.backends.cpu.analysis.dataflow import has_many_values
from fuzz.backends.cpu.codegen.index import IndexMap, origin
from fuzz.backends.cpu.codegen.lower import Lowering
from fuzz.backends.cpu.codegen.operands import Lane
from fuzz.backends.cpu.frontend.ir import Op, Value

LIMIT = 2**62
# Longer expressions than this cost more than they save.
LONGEST_TEXT = 600


class CExpression(str):
    """A C expression of type i64 whose value is at most 2**bits in magnitude."""

    bits: int

    def __new__(cls, text: str, bits: int) -> CExpression:
        expression = super().__new__(cls, text)
        expression.bits = bits
        return expression


Term = int | CExpression


def bits_of(term: Term) -> int:
    return term.bits if isinstance(term, CExpression) else abs(term).bit_length()


class TooLong(Exception):
    """The C of a form is longer than what it would save."""


@dataclass(frozen=True, slots=True)
class AffineForm:
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


def checked_call(name: str, first: Term, second: Term, bits: int = 63) -> CExpression:
    return limited(f"{name}({first}, {second}, &slow)", bits)


def limited(text: str, bits: int) -> CExpression:
    if len(text) > LONGEST_TEXT:
        raise TooLong
    return CExpression(text, bits)


def arithmetic(name: str, operator: str, first: Term, second: Term, bits: int) -> CExpression:
    """Plain C where nothing can overflow."""
    return limited(f"({first} {operator} {second})", bits) if bits < 63 else checked_call(name, first, second)


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
    return first if first == second else checked_call(name, first, second, max(bits_of(first), bits_of(second)))


def range_in_box(form: AffineForm, low: tuple[Term, ...], high: tuple[Term, ...]) -> tuple[Term, Term]:
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


def full_range(form: AffineForm, shape: tuple[int, ...]) -> tuple[Term, Term]:
    """The least and greatest value over the whole shape."""
    return range_in_box(form, tuple(0 for _ in shape), tuple(size - 1 for size in shape))


def add_forms(first: AffineForm, second: AffineForm, sign: int = 1) -> AffineForm:
    low, high = (times(sign, term) for term in second.rest)
    rest = plus(first.rest[0], min_of(sign, low, high)), plus(first.rest[1], min_of(-sign, low, high))
    steps = tuple(plus(a, times(sign, b)) for a, b in zip(first.steps, second.steps, strict=True))
    constant = plus(first.constant, times(sign, second.constant))
    return AffineForm(constant, steps, rest, first.conditions + second.conditions)


def min_of(sign: int, low: Term, high: Term) -> Term:
    return low if sign > 0 else high


def scale_form(form: AffineForm, factor: AffineForm) -> AffineForm:
    by = factor.constant
    low, high = times(form.rest[0], by), times(form.rest[1], by)
    rest = (0, 0) if form.rest == (0, 0) else (lesser(low, high), greater(low, high))
    steps = tuple(times(step, by) for step in form.steps)
    return AffineForm(times(form.constant, by), steps, rest, form.conditions + factor.conditions)


def move_form(form: AffineForm, index_map: IndexMap, rank: int) -> AffineForm:
    """The form of a result whose elements are those of an operand of this form, at the indexes of the map."""
    constant = form.constant
    moved: list[Term] = [0] * rank
    for step, coordinate in zip(form.steps, index_map, strict=True):
        constant = plus(constant, times(step, coordinate.start))
        if coordinate.axis is not None:
            moved[coordinate.axis] = plus(moved[coordinate.axis], times(step, coordinate.step))
    return replace(form, constant=constant, steps=tuple(moved))


class AffineAnalysis:
    """The forms of a function's values, each computed on first use."""

    def __init__(self, lowering: Lowering) -> None:
        self.lowering = lowering
        self.forms: dict[Value, AffineForm | None] = {}

    def form(self, value: Value) -> AffineForm | None:
        """The form of an integer or pointer value; None where it has none worth having."""
        if value not in self.forms:
            try:
                self.forms[value] = self.tensor_form(value) if value.type.is_tensor else self.scalar_form(value)
            except TooLong:
                self.forms[value] = None
        return self.forms[value]

    def scalar_form(self, value: Value) -> AffineForm | None:
        """What the C variable holds is what the kernel computed, wrapped around or not."""
        if value.type.is_float:
            return None
        op = self.lowering.producers.get(value)
        if op is not None and op.name == "arith.constant":
            return constant_form(op)
        # Addresses of this machine; anything may have been added to other pointers.
        bits = 48 if value in self.lowering.function.parameters and value.type.is_pointer else value.type.bits - 1
        return AffineForm(CExpression(f"(i64){self.lowering.scalar(value)}", bits))

    def tensor_form(self, value: Value) -> AffineForm | None:
        op = self.lowering.producers.get(value)
        if op is None:
            return self.carried_form(value)
        if value.type.is_float:
            return None
        definition = op.definition
        if definition.affine is not None:
            return definition.affine(self, op)
        if definition.index_map is None or (form := self.form(op.operands[0])) is None:
            return None
        return move_form(form, definition.index_map(op), len(value.type.shape))

    def carried_form(self, value: Value) -> AffineForm | None:
        """A tensor that a loop carries and only shifts: its first form, moved as far as its first lane is."""
        if value not in self.lowering.shifted:
            return None
        first_value, first_start = self.lowering.shifted[value]
        form, now = self.form(first_value), self.lowering.values.get(value)
        if form is None or not isinstance(now, Lane):
            return None
        start = now.at(origin(value.type.shape), None)
        shift = CExpression(f"((i64){start} - {first_start})", 63 if value.type.size == 8 else 32)
        return replace(form, constant=plus(form.constant, shift))

    def exact_form(self, value: Value) -> AffineForm | None:
        """The form, with the condition under which it is the value and not only equal modulo 2**32."""
        form = self.form(value)
        if form is None or value.type.size == 8 or not value.type.is_tensor:
            return form
        low, high = full_range(form, value.type.shape)
        if form.is_uniform and bits_of(form.constant) < 32:
            return form
        if isinstance(low, int) and isinstance(high, int):
            return form if -(2**31) <= low and high < 2**31 else None
        return replace(form, conditions=(*form.conditions, f"FITS({low}, {high})"))

    def operand_forms(self, op: Op) -> list[AffineForm | None]:
        return [self.form(operand) for operand in op.operands]


def constant_form(op: Op) -> AffineForm | None:
    text = str(op.attributes["value"])
    if text in ("true", "false") or has_many_values(op):
        return None
    return AffineForm(int(text, 0), tuple(0 for _ in op.result.type.shape))
