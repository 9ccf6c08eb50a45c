"""Pointwise operations: exact selections, rounded arithmetic, elementary functions with documented errors."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._ops import OpOverload

from fuzz.reference.envelope.ensemble import Arithmetic, Ensemble, align, unwrap, wrap, wrap_all
from fuzz.reference.envelope.rules.table import aten, put, rounding

__all__ = ["inexact", "register"]

# Selections, comparisons, signs and integer arithmetic: the result is one of the operands, or a decision.
EXACT = (
    "neg abs sign sgn relu relu6 clamp clamp_min clamp_max maximum minimum fmax fmin where.self where.ScalarSelf "
    "where.ScalarOther where.Scalar eq ne lt le gt ge isnan isinf isposinf isneginf signbit copysign "
    "logical_and logical_or logical_not logical_xor bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift "
    "bitwise_right_shift __and__ __or__ __xor__ __lshift__ __rshift__ floor ceil round trunc frac fmod threshold "
    "threshold_backward hardtanh hardtanh_backward nan_to_num heaviside nextafter positive"
)
# Binary operators rounded once.
ROUNDED = "sub.Tensor sub.Scalar rsub.Tensor rsub.Scalar add.Tensor add.Scalar"
ELEMENTARY = (
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh asinh acosh "
    "atanh atan2 erf erfc erfinv lgamma digamma hypot sinc i0 special_i1 special_i0e special_erfcx special_log_ndtr "
    "special_ndtri special_bessel_j0 special_bessel_j1 polygamma special_zeta"
)


@lru_cache(maxsize=4096)
def _rounded_away(value: float) -> bool:
    """Whether float32 does not hold a constant: kernels receive constants as float32, whatever they accumulate in."""
    with np.errstate(over="ignore"):
        return bool(np.isfinite(value) and float(np.float32(value)) != value)


def inexact(arithmetic: Arithmetic, value: Any) -> bool:
    """Whether an operand is a constant that the kernel has to round."""
    if type(value) is float:
        return arithmetic.members.precision.u > 2.0**-50 and _rounded_away(value)
    if isinstance(value, Tensor) and type(value) is not Ensemble and value.dim() == 0 and value.is_floating_point():
        return inexact(arithmetic, float(value))
    return False


def exact(arithmetic: Arithmetic, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The operation on aligned members, nothing else."""
    if len(args) == 1:
        return wrap(arithmetic, func(args[0].stacked, **kwargs))
    return wrap(arithmetic, func(*align(args, arithmetic.members.rows), **{k: unwrap(v) for k, v in kwargs.items()}))


