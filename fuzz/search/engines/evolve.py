"""evolve: a population of cases that climbs error over bound and keeps what did something new.

It lives in epochs. An epoch begins with cases drawn as `random` draws them; then parents are chosen and edited, and the
children that come nearer to the bound, or that made the kernel do something new, become parents. When it has not got
anywhere for a while it starts anew. What was best of its kind in earlier epochs is kept, one elite for each feature of
a case (dtypes x layouts x classes of dims x exponent region), and gives some of the parents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from fuzz.model.case import Case
from fuzz.model.recipes import Recipe
from fuzz.search.engines.base import Proposal
from fuzz.search.engines.dictionary import Dictionary
from fuzz.search.engines.mutations import EDITS, KNOWN, Workshop, edited
from fuzz.search.engines.novelty import Cell, Novelty, cell, error
from fuzz.search.engines.random import RandomEngine, ReplicaLimits, together
from fuzz.target.spec import Target
from fuzz.worker.protocol import Report

JOINS = 128
"""Plans of `random` before its first where both run: what is easy to find is found by drawing."""
FOUNDERS = 32
"""Cases with which an epoch begins."""
EPOCH = 1000
"""Most plans of an epoch."""
STUCK = 192
"""Plans without anything new after which an epoch ends."""
CROWD = 12
"""Cases that may be parents at a time."""
ARCHIVE = 1 << 10
"""Elites kept."""
RECENT = 1 << 8
"""Cases kept that did something new, the latest."""
FEW = ReplicaLimits(16, 1 << 13)
"""Replicas of a plan: other seeds of the same."""
AGILE = {"cuda": ReplicaLimits(128, 1 << 20)}
"""The same on a GPU; fewer than of a random plan, because what is learnt of the first ones leads further."""


@dataclass
class Member:
    """A case that may be a parent: which replica of which plan, its error over bound, what was new in it, and how many
    children it has had."""

    plan: Case
    number: int
    error: float
    news: int
    children: int = 0

    @property
    def case(self) -> Case:
        return self.plan.replica(self.number)


@dataclass
class Evolve:
    """Proposes children of the cases that did best."""

    target: Target
    seed: int
    dictionary: Dictionary
    name: str = "evolve"
    joins: int = JOINS
    width: ReplicaLimits = FEW
    crowd: list[Member] = field(default_factory=list)
    elites: dict[Cell, Member] = field(default_factory=dict)
    finders: list[Member] = field(default_factory=list)
    novelty: Novelty = field(default_factory=Novelty)
    _plans: int = 0
    _founded: int = 0
    _since: int = 0
    _progress: int = 0

    def __post_init__(self) -> None:
        self.random = Random(f"evolve {self.seed}")
        self.shop = Workshop(self.target, self.dictionary, self.random)
        self.founders = RandomEngine(self.target, self.seed, "evolve")

    def propose(self) -> Proposal:
        age = self._plans - self._since
        if age >= EPOCH or age - self._progress >= STUCK + FOUNDERS:
            self._restart()
        plan = self._founder() if self._plans - self._since < FOUNDERS else self._child()
        self._plans += 1
        return Proposal(plan, replicas(plan, self.width))

    def learn(self, proposal: Proposal, reports: Sequence[Report]) -> None:
        """Keeps a replica that is new in something or nearer to its bound than its like; of its crowd, the best.

        A case that disagrees is no parent: what is found is found.
        """
        plan, place = proposal.plan, cell(proposal.plan)
        for number, report in enumerate(reports):
            news = self.novelty.discovered(place, report)
            if report.rejected or report.findings or report.outcome != "returned":
                continue
            member = Member(plan, number, error(report), news)
            best = self.elites.get(place)
            if best is None or member.error > best.error:
                self._keep(place, member)
            if news:
                self._progress = self._plans - self._since
                self.finders = [*self.finders, member][-RECENT:]
            if member.error or news:
                self._crowd_in(member)

    def close(self) -> None:
        """Nothing was started."""

    def _restart(self) -> None:
        self._since, self._progress, self.crowd = self._plans, 0, []

    def _founder(self) -> Case:
        """A case as `random` draws it, or one that was best of its kind."""
        self._founded += 1
        if self.elites and self._founded % 4 == 0:
            return self.random.choice(list(self.elites.values())).case
        return self.founders.case(self._founded)

    def _child(self) -> Case:
        parent = self._parent()
        if parent is None:
            return self._founder()
        parent.children += 1
        edits = KNOWN if self.random.random() < 0.2 else EDITS
        return edited(parent.case, self.shop, edits, self.random.choice((1, 1, 1, 2, 2, 3)))

    def _parent(self) -> Member | None:
        """By error from the crowd, by news from those that found something, or any elite."""
        kind = self.random.random()
        if kind < 0.5 and self.crowd:
            return max(self._some(self.crowd), key=lambda member: member.error)
        if kind < 0.85 and self.finders:
            return min(self._some(self.finders), key=lambda member: member.children - member.news)
        return self.random.choice(list(self.elites.values())) if self.elites else None

    def _some(self, members: list[Member]) -> list[Member]:
        return self.random.sample(members, min(4, len(members)))

    def _keep(self, place: Cell, member: Member) -> None:
        self.elites.pop(place, None)
        self.elites[place] = member
        if len(self.elites) > ARCHIVE:
            self.elites.pop(next(iter(self.elites)))

    def _crowd_in(self, member: Member) -> None:
        self.crowd.append(member)
        if len(self.crowd) > 2 * CROWD:
            self.crowd.sort(key=lambda one: (one.error, one.news), reverse=True)
            del self.crowd[CROWD:]


def replicas(plan: Case, width: ReplicaLimits = FEW) -> int:
    """How many replicas a plan has: one where nothing in it depends on a seed."""
    seeded = any(isinstance(value.values, Recipe) for value in plan.last.tensors.values())
    return together(plan, width) if seeded else 1
