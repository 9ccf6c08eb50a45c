"""The table of rules, and the forms of an operation that follow from its functional one: in place, with `out=`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._ops import OpOverload

from fuzz.errors import Unadjudicated
from fuzz.reference.exact.tensor import Exact, ExactMode, Rule, numbers

__all__ = ["RULES", "aten", "composite", "creates", "implicit", "in_place", "out_variant", "put", "write"]

aten: Any = torch.ops.aten
RULES: dict[OpOverload, Rule] = {}


def creates(rule: Rule) -> Rule:
    """Mark a rule that is asked even where no exact tensor is among the arguments."""
    rule.creates = True  # type: ignore[attr-defined]
    return rule


def put(rule: Rule, *names: str) -> None:
    """State the rule of every functional overload of the named aten operations, unless it has one."""
    for name in names:
        base, _, overload = name.partition(".")
        packet = getattr(aten, base, None)
        if packet is None:  # an operation that this version of torch lacks
            continue
        for found in [overload] if overload else packet.overloads():
            func = getattr(packet, found, None)
            if func is not None and not func._schema.is_mutable:
                RULES.setdefault(func, rule)


def composite(formula: Callable[..., Any]) -> Rule:
    """Rule of an operation that is a formula of others."""

    def rule(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with mode:
            return formula(*args, **kwargs)

    return rule


def implicit(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An operation that torch itself defines by others."""
    with mode:
        return func.decompose(*args, **kwargs)


def write(target: Any, value: Any, func: OpOverload) -> Any:
    """Write a result into a tensor, whose views see it."""
    if type(target) is not Exact:
        if type(value) is Exact:
            raise Unadjudicated(f"{func}: writes exact values into a tensor of the caller's")
        return target.copy_(value)
    places = target.places.reshape(-1).numpy()
    target.cells[places] = np.broadcast_to(numbers(value), tuple(target.shape)).reshape(-1)
    return target


def _signature(func: OpOverload) -> list[tuple[str, str]]:
    """Names and types of an overload's arguments, without `out=`."""
    return [(a.name, str(a.type)) for a in func._schema.arguments if not a.is_out]


def _functional(func: OpOverload, name: str) -> OpOverload | None:
    """The overload with a rule of the named operation that takes the same arguments."""
    packet = getattr(aten, name, None)
    for overload in packet.overloads() if packet is not None else ():
        found: OpOverload = getattr(packet, overload)
        if found in RULES and _signature(found) == _signature(func):
            return found
    return None


def in_place(func: OpOverload) -> Rule | None:
    """Rule of add_ and the like: that of the functional form, then a copy into the first argument."""
    base = func._schema.name.split("::")[1]
    if not (base.endswith("_") and func._schema.is_mutable and func.namespace == "aten"):
        return None
    functional = _functional(func, base[:-1])
    if functional is None:
        return None
    if torch.Tag.inplace_view in func.tags:
        return reshaping(functional)
    rule = RULES[functional]

    def apply(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return write(args[0], rule(mode, functional, args, kwargs), func)

    return apply


def reshaping(functional: OpOverload) -> Rule:
    """t_, squeeze_, ...: the wrapper changes its own shape, and its places follow."""

    def apply(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        places = functional(args[0].places, *args[1:], **kwargs)
        with torch._C._DisableTorchDispatch():
            func(*args, **kwargs)
        args[0].places = places
        return args[0]

    return apply


def out_variant(func: OpOverload) -> Rule | None:
    """Rule of an overload with one `out=`: that of the overload with the same other arguments."""
    outs = [a for a in func._schema.arguments if a.is_out]
    functional = _functional(func, func._schema.name.split("::")[1]) if len(outs) == 1 else None
    if functional is None:
        return None
    rule, name = RULES[functional], outs[0].name

    def apply(mode: ExactMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        rest = {k: v for k, v in kwargs.items() if k != name}
        value: Tensor = write(kwargs[name], rule(mode, functional, args, rest), func)
        return value

    return apply