@rounding
def additive(arithmetic: Arithmetic, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """add, sub, rsub: one rounding; sums do not underflow where subnormals are kept. Scaled operands round first."""
    members = arithmetic.members
    alpha = kwargs.get("alpha", args[2] if len(args) > 2 else 1)
    x, y = args[0], args[1]
    if alpha not in (1, -1):
        with arithmetic:
            x, y = (x * alpha, y) if func in (aten.rsub.Tensor, aten.rsub.Scalar) else (x, y * alpha)
        return additive(arithmetic, func, (x, y), {})
    t = func(*align((x, y), members.rows), alpha=alpha) if alpha != 1 else func(*align((x, y), members.rows))
    if not t.is_floating_point():
        return wrap(arithmetic, t)
    for constant in (x, y):
        if inexact(arithmetic, constant):
            members.absolute_(t, abs(float(constant)))
    if type(x) is int or type(y) is int:
        return wrap(arithmetic, members.round_but_whole_(t, 1.0))
    return wrap(arithmetic, members.round_(t, 1.0, members.flushes))


@rounding
def multiply(arithmetic: Arithmetic, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """mul: one rounding, one more for a constant."""
    members = arithmetic.members
    t = func(*align(args, members.rows))
    if t.is_floating_point() and (type(args[0]) is int or type(args[1]) is int):
        t = members.round_but_whole_(t, 1.0)
    elif t.is_floating_point():
        members.round_(t, 2.0 if inexact(arithmetic, args[0]) or inexact(arithmetic, args[1]) else 1.0)
    return wrap(arithmetic, t)


@rounding
def divide(arithmetic: Arithmetic, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """div: the backend's error of a division; floor and trunc are taken of the rounded quotient."""
    members = arithmetic.members
    x, y = align(args[:2], members.rows)
    mode = "floor" if func is aten.floor_divide.default else kwargs.get("rounding_mode")
    t = torch.true_divide(x, y)
    if mode is not None and not (_floating(x) or _floating(y)):
        return wrap(arithmetic, torch.div(x, y, rounding_mode=mode))
    constants = inexact(arithmetic, args[0]) + inexact(arithmetic, args[1])
    members.round_(t, 2 * members.precision.error("div").base + constants)
    return wrap(arithmetic, t if mode is None else t.floor_() if mode == "floor" else t.trunc_())


def _floating(x: Any) -> bool:
    return x.is_floating_point() if isinstance(x, Tensor) else isinstance(x, float)


@rounding
def remainder(arithmetic: Arithmetic, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """remainder: exact but for the last addition of the divisor."""
    t = func(*align(args, arithmetic.members.rows))
    return wrap(arithmetic, arithmetic.members.round_(t) if t.is_floating_point() else t)


def elementary(name: str) -> Callable[..., Any]:
    """Rule of an elementary function: its documented error on the backend."""

    @rounding
    def rule(arithmetic: Arithmetic, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        members = arithmetic.members
        operands = align(args, members.rows)
        t = func(*operands, **kwargs)
        return wrap(arithmetic, members.elementary_(t, operands[0], members.precision.error(name)))

    return rule


@rounding
def sigmoid(arithmetic: Arithmetic, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """sigmoid: from exp(-x), whose error grows with |x| on some backends and is divided away where x > 0.

    Where exp(-x) exceeds the largest finite value, 1/(1 + exp(-x)) is 0: results below 1/largest may be lost.
    """
    members = arithmetic.members
    x = args[0].stacked
    t = members.flush_(func(x), 1 / members.precision.largest)
    return wrap(arithmetic, members.elementary_(t, x.clamp(max=1.0), members.precision.error("sigmoid")))


@rounding
def power(arithmetic: Arithmetic, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """pow: small integers multiply, halves are roots, others the backend's pow and log(x) times a rounded constant."""
    members = arithmetic.members
    base, exponent = align(args, members.rows)
    t = func(base, exponent)
    error = members.precision.error
    if not t.is_floating_point() or (type(args[1]) in (int, float) and args[1] in (0, 1)):
        return wrap(arithmetic, t)
    if isinstance(args[1], int | float) and float(args[1]).is_integer() and 2 <= abs(args[1]) <= 16:
        return wrap(arithmetic, members.round_(t, abs(args[1]) - (args[1] > 0)))
    if type(args[1]) is float and args[1] in (0.5, -0.5, -1.0):
        name = {0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}[args[1]]
        return wrap(arithmetic, members.elementary_(t, base, error(name)))
    if inexact(arithmetic, args[1]) or inexact(arithmetic, args[0]):
        members.add_(t, torch.as_tensor(base).log().mul(exponent).mul(t).abs().expand_as(t).clone(), 1.0)
    return wrap(arithmetic, members.elementary_(t, None, error("pow")))


def masked_fill(arithmetic: Arithmetic, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """masked_fill: a selection."""
    x, mask, value = align(args, arithmetic.members.rows)
    return wrap(arithmetic, torch.where(mask, value, x).to(x.dtype))


def frexp(arithmetic: Arithmetic, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """frexp: exact, two results."""
    return wrap_all(arithmetic, tuple(func(args[0].stacked)))


def register() -> None:
    """State the rules of this module."""
    put(exact, *EXACT.split())
    put(additive, *ROUNDED.split())
    put(multiply, "mul.Tensor", "mul.Scalar", "ldexp.Tensor")
    put(divide, "div.Tensor", "div.Scalar", "div.Tensor_mode", "div.Scalar_mode", "floor_divide.default")
    put(remainder, "remainder")
    put(sigmoid, "sigmoid")
    put(power, "pow")
    put(masked_fill, "masked_fill")
    put(frexp, "frexp.Tensor")
    for name in ELEMENTARY.split():
        put(elementary(name), name)
