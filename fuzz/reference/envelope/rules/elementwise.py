"""Defines rules of elementwise operations: exact selections, rounded mode, functions with documented errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._ops import OpOverload

from fuzz.reference.dispatch import aten, rounds
from fuzz.reference.envelope.ensemble import RULES, EnsembleMode, EnsembleTensor, align, unwrap, wrap, wrap_all
from fuzz.reference.envelope.noise import MemberNoise
from fuzz.reference.envelope.precision import Precision
from fuzz.reference.envelope.recurrences import MOST_ELEMENTS, ElementwiseProduct, take_step
from fuzz.reference.envelope.summation import rounding_steps

__all__ = ["CORRECTLY_ROUNDED", "begin_with", "is_rounded_constant", "register", "rounded_away", "rounds_constants"]

# Selections, comparisons, signs and integer mode: the result is one of the operands, or a decision.
EXACT = (
    "neg abs sign sgn relu relu6 clamp clamp_min clamp_max maximum minimum fmax fmin "
    "eq ne lt le gt ge isnan isinf isposinf isneginf signbit copysign "
    "logical_and logical_or logical_not logical_xor bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift "
    "bitwise_right_shift __and__ __or__ __xor__ __lshift__ __rshift__ frac fmod threshold "
    "threshold_backward hardtanh hardtanh_backward nan_to_num heaviside nextafter positive"
)
# Binary operators rounded once.
ROUNDED = "sub.Tensor sub.Scalar rsub.Tensor rsub.Scalar add.Tensor add.Scalar"
ELEMENTARY = (
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh asinh acosh "
    "atanh atan2 erf erfc erfinv lgamma digamma hypot sinc i0 special_i1 special_i0e special_i1e special_erfcx "
    "special_log_ndtr special_ndtri special_bessel_j0 special_bessel_j1 polygamma special_zeta"
)

CORRECTLY_ROUNDED = 1.0
"""The error of a division, in roundings, of a backend that computes it as IEEE 754 says."""


@lru_cache(maxsize=4096)
def rounded_away(value: float) -> bool:
    """Whether float32 rounds a constant: kernels receive constants as float32, whatever they accumulate in.

    One beyond its range, such as float64's smallest number, stands for float32's.
    """
    with np.errstate(over="ignore"):
        return bool(np.isfinite(np.float32(value)) and float(np.float32(value)) != value)


def rounds_constants(precision: Precision, value: float) -> bool:
    """Whether a kernel of this precision has to round a constant."""
    return not precision.holds_doubles and rounded_away(value)


def is_rounded_constant(mode: EnsembleMode, value: Any) -> bool:
    """Whether an operand is a constant that the kernel has to round."""
    kind = type(value)
    if kind is EnsembleTensor or kind is int:
        return False
    if kind is float:
        return rounds_constants(mode.noise.precision, value)
    if isinstance(value, Tensor) and value.dim() == 0 and value.is_floating_point():
        return is_rounded_constant(mode, float(value))
    return False


def apply_exactly(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The operation on aligned members, with constants as they are and as float32 holds them."""
    if len(args) == 1 and not kwargs:
        return wrap(mode, func(args[0].stacked))
    return wrap(mode, evaluate_exactly(mode, func, args, kwargs))


