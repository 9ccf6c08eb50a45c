"""Draws what a run examines until its budget of cases is used up.

A plan uses as many of them as it has replicas. Where the first ones fail the others do not run, and further plans have
their cases once everything else is answered: which plans these are does not depend on how fast that is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from fuzz.model.case import Case
from fuzz.model.oracle_specs import sample_oracles
from fuzz.worker.protocol import MOST_DISAGREEING, ReplicaGroup, Report

Answers = Iterator[tuple[ReplicaGroup, tuple[Report, ...]]]


@dataclass
class CaseBudget:
    """`cases` that a run may still have, None for any number of them; the next one has the number `index`."""

    cases: int | None
    index: int = 0

    def examine(
        self,
        singles: Sequence[tuple[Case, tuple[str, ...]]],
        plans: Iterator[tuple[Case, int] | None],
        answers: Callable[[Iterator[ReplicaGroup | None]], Answers],
    ) -> Answers:
        """(group, its reports) of single cases with the oracles that each is sampled for, then of plans.

        `answers` gives those of groups, in their order; None among plans or groups says that there is none at the
        moment.
        """
        groups: Iterator[ReplicaGroup | None] = chain(self._draw_singles(singles), self._draw(plans))
        while True:
            unused = 0
            for group, reports in answers(groups):
                unused += count_unused(group, reports)
                yield group, reports
            if not unused:
                return
            self.cases, groups = unused, self._draw(plans)

    def _draw_singles(self, singles: Sequence[tuple[Case, tuple[str, ...]]]) -> Iterator[ReplicaGroup]:
        for case, oracles in singles[: self.cases]:
            yield self._take(case, (oracles,))

    def _draw(self, plans: Iterator[tuple[Case, int] | None]) -> Iterator[ReplicaGroup | None]:
        while self.cases is None or self.cases:
            planned = next(plans)
            if planned is None:
                yield None
                continue
            plan, size = planned
            size = min(size, self.cases or size)
            yield self._take(plan, tuple(sample_oracles(self.index + replica, size) for replica in range(size)))

    def _take(self, plan: Case, sampled: tuple[tuple[str, ...], ...]) -> ReplicaGroup:
        group = ReplicaGroup(plan, sampled, self.index)
        self.index += len(sampled)
        if self.cases is not None:
            self.cases -= len(sampled)
        return group


def count_unused(group: ReplicaGroup, reports: Sequence[Report]) -> int:
    """How many replicas of a group leave their share of the budget to others, as they did not run.

    One that fails at once costs more than its own share: a new worker, or the compilation of a plan.
    """
    return len(group.sampled) - max(len(reports), min(len(group.sampled), MOST_DISAGREEING))
