"""Derives the affine forms of results of integer and pointer arithmetic from those of the operands."""

from __future__ import annotations

from fuzz.backends.cpu.analysis.affine import (
    AffineAnalysis,
    AffineForm,
    Term,
    add_forms,
    bits_of,
    checked_call,
    constant_form,
    full_range,
    greater,
    lesser,
    plus,
    scale_form,
)
from fuzz.backends.cpu.frontend.ir import Op
from fuzz.backends.cpu.frontend.types import Type


def constant(analysis: AffineAnalysis, op: Op) -> AffineForm | None:
    return constant_form(op)


def make_range(analysis: AffineAnalysis, op: Op) -> AffineForm | None:
    (size,) = op.result.type.shape
    return AffineForm(op.integer("start"), (0 if size == 1 else 1,))


def same_value(analysis: AffineAnalysis, op: Op) -> AffineForm | None:
    return analysis.form(op.operands[0])


def sign_extension(analysis: AffineAnalysis, op: Op) -> AffineForm | None:
    return analysis.exact_form(op.operands[0]) if op.operands[0].type.size >= 4 else None


def addition(analysis: AffineAnalysis, op: Op) -> AffineForm | None:
    return signed_sum(analysis, op, 1)


def subtraction(analysis: AffineAnalysis, op: Op) -> AffineForm | None:
    return signed_sum(analysis, op, -1)


def signed_sum(analysis: AffineAnalysis, op: Op, sign: int) -> AffineForm | None:
    first, second = analysis.operand_forms(op)
    return None if first is None or second is None or op.result.type.size < 4 else add_forms(first, second, sign)


def multiplication(analysis: AffineAnalysis, op: Op) -> AffineForm | None:
    first, second = analysis.operand_forms(op)
    if first is None or second is None or op.result.type.size < 4 or not (first.is_uniform or second.is_uniform):
        return None
    return scale_form(first, second) if second.is_uniform else scale_form(second, first)


def pointer_addition(analysis: AffineAnalysis, op: Op) -> AffineForm | None:
    pointer, offset = analysis.form(op.operands[0]), analysis.exact_form(op.operands[1])
    if pointer is None or offset is None or op.operands[1].type.size < 4:
        return None
    return add_forms(pointer, scale_form(offset, AffineForm(Type(op.result.type.pointee).size)))


def division(analysis: AffineAnalysis, op: Op) -> AffineForm | None:
    """Quotient or remainder of a value that is never negative by a positive uniform number."""
    value, divisor = analysis.exact_form(op.operands[0]), analysis.exact_form(op.operands[1])
    if value is None or divisor is None or not divisor.is_uniform or op.result.type.size < 4:
        return None
    by = divisor.constant
    low, high = full_range(value, op.result.type.shape)
    conditions = (*value.conditions, *divisor.conditions, f"{low} >= 0 && {by} > 0")
    if op.name.startswith("arith.rem"):
        rest: tuple[Term, Term] = 0, lesser(high, plus(by, -1))
    else:
        rest = checked_call("over", low, by, bits_of(low)), checked_call("over", high, by, bits_of(high))
    return AffineForm(0, tuple(0 for _ in value.steps), rest, conditions)


def one_of_two(analysis: AffineAnalysis, op: Op) -> AffineForm | None:
    """A minimum, a maximum, or a selection of one of the last two operands."""
    first, second = (analysis.exact_form(value) for value in op.operands[-2:])
    if first is None or second is None or op.result.type.is_pointer or op.result.type.size < 4:
        return None
    shape = op.result.type.shape
    (low, high), (other_low, other_high) = full_range(first, shape), full_range(second, shape)
    least = {"arith.maxsi": greater}.get(op.name, lesser)(low, other_low)
    most = {"arith.minsi": lesser}.get(op.name, greater)(high, other_high)
    return AffineForm(0, tuple(0 for _ in shape), (least, most), first.conditions + second.conditions)
