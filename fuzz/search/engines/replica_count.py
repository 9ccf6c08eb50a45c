"""Decides how many replicas of a plan run together, within the limits that its backend gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fuzz.backends.base import ReplicaLimits
from fuzz.model.case import Case
from fuzz.model.recipes import Recipe
from fuzz.worker.protocol import Report

MAX_SEPARATE = 6
"""Most replicas of a plan whose replicas run one by one: of several calls, or with a huge layout."""
KNOWN_SIZES = 1 << 12
"""Combinations of sizes of which it is kept how large the outputs are, the latest."""


@dataclass
class OutputSizes:
    """How many elements the outputs have of plans that have run, by their sizes; nothing else tells it.

    `reported` is how many plans have run, of any engine.
    """

    known: dict[tuple[int, ...], int] = field(default_factory=dict)
    reported: int = 0

    def learn(self, plan: Case, reports: Sequence[Report]) -> None:
        """Takes in the reports on the replicas of a plan."""
        self.reported += 1
        elements = sum(size for _, size in reports[0].output_sizes)
        if elements:
            sizes = tuple(plan.last.dims.values())
            self.known.pop(sizes, None)
            self.known[sizes] = elements
            if len(self.known) > KNOWN_SIZES:
                self.known.pop(next(iter(self.known)))

    def of(self, plan: Case) -> int:
        """The elements of the outputs of a plan, 0 where none of its sizes has run."""
        return self.known.get(tuple(plan.last.dims.values()), 0)


def count_replicas(plan: Case, limits: ReplicaLimits, outputs: int = 0) -> int:
    """How many replicas of a plan are worth running together, of which each has so many elements of outputs."""
    huge = any(value.layout.reach for value in plan.last.tensors.values())
    separate = huge or len(plan.calls) > 1
    most = min(MAX_SEPARATE, limits.replicas) if separate else limits.replicas
    return max(1, min(most, limits.elements // max(plan.elements() + outputs, 1)))


def count_guided_replicas(plan: Case, limits: ReplicaLimits, known: OutputSizes, number: int) -> int:
    """The same for plan `number` of an engine that makes it of earlier ones: one replica where nothing in it depends on
    a seed. Limits grow with the plans of the whole run, of which a guided engine proposes few."""
    limits = limits.at(max(number, known.reported))
    seeded = any(isinstance(value.values, Recipe) for value in plan.last.tensors.values())
    return count_replicas(plan, limits, known.of(plan)) if seeded else 1
