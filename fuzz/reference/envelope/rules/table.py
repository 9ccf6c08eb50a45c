"""The table of rules, and the forms of an operation that follow from its functional one: in place, with `out=`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from fuzz.reference.envelope.ensemble import EnsembleMode, EnsembleTensor, NoRule, Rule, align

__all__ = ["RULES", "aten", "exactly", "in_place", "out_variant", "register_rule", "rounding", "write"]

aten: Any = torch.ops.aten
RULES: dict[OpOverload, Rule] = {}


def rounding(rule: Rule) -> Rule:
    """Mark a rule whose results are rounded: it also applies where all operands are plain tensors."""
    rule.rounds = True  # type: ignore[attr-defined]
    return rule


def exactly(rule: Rule) -> Rule:
    """Mark a rule that handles plain tensors by itself."""
    rule.plain = True  # type: ignore[attr-defined]
    return rule


def register_rule(rule: Rule, *names: str) -> None:
    """State the rule of every functional overload of the named aten operations ("add" or "add.Tensor")."""
    for name in names:
        base, _, overload = name.partition(".")
        packet = getattr(aten, base, None)
        if packet is None:  # an operation that this version of torch lacks
            continue
        for found in [overload] if overload else packet.overloads():
            func = getattr(packet, found, None)
            if func is not None and not func._schema.is_mutable:
                RULES.setdefault(func, rule)


def write(mode: EnsembleMode, func: OpOverload, target: Any, value: Any) -> Any:
    """Write a result into a tensor; views of it see the write, because their stacked tensors share its memory."""
    if type(target) is not EnsembleTensor:
        if type(value) is EnsembleTensor:
            raise NoRule(f"{func}: writes perturbed values into a plain tensor; make that tensor inside the reference")
        return target.copy_(value)
    source = align([target, value], mode.noise.rows)[1]
    target.stacked.copy_(source)
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
    if torch.Tag.inplace_view in func.tags:
        return reshaping
    functional = _functional(func, base[:-1])
    if functional is None:
        return None
    rule = RULES[functional]

    def apply(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if type(args[0]) is EnsembleTensor:
            return write(mode, func, args[0], rule(mode, functional, args, kwargs))
        raise NoRule(f"{func}: writes perturbed values into a plain tensor; make that tensor inside the reference")

    return apply


def reshaping(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """t_, squeeze_, ...: the wrapper changes its own shape, and its members follow."""
    functional = _functional(func, func._schema.name.split("::")[1][:-1])
    if functional is None or type(args[0]) is not EnsembleTensor:
        raise NoRule(f"{func}: no rule says how this operation applies")
    moved = RULES[functional](mode, functional, args, kwargs)
    with torch._C._DisableTorchDispatch():
        func(*args, **kwargs)
    args[0].stacked = moved.stacked
    return args[0]


def out_variant(func: OpOverload) -> Rule | None:
    """Rule of an overload with one `out=`: that of the overload with the same other arguments."""
    outs = [a for a in func._schema.arguments if a.is_out]
    functional = _functional(func, func._schema.name.split("::")[1]) if len(outs) == 1 else None
    return _with_out(RULES[functional], functional, outs[0].name) if functional is not None else None


def _with_out(rule: Rule, functional: OpOverload, name: str) -> Rule:
    """Compute functionally, then copy into the `out=` tensor."""

    def apply(mode: EnsembleMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        rest = {k: v for k, v in kwargs.items() if k != name}
        value: Tensor = write(mode, func, kwargs[name], rule(mode, functional, args, rest))
        return value

    return apply