def evaluate_exactly(
    mode: EnsembleMode, func: Callable[..., Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Tensor:
    """The stacked result; some members compare with, select or divide by the constants that a kernel has rounded."""
    options = {name: unwrap(value) for name, value in kwargs.items()}
    operands = align(args, mode.noise.rows)
    t = func(*operands, **options)
    if any(is_rounded_constant(mode, value) for value in (*args, *kwargs.values())):
        rows = rounding_constants(mode.noise)
        rounded = [_held(mode, value, given) for given, value in zip(args, operands, strict=True)]
        options = {name: _held(mode, value, kwargs[name]) for name, value in options.items()}
        t[rows] = func(*rounded, **options)[rows]
    return t


def rounding_constants(noise: MemberNoise) -> list[int]:
    """The rows of the members whose constants are those that float32 holds."""
    return noise.rows_of([row for row in noise.step_rows if noise.ids[row - 1] % 2])


def _held(mode: EnsembleMode, value: Any, given: Any) -> Any:
    """An operand as float32 holds it, where it is a constant that the kernel has to round."""
    if not is_rounded_constant(mode, given):
        return value
    return value.to(torch.float32).to(value.dtype) if isinstance(value, Tensor) else float(np.float32(value))


def select(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """where: exact. Where some elements of a state stay as they are, the result is a state."""
    out = apply_exactly(mode, func, args, kwargs)
    states = [state for x in args[1:] if (state := mode.recurrence_of(x)) is not None and x.shape == out.shape]
    out.recurrence = max(states, key=lambda state: state.steps, default=None)
    return keep_exponent(mode, out, args[1:])


def keep_exponent(mode: EnsembleMode, out: EnsembleTensor, operands: Iterable[Any]) -> EnsembleTensor:
    """The result of a selection or product, with the exponent of an operand of its shape that is an exponential."""
    if not mode.has_exponents:
        return out
    for x in operands:
        if type(x) is EnsembleTensor and x.exponent is not None and x.shape == out.shape:
            out.exponent = x.exponent
    return out


def round_to_integer(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """floor, ceil, round, trunc: exact, and undecided where the bound of the number reaches the jump."""
    return wrap(mode, func(mode.noise.widen(args[0].stacked), *args[1:], **kwargs))


@rounds
def additive(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """add, sub, rsub: one rounding, and that of a product or quotient which a fused multiply-add leaves out.

    Sums do not underflow where subnormals are kept. Scaled operands round first.
    """
    noise = mode.noise
    alpha = kwargs.get("alpha", args[2] if len(args) > 2 else 1)
    x, y = args[0], args[1]
    if alpha not in (1, -1):
        with mode:
            x, y = (x * alpha, y) if func in (aten.rsub.Tensor, aten.rsub.Scalar) else (x, y * alpha)
        return additive(mode, func, (x, y), {})
    terms = align((x, y), noise.rows)
    t = func(*terms, alpha=alpha) if alpha != 1 else func(*terms)
    if not t.is_floating_point():
        return wrap(mode, t)
    for constant in (x, y):
        if is_rounded_constant(mode, constant):
            noise.round_constant_(t, abs(float(constant)))
    if type(x) is int or type(y) is int:
        out = wrap(mode, noise.round_unless_integer(t, 1.0))
        out.complement = _subtracted_from_one(func, y, terms[0])
        return out
    recurrence = None
    products = _product(x, t), _product(y, t)
    if products[0] is not None or products[1] is not None:
        recurrence = take_step(noise, t, terms, products)
    interpolate_otherwise(mode, t, (x, y))
    contracted = None
    for operand, term, product in zip((x, y), terms, products, strict=True):
        if product is not None or _is_quotient(operand, t):
            size = term.abs().nan_to_num_(0.0, 0.0, 0.0)
            if mode.saturates and is_square(product):
                size[size == 1] = 0.0
            noise.add_working_error_(t, size)
            contracted = size if contracted is None else contracted + size
    for term, other in ((x, terms[1]), (y, terms[0])):
        if type(term) is EnsembleTensor and term.terms > 1 and isinstance(other, Tensor) and term.shape == t.shape[1:]:
            begin_with(mode, t, other, term.terms)
    out = wrap(mode, noise.round_(t, 1.0, noise.flush_to_zero))
    out.recurrence = recurrence
    out.complement = _subtracted_from_one(func, y, terms[0])
    out.contracted = contracted if noise.is_thorough and _spreads_a_statistic((x, y), t) else None
    if func is aten.sub.Tensor and type(x) is EnsembleTensor and x.is_dot and x.shape == out.shape:
        out.minuend = x.stacked
    return out


def begin_with(mode: EnsembleMode, t: Tensor, start: Tensor, terms: int) -> None:
    """Perturb a stacked sum t of `terms` products and a start, which the sum may begin with, as with a layer's bias.

    Each addition of a product then rounds at the size of the start: twice what a sum of so many equal terms loses.
    """
    size = start.to(t.dtype).abs().expand_as(t).contiguous()
    mode.noise.add_error_(t, size, rounding_steps(2 * terms))


def fuse_again(
    mode: EnsembleMode, t: Tensor, x: Any, operands: Sequence[Any], operation: Callable[..., Tensor]
) -> None:
    """Perturb the stacked product or quotient t of operands whose first one is x, where x has a product as a term.

    The product may be fused in one use of it and rounded in another one, such as the variance by whose root a
    difference from the mean is divided, or a backward that computes the difference again from a mean that was kept.
    """
    if type(x) is EnsembleTensor and x.contracted is not None:
        size = operation(x.contracted.view_as(operands[0]), operands[1])
        mode.noise.add_working_error_(t, size.abs_().nan_to_num_(0.0, 0.0, 0.0))


def _subtracted_from_one(func: OpOverload, y: Any, term: Tensor) -> Tensor | None:
    """The stacked z of 1 - z, which torch computes as rsub(z, 1)."""
    return term if func is aten.rsub.Scalar and y == 1 and term.numel() <= MOST_ELEMENTS else None


def interpolate_otherwise(mode: EnsembleMode, t: Tensor, terms: tuple[Any, Any]) -> None:
    """Perturb a stacked sum (1 - z)*x + z*y, which a kernel may compute as x + z*(y - x): by the rounding of y - x."""
    for first, second in (terms, terms[::-1]):
        weighted = first.weighted if type(first) is EnsembleTensor and first.shape == t.shape[1:] else None
        product = None if weighted is None else _product(second, t)
        if weighted is None or product is None:
            continue
        z, x = weighted
        for weight, y in (product.factors, product.factors[::-1]):
            if isinstance(weight, Tensor) and weight.data_ptr() == z.data_ptr() and weight.numel() == z.numel():
                mode.noise.add_working_error_(t, (weight * (y - x)).abs().nan_to_num_(0.0, 0.0, 0.0).expand_as(t))
                return


def _product(x: Any, t: Tensor) -> ElementwiseProduct | None:
    """The product that a term of the stacked sum t is, if it has the sum's shape."""
    return x.product if type(x) is EnsembleTensor and x.shape == t.shape[1:] else None


def is_square(product: ElementwiseProduct | None) -> bool:
    """Whether a product is one of a tensor with itself, which nothing rounds where it is 1."""
    return product is not None and product.factors[0] is product.factors[1]


def _spreads_a_statistic(terms: tuple[Any, ...], t: Tensor) -> bool:
    """Whether a term of the stacked sum t is the same for a row or column of it, as a mean is and a state is not."""
    return any(isinstance(term, Tensor) and term.shape != t.shape[1:] for term in terms)


def _is_quotient(x: Any, t: Tensor) -> bool:
    """Whether a term of the stacked sum t is a quotient that the backend computes as a product."""
    return type(x) is EnsembleTensor and x.is_quotient and x.shape == t.shape[1:]


def _is_complement(x: Any) -> bool:
    return type(x) is EnsembleTensor and x.complement is not None


@rounds
def multiply(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """mul: one rounding, one more for a constant. None for the square of a tanh near 1 (saturation.py)."""
    noise = mode.noise
    x, y = args
    operands = align(args, noise.rows)
    t = func(*operands)
    is_floating = t.is_floating_point()
    fuse_again(mode, t, x, operands, torch.mul)
    fuse_again(mode, t, y, operands[::-1], torch.mul)
    if is_floating and (type(x) is int or type(y) is int):
        t = noise.round_unless_integer(t, 1.0)
    elif is_floating:
        square = t.clone() if mode.saturates and x is y else None
        noise.round_(t, 2.0 if is_rounded_constant(mode, x) or is_rounded_constant(mode, y) else 1.0)
        if square is not None:
            t = torch.where((1 - square).abs() <= 2.0**-52, square, t)
    out = wrap(mode, t)
    if is_floating and t.numel() <= MOST_ELEMENTS and func is not aten.ldexp.Tensor:
        out.product = ElementwiseProduct(tuple(operands), (mode.recurrence_of(args[0]), mode.recurrence_of(args[1])))
        out.weighted = next(
            ((one.complement, other) for one, other in ((x, operands[1]), (y, operands[0])) if _is_complement(one)),
            None,
        )
    if type(x) is EnsembleTensor and not isinstance(y, Tensor):
        out.terms = x.terms
    return keep_exponent(mode, out, args)


@rounds
def divide(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """div: the backend's error of a division; floor and trunc of the quotient are as those of any rounded number."""
    noise = mode.noise
    error = 2 * noise.precision.error("div").base
    x, y = align(args[:2], noise.rows)
    rounding_mode = "floor" if func is aten.floor_divide.default else kwargs.get("rounding_mode")
    t = torch.true_divide(x, y)
    fuse_again(mode, t, args[0], (x, y), torch.true_divide)
    if rounding_mode is not None and not (_floating(x) or _floating(y)):
        return wrap(mode, torch.div(x, y, rounding_mode=rounding_mode))
    constants = is_rounded_constant(mode, args[0]) + is_rounded_constant(mode, args[1])
    noise.round_(t, error + constants)
    if rounding_mode is None:
        out = wrap(mode, t)
        out.is_quotient = error > CORRECTLY_ROUNDED
        return out
    quotient = noise.widen(t)
    return wrap(mode, quotient.floor() if rounding_mode == "floor" else quotient.trunc())


def _floating(x: Any) -> bool:
    return x.is_floating_point() if isinstance(x, Tensor) else isinstance(x, float)


@rounds
def remainder(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """remainder: exact but for the last addition of the divisor, and for a divisor that is a rounded constant."""
    t = evaluate_exactly(mode, func, args, {})
    return wrap(mode, mode.noise.round_(t) if t.is_floating_point() else t)


def elementary(name: str) -> Callable[..., Any]:
    """Rule of an elementary function: its documented error on the backend."""

    @rounds
    def rule(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        noise = mode.noise
        # Whole numbers are taken as floating ones, exactly.
        operands = [
            x.double() if isinstance(x, Tensor) and not x.is_floating_point() else x for x in align(args, noise.rows)
        ]
        exponents = [noise.scatter_exponents(operands[0])] if name in ("exp", "exp2") else operands
        t = func(*exponents, **kwargs)
        out = wrap(mode, noise.round_function_(t, operands[0], noise.precision.error(name)))
        if name == "exp" and args[0].is_dot:
            out.exponent = operands[0] if args[0].minuend is None else args[0].minuend
            mode.has_exponents = True
        return out

    return rule


def reach_integers(noise: MemberNoise, exponent: Tensor) -> Tensor:
    """Exponents, in members that round steps the nearest integer where the bound of the number reaches it.

    Only with integers a negative number has a power, and -0.0 a sign: rounding decides whether it is NaN, or which
    infinity it is. A power of 0 is 1 with an exponent that rounds to 0.
    """
    reach, distance = (noise.widen(exponent) - exponent).abs(), (exponent.round() - exponent).abs()
    return torch.where((reach > 0) & (reach >= distance), exponent.round(), exponent)


@rounds
def power(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """pow: small integers multiply, halves are roots, others the backend's pow, or exp2 of the exponent times log2(x).

    What is lost of that product and of a constant, by rounding, the exponential multiplies with its size.
    """
    noise = mode.noise
    base, exponent = align(args, noise.rows)
    if type(args[1]) is EnsembleTensor:
        exponent = torch.where(torch.as_tensor(base) <= 0, reach_integers(noise, exponent), exponent)
    t = func(base, exponent)
    error = noise.precision.error
    if not t.is_floating_point() or (type(args[1]) in (int, float) and args[1] in (0, 1)):
        return wrap(mode, t)
    if isinstance(args[1], int | float) and float(args[1]).is_integer() and 2 <= abs(args[1]) <= 16:
        return wrap(mode, noise.round_(t, abs(args[1]) - (args[1] > 0)))
    if type(args[1]) is float and args[1] in (0.5, -0.5, -1.0):
        name = {0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}[args[1]]
        return wrap(mode, noise.round_function_(t, base, error(name)))
    if not (isinstance(args[0], int | float) and args[0] == 2):
        constants = is_rounded_constant(mode, args[0]) + is_rounded_constant(mode, args[1])
        size = torch.as_tensor(base).log().mul(exponent).mul(t).abs().expand_as(t).nan_to_num(0.0, 0.0, 0.0)
        noise.add_working_error_(t, size * (1.0 + constants))
    return wrap(mode, noise.round_function_(t, None, error("pow")))


def masked_fill(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """masked_fill: a selection."""

    def fill(x: Tensor, mask: Tensor, value: Any) -> Tensor:
        return torch.where(mask, value, x).to(x.dtype)

    return keep_exponent(mode, wrap(mode, evaluate_exactly(mode, fill, args, {})), args)


def frexp(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """frexp: exact, two results."""
    return wrap_all(mode, tuple(func(args[0].stacked)))


def register() -> None:
    """State the rules of this module."""
    RULES.register(apply_exactly, *EXACT.split())
    RULES.register(select, "where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar")
    RULES.register(round_to_integer, "floor", "ceil", "round.default", "trunc")
    RULES.register(additive, *ROUNDED.split())
    RULES.register(multiply, "mul.Tensor", "mul.Scalar", "ldexp.Tensor")
    RULES.register(divide, "div.Tensor", "div.Scalar", "div.Tensor_mode", "div.Scalar_mode", "floor_divide.default")
    RULES.register(remainder, "remainder")
    RULES.register(power, "pow")
    RULES.register(masked_fill, "masked_fill")
    RULES.register(frexp, "frexp.Tensor")
    for name in ELEMENTARY.split():
        RULES.register(elementary(name), name)
