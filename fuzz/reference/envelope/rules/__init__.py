"""The rules, one table: operation -> how it applies to stacked members and how its result is perturbed."""

from __future__ import annotations

import torch
from torch._ops import OpOverload

from fuzz.reference.envelope.ensemble import NoRule, Rule
from fuzz.reference.envelope.rules import (
    composites,
    factories,
    indexing,
    linear,
    losses,
    movement,
    pointwise,
    reductions,
    sampling,
)
from fuzz.reference.envelope.rules.table import RULES, in_place, out_variant

__all__ = ["RULES", "NoRule", "resolve"]

for module in (pointwise, reductions, linear, movement, indexing, factories, composites, losses, sampling):
    module.register()

_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


def resolve(func: OpOverload) -> Rule:
    """The rule of an operation: stated, derived from its functional form, or its own implicit decomposition."""
    rule = RULES.get(func) or in_place(func) or out_variant(func)
    if rule is None and func.has_kernel_for_dispatch_key(_COMPOSITE):
        rule = composites.implicit
    if rule is None:
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise NoRule(f"{func}: random operations are refused in a reference")
        raise NoRule(f"{func}: no rule says how this operation rounds; write the reference with other operations")
    return rule
