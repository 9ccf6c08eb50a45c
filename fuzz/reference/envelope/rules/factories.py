"""Defines rules of factories and of scalars taken out of tensors. Random operations are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._ops import OpOverload

from fuzz.reference.dispatch import NoRule, aten, handles_plain
from fuzz.reference.envelope.ensemble import RULES, EnsembleMode, EnsembleTensor, wrap
from fuzz.reference.envelope.rules.elementwise import is_rounded_constant, rounding_constants

__all__ = ["register"]

EXACT = "eye tril_indices triu_indices scalar_tensor"
FROM_NOTHING = "zeros.default ones.default empty.memory_format full.default"
LIKE = "zeros_like ones_like empty_like full_like"
NEW = "new_zeros new_ones new_empty new_full"
RANDOM = (
    "rand randn randint randperm rand_like randn_like randint_like bernoulli normal multinomial poisson native_dropout "
    "rrelu_with_noise exponential geometric cauchy log_normal uniform random"
)


@handles_plain
def create(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """zeros, ones, empty, full: an EnsembleTensor, because the reference may write perturbed values into it later."""
    return hold_constant(mode, mode.lift(func(*args, **kwargs)), args)


def hold_constant(mode: EnsembleMode, e: EnsembleTensor, args: tuple[Any, ...]) -> EnsembleTensor:
    """A tensor full of the last argument, as float32 holds it in some members where the kernel has to round it."""
    if args and e.stacked.is_floating_point() and is_rounded_constant(mode, args[-1]):
        e.stacked[rounding_constants(mode.noise)] = float(np.float32(args[-1]))
    return e


@handles_plain
def like(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """zeros_like and the like, of an EnsembleTensor or of a plain tensor."""
    kwargs = {k: v for k, v in kwargs.items() if k not in ("memory_format", "layout", "pin_memory")}
    if type(args[0]) is not EnsembleTensor:
        return hold_constant(mode, mode.lift(func(*args, **kwargs)), args[1:])
    out = wrap(mode, func(args[0].stacked, *args[1:], **kwargs, memory_format=torch.contiguous_format))
    return hold_constant(mode, out, args[1:])


@handles_plain
def new(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """new_zeros and the like: the size goes behind the member dim."""
    if type(args[0]) is not EnsembleTensor:
        return hold_constant(mode, mode.lift(func(*args, **kwargs)), args[2:])
    out = wrap(mode, func(args[0].stacked, [mode.noise.rows, *args[1]], *args[2:], **kwargs))
    return hold_constant(mode, out, args[2:])


@handles_plain
def new_empty_strided(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """new_empty_strided: memory of one member after that of another."""
    x = args[0].stacked if type(args[0]) is EnsembleTensor else args[0]
    size, stride = args[1], args[2]
    extent = 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) if all(size) else 0
    count = mode.noise.rows
    return wrap(mode, x.new_empty_strided([count, *size], [max(extent, 1), *stride], **kwargs))


@handles_plain
def empty_strided(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """empty_strided: contiguous members do as well."""
    kwargs = {k: v for k, v in kwargs.items() if k in ("dtype", "device")}
    return mode.lift(torch.zeros(args[0], **kwargs))


@handles_plain
def table(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """lift_fresh, of what `torch.tensor` makes of numbers: a table as float32 holds it in some members."""
    t = args[0]
    if type(t) is EnsembleTensor:
        return wrap(mode, t.stacked.detach())
    out = func(*args, **kwargs)
    if t.dtype is not torch.float64 or not t.dim() or mode.noise.precision.holds_doubles:
        return out
    rounded = t.to(torch.float32).to(t.dtype)
    rounded = torch.where(torch.isfinite(rounded), rounded, t)
    if bool(((rounded == t) | torch.isnan(t)).all()):
        return out
    e = mode.lift(out)
    e.stacked[rounding_constants(mode.noise)] = rounded
    return e


def item(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`.item()`, `bool()`, `float()`: of member 0. A branch taken on it is taken by all members."""
    return mode.noise.unperturbed(args[0].stacked).item()


def equal(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """torch.equal: of member 0."""
    pair = [mode.noise.unperturbed(a.stacked) if type(a) is EnsembleTensor else a for a in args]
    return torch.equal(*pair)


@handles_plain
def constant(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """eye and the like: nothing is rounded, and nobody writes into them."""
    return func(*args, **kwargs)


@handles_plain
def zero_tensor(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """_efficientzerotensor, the gradient of a sign: as zeros, since operations dispatch by its kind otherwise."""
    return mode.lift(torch.zeros(args[0], dtype=kwargs.get("dtype"), device=kwargs.get("device")))


@handles_plain
def arange(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """arange: exact, unless its start or step is a constant that the kernel has to round."""
    t = func(*args, **kwargs)
    if t.is_floating_point() and any(is_rounded_constant(mode, value) for value in (*args[:-1][:1], *args[2:3])):
        return rounded_ramp(mode, t)
    return t


@handles_plain
def linspace(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """linspace: a product and a sum."""
    return rounded_ramp(mode, func(*args, **kwargs))


def rounded_ramp(mode: EnsembleMode, t: Tensor) -> EnsembleTensor:
    """Numbers start + i*step, where each product and each sum rounds: by u times the largest of them but the first."""
    e: EnsembleTensor = mode.lift(t)
    if t.is_floating_point() and t.numel():
        first = e.stacked[:, :1].clone()
        mode.noise.round_constant_(e.stacked, 2 * float(t.abs().nan_to_num(0.0, 0.0, 0.0).amax()))
        e.stacked[:, :1] = mode.noise.round_(first) if is_rounded_constant(mode, float(t[0])) else first
    return e


@handles_plain
def logspace(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """logspace: powers of a base, whose exponents are a product and a sum."""
    e = mode.lift(func(*args, **kwargs))
    mode.noise.round_(e.stacked, 2.0)
    return e


@handles_plain
def refuse(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A reference is a function of its inputs."""
    raise NoRule(f"{func}: random operations are refused in a reference")


def register() -> None:
    """State the rules of this module."""
    RULES.register(constant, *EXACT.split())
    RULES.register(zero_tensor, "_efficientzerotensor")
    RULES.register(arange, "arange")
    RULES.register(linspace, "linspace")
    RULES.register(logspace, "logspace")
    RULES.register(create, *FROM_NOTHING.split())
    RULES.register(like, *LIKE.split())
    RULES.register(new, *NEW.split())
    RULES.register(new_empty_strided, "new_empty_strided")
    RULES.register(empty_strided, "empty_strided")
    RULES.register(table, "lift_fresh")
    RULES.register(item, "_local_scalar_dense", "item")
    RULES.register(equal, "equal")
    RULES.register(refuse, *RANDOM.split())
    for name in RANDOM.split():
        packet = getattr(aten, name + "_", None)
        for overload in packet.overloads() if packet is not None else ():
            RULES[getattr(packet, overload)] = refuse
