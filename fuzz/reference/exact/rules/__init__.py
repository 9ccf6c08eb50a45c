"""Defines rules of exact evaluation: how an operation applies to exact tensors."""

from __future__ import annotations

from fuzz.reference.exact.rules import composites, elementwise, movement, ordering, reductions
from fuzz.reference.exact.rules.composites import attention
from fuzz.reference.exact.tensor import RULES

__all__ = ["RULES", "attention"]

for module in (elementwise, ordering, movement, reductions, composites):
    module.register()
