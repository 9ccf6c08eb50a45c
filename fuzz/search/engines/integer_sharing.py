"""Decides in which plans replicas share the values of their integer tensors.

Where a launcher or a reference reads such values in Python, as it does the ends of packed sequences, what it does
depends on them, and replicas that do not share them run one by one: several times the time of running together. Where
nothing is read, or it is floating values, sharing would only make the cases more like each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from fuzz.model.case import Case
from fuzz.model.recipes import Recipe
from fuzz.worker.protocol import Report

UNSHARED = 8
"""Of plans whose replicas may share their integers one in so many does not."""


@dataclass
class OneByOne:
    """How many plans ran, and of how many the replicas ran one by one."""

    plans: int = 0
    one_by_one: int = 0

    @property
    def share(self) -> float:
        return self.one_by_one / max(self.plans, 1)


@dataclass
class IntegerSharing:
    """Plans share their integers once more replicas have run one by one without that than with it."""

    with_own: OneByOne = field(default_factory=OneByOne)
    with_shared: OneByOne = field(default_factory=OneByOne)
    _plans: int = 0

    def decide(self, plan: Case, replicas: int) -> Case:
        """The plan, in which the replicas share their integers where that helps."""
        shares = replicas > 1 and self.with_shared.share < self.with_own.share and may_share(plan)
        self._plans += shares
        shares = shares and self._plans % UNSHARED != 0
        return replace(plan, shares_integers=shares) if shares != plan.shares_integers else plan

    def learn(self, plan: Case, reports: Sequence[Report]) -> None:
        """Takes in the reports on the replicas of a plan."""
        if len(reports) > 1 and reports[0].outcome == "returned" and may_share(plan):
            counts = self.with_shared if plan.shares_integers else self.with_own
            counts.plans += 1
            counts.one_by_one += reports[0].one_by_one


def may_share(plan: Case) -> bool:
    """Whether replicas that share their integers still differ: both kinds of tensors have values of a recipe."""
    tensors = [one for call in plan.calls for one in call.tensors.values() if isinstance(one.values, Recipe)]
    return {one.is_float for one in tensors} == {False, True}
