"""Decides how many replicas of a plan run together, within the limits that its backend gives."""

from __future__ import annotations

from fuzz.backends.base import ReplicaLimits
from fuzz.model.case import Case
from fuzz.model.recipes import Recipe

MAX_SEPARATE = 6
"""Most replicas of a plan whose replicas run one by one: of several calls, or with a huge layout."""


def count_replicas(plan: Case, limits: ReplicaLimits) -> int:
    """How many replicas of a plan are worth running together."""
    huge = any(value.layout.reach for value in plan.last.tensors.values())
    separate = huge or len(plan.calls) > 1
    most = min(MAX_SEPARATE, limits.replicas) if separate else limits.replicas
    return max(1, min(most, limits.elements // max(plan.elements(), 1)))


def count_guided_replicas(plan: Case, limits: ReplicaLimits) -> int:
    """The same for a plan that an engine made of earlier ones: one replica where nothing in it depends on a seed."""
    seeded = any(isinstance(value.values, Recipe) for value in plan.last.tensors.values())
    return count_replicas(plan, limits) if seeded else 1
