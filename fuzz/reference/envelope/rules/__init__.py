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
    ordering,
    reductions,
    rewritings,
    sampling,
)

__all__ = ["RULES"]

MODULES = (
    rewritings,
    elementwise,
    reductions,
    ordering,
    linear,
    movement,
    indexing,
    factories,
    composites,
    losses,
    sampling,
)
"""In order: the first rule that is stated for an operation holds."""
for module in MODULES:
    module.register()
