"""Defines rules of the envelope: how an operation applies to stacked members, and how its result is perturbed."""

from __future__ import annotations

from fuzz.reference.envelope.ensemble import RULES
from fuzz.reference.envelope.rules import (
    composites,
    elementwise,
    factories,
    grid_sample,
    indexing,
    linear,
    movement,
    norms_and_losses,
    ordering,
    reductions,
    rewritings,
    rounded_places,
    saturation,
)

__all__ = ["RULES"]

MODULES = (
    saturation,
    rewritings,
    rounded_places,
    elementwise,
    reductions,
    ordering,
    linear,
    movement,
    indexing,
    factories,
    composites,
    norms_and_losses,
    grid_sample,
)
"""In order: the first rule that is stated for an operation holds."""
for module in MODULES:
    module.register()
