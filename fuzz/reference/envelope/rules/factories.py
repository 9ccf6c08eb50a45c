"""Defines rules of factories and of scalars taken out of tensors. Random operations are refused."""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload

from fuzz.reference.dispatch import NoRule, aten, handles_plain
from fuzz.reference.envelope.ensemble import RULES, EnsembleMode, EnsembleTensor, wrap

__all__ = ["register"]

EXACT = "arange eye tril_indices triu_indices scalar_tensor complex"
ROUNDED = "linspace logspace"
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
    return mode.lift(func(*args, **kwargs))


@handles_plain
def like(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """zeros_like and the like, of an EnsembleTensor or of a plain tensor."""
    kwargs = {k: v for k, v in kwargs.items() if k not in ("memory_format", "layout", "pin_memory")}
    if type(args[0]) is not EnsembleTensor:
        return mode.lift(func(*args, **kwargs))
    return wrap(mode, func(args[0].stacked, *args[1:], **kwargs, memory_format=torch.contiguous_format))


@handles_plain
def new(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """new_zeros and the like: the size goes behind the member dim."""
    if type(args[0]) is not EnsembleTensor:
        return mode.lift(func(*args, **kwargs))
    return wrap(mode, func(args[0].stacked, [mode.noise.rows, *args[1]], *args[2:], **kwargs))


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


def item(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`.item()`, `bool()`, `float()`: of member 0. A branch taken on it is taken by all members."""
    return mode.noise.unperturbed(args[0].stacked).item()


def equal(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """torch.equal: of member 0."""
    pair = [mode.noise.unperturbed(a.stacked) if type(a) is EnsembleTensor else a for a in args]
    return torch.equal(*pair)


@handles_plain
def constant(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """arange and the like: nothing is rounded, and nobody writes into them."""
    return func(*args, **kwargs)


@handles_plain
def linspace(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """linspace: a product and a sum."""
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
    RULES.register(linspace, *ROUNDED.split())
    RULES.register(create, *FROM_NOTHING.split())
    RULES.register(like, *LIKE.split())
    RULES.register(new, *NEW.split())
    RULES.register(new_empty_strided, "new_empty_strided")
    RULES.register(empty_strided, "empty_strided")
    RULES.register(item, "_local_scalar_dense", "item")
    RULES.register(equal, "equal")
    RULES.register(refuse, *RANDOM.split())
    for name in RANDOM.split():
        packet = getattr(aten, name + "_", None)
        for overload in packet.overloads() if packet is not None else ():
            RULES[getattr(packet, overload)] = refuse
