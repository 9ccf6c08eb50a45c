"""Defines rules of the envelope: how an operation applies to stacked members, and how its result is perturbed."""

from __future__ import annotations

from fuzz.reference.envelope.ensemble import RULES
from fuzz.reference.envelope.rules import (
    composites,
    elementwise,
    factories,
    indexing,
    linear,
    losses,
    movement,
    reductions,
    sampling,
)

__all__ = ["RULES"]

for module in (elementwise, reductions, linear, movement, indexing, factories, composites, losses, sampling):
    module.register()
