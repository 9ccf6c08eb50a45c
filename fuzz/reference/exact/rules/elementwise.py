"""Defines rules of elementwise operations: sums, products, quotients, functions of one and two numbers, signs."""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload

from fuzz.errors import Unadjudicated
from fuzz.reference.dispatch import Rule, aten
from fuzz.reference.exact.arithmetic import BINARY, UNARY, Array, Number, object_array
from fuzz.reference.exact.tensor import RULES, ExactMode, ExactTensor, from_array

__all__ = ["register"]


def additive(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """add, sub, rsub with their alpha."""
    x, y = mode.array(args[0]), mode.array(args[1])
    alpha = mode.array(kwargs.get("alpha", args[2] if len(args) > 2 else 1))
    name = func._schema.name.split("::")[1]
    if name == "rsub":
        x, y = y, x
    y = y if alpha.item() == 1 else mode.arithmetic.map("mul", y, alpha)
    return from_array(mode.arithmetic.map("add" if name == "add" else "sub", x, y))


def multiply(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """mul."""
    return from_array(mode.arithmetic.map("mul", mode.array(args[0]), mode.array(args[1])))


def divide(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """div with its rounding mode, floor_divide."""
    rounding_mode = "floor" if func is aten.floor_divide.default else kwargs.get("rounding_mode")
    quotient = mode.arithmetic.map("div", mode.array(args[0]), mode.array(args[1]))
    return from_array(quotient if rounding_mode is None else mode.arithmetic.map(rounding_mode, quotient))


def apply_function(name: str) -> Rule:
    """The rule of a function of one or two numbers. Its overloads take tensors and scalars."""
    count = 1 if name in UNARY else 2

    def rule(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if kwargs or len(args) != count:
            raise Unadjudicated(f"{func}: no rule for its other arguments")
        return from_array(mode.arithmetic.map(name, *map(mode.array, args)))

    return rule


def _signs(mode: ExactMode, x: Array) -> torch.Tensor:
    """The sign of each number as a double; NaN has none."""
    arithmetic = mode.arithmetic
    flat = [float(arithmetic.sign(v) if arithmetic.is_finite(v) else v) for v in x.reshape(-1).tolist()]
    return torch.sign(torch.tensor(flat, dtype=torch.float64)).view(x.shape)


def _numbers(mode: ExactMode, t: torch.Tensor) -> Array:
    """The doubles of a plain tensor, in its shape even where there are none."""
    return mode.arithmetic.array(t.reshape(-1).tolist()).reshape(t.shape)


def sign(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """sign, sgn and signbit, which takes every zero as positive."""
    signs = _signs(mode, mode.array(args[0]))
    return signs < 0 if func is aten.signbit.default else from_array(_numbers(mode, signs))


def mask_gradient(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """threshold_backward(g, x, threshold), hardtanh_backward(g, x, low, high): the gradient inside, 0 elsewhere."""
    g, x = args[:2]
    with mode:
        inside = ~(x <= args[2]) if len(args) == 3 else (x > args[2]) & (x < args[3])
        return torch.where(inside, g, 0.0)


def nan_to_num(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """NaN and infinities replaced."""
    given = [*args[1:], *(kwargs.get(n) for n in ("nan", "posinf", "neginf")[len(args) - 1 :])]
    largest = torch.finfo(torch.float64).max
    values = [d if v is None else v for v, d in zip(given, (0.0, largest, -largest), strict=True)]
    nan, positive, negative = mode.arithmetic.array(values).tolist()

    def replace(x: Number) -> Number:
        return x if mode.arithmetic.is_finite(x) else nan if x != x else positive if x > 0 else negative

    x = mode.array(args[0])
    return from_array(object_array([replace(number) for number in x.reshape(-1).tolist()], x.shape))


def copysign(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """|x| with the sign of y; a zero is positive."""
    y = mode.array(args[1])
    negative = _numbers(mode, (_signs(mode, y) >= 0).double().mul(2).sub(1))
    return from_array(mode.arithmetic.map("mul", mode.arithmetic.map("abs", mode.array(args[0])), negative))


def item(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`.item()`: only of a number that a double holds; another would be rounded."""
    if type(args[0]) is not ExactTensor:
        return func(*args, **kwargs)
    x = args[0].to_array().item()
    near = mode.arithmetic.to_exact_double(x) if mode.arithmetic.is_finite(x) else float(x)
    if near is None:
        raise Unadjudicated("the reference takes a number out of a tensor (.item()), which rounds it")
    return near


def register() -> None:
    """State the rules of this module."""
    RULES.register(additive, "add.Tensor", "add.Scalar", "sub.Tensor", "sub.Scalar", "rsub.Tensor", "rsub.Scalar")
    RULES.register(multiply, "mul.Tensor", "mul.Scalar")
    RULES.register(divide, "div", "floor_divide", "true_divide")
    RULES.register(sign, "sign", "sgn", "signbit")
    for name in (*UNARY, *BINARY):
        RULES.register(apply_function(name), name)
    RULES.register(mask_gradient, "threshold_backward", "hardtanh_backward")
    RULES.register(nan_to_num, "nan_to_num")
    RULES.register(copysign, "copysign.Tensor", "copysign.Scalar")
    RULES.register(item, "_local_scalar_dense", "item")
