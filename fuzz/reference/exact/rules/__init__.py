"""The rules, one table: operation -> how it applies to exact tensors."""

from __future__ import annotations

import torch
from torch._ops import OpOverload

from fuzz.errors import Unadjudicated
from fuzz.reference.exact.rules import composites, elementwise, movement, reductions
from fuzz.reference.exact.rules.composites import attention
from fuzz.reference.exact.rules.table import RULES, implicit, in_place, out_variant
from fuzz.reference.exact.tensor import Rule

__all__ = ["RULES", "attention", "resolve"]

for module in (elementwise, movement, reductions, composites):
    module.register()

_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


def resolve(func: OpOverload) -> Rule:
    """The rule of an operation: stated, derived from its functional form, or its own implicit decomposition."""
    rule = RULES.get(func) or in_place(func) or out_variant(func)
    if rule is None and func.has_kernel_for_dispatch_key(_COMPOSITE):
        return implicit
    if rule is None:
        raise Unadjudicated(f"no rule for {func}")
    return rule
