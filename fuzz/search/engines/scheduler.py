"""Desk: where a run gets its plans from: it asks the engines in turn, tells them what came of each plan, and counts.

With several engines the share of each is what its discoveries earn: discoveries for each unit of cost, old ones
counting less and less, above a floor that every engine keeps. Nothing is drawn at random: the engine that is furthest
behind its share is asked. Reports are told a fixed number of plans later, so that what is proposed does not depend on
how fast workers answer.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fuzz.model.case import Case
from fuzz.search.engines.base import Engine, Proposal
from fuzz.search.engines.dictionary import Dictionary
from fuzz.search.engines.novelty import Novelty
from fuzz.worker.protocol import Report

LAG = 80
"""Plans between a report and what is learnt from it: more than are drawn ahead and wait at one worker."""
PATIENT = 1200
"""The same for a run that does not depend on how many workers it has: more than are drawn ahead of any answer."""
FLOOR = 0.5
"""This part of an equal share is every engine's, whatever it finds."""
FADING = 0.998
"""A discovery, and what it cost, count so much less with each plan."""
PRIOR = 4.0
"""Discoveries, and cost, that every engine is credited with at the start, so that the first few decide little."""
ELEMENTS = 1 << 12
"""Elements that cost as much as one more plan."""


@dataclass
class Account:
    """What an engine has done in this run. `earned` and `spent` fade; `due` is how far it is behind its share."""

    plans: int = 0
    cases: int = 0
    discoveries: int = 0
    seconds: float = 0.0
    earned: float = PRIOR
    spent: float = PRIOR
    due: float = 0.0

    @property
    def rate(self) -> float:
        return self.earned / self.spent


@dataclass
class Desk:
    """Engines, the first of which is asked first, and what they all know of the kernel.

    `lag` is how many plans later reports are told.
    """

    engines: Sequence[Engine]
    dictionary: Dictionary = field(default_factory=Dictionary)
    lag: int = LAG
    accounts: dict[str, Account] = field(default_factory=dict)
    novelty: Novelty = field(default_factory=Novelty)
    _given: int = 0
    _last: float = 0.0
    _open: deque[tuple[int, Engine, Proposal]] = field(default_factory=deque)
    _answered: deque[tuple[int, Proposal, Sequence[Report]]] = field(default_factory=deque)
    _looked: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.accounts = {engine.name: Account() for engine in self.engines}

    def __enter__(self) -> Desk:
        return self

    def __exit__(self, *error: object) -> None:
        for engine in self.engines:
            engine.close()

    def plans(self) -> Iterator[tuple[Case, int]]:
        """(plan, how many replicas it has), for ever."""
        while True:
            self._tell(self._given - self.lag)
            engine = self._next()
            proposal = engine.propose()
            self._open.append((self._given, engine, proposal))
            self._given += 1
            self._last = cost(proposal)
            self.accounts[engine.name].due -= self._last
            yield proposal.plan, proposal.replicas

    def learn(self, plan: Case, reports: Sequence[Report], paused: float = 0.0) -> None:
        """Takes the reports on a plan, in the order of the plans; those that no engine proposed are nobody's.

        `paused` are the seconds since the last time that were spent on something else.
        """
        now = time.monotonic()
        seconds, self._looked = max(now - self._looked - paused, 0.0), now
        if not self._open or self._open[0][2].plan is not plan:
            return
        number, engine, proposal = self._open.popleft()
        account = self.accounts[engine.name]
        found = self.novelty.discoveries(plan, *reports)
        account.plans, account.cases = account.plans + 1, account.cases + len(reports)
        account.discoveries, account.seconds = account.discoveries + found, account.seconds + seconds
        for each in self.accounts.values():
            each.earned, each.spent = each.earned * FADING, each.spent * FADING
        account.earned, account.spent = account.earned + found, account.spent + cost(proposal)
        self._answered.append((number, proposal, reports))

    def _tell(self, last: int) -> None:
        while self._answered and self._answered[0][0] <= last:
            _, proposal, reports = self._answered.popleft()
            self.dictionary.add(sorted({number for report in reports for number in report.constants}))
            for engine in self.engines:
                engine.learn(proposal, reports)

    def _next(self) -> Engine:
        """The engine that is furthest behind its share of the cost so far."""
        here = [engine for engine in self.engines if engine.joins <= self._given] or self.engines[:1]
        wanted = self.shares(here)
        for engine in here:
            self.accounts[engine.name].due += wanted[engine.name] * self._last
        return max(here, key=lambda engine: self.accounts[engine.name].due)

    def shares(self, engines: Sequence[Engine]) -> dict[str, float]:
        """The share of the cost that each engine is to have now."""
        floor, accounts = FLOOR / len(engines), {engine.name: self.accounts[engine.name] for engine in engines}
        rates = sum(one.rate for one in accounts.values())
        return {name: floor + (1 - FLOOR) * one.rate / rates for name, one in accounts.items()}

    def statistics(self) -> dict[str, dict[str, float]]:
        """For each engine its cases, discoveries and share of the time."""
        total = sum(one.seconds for one in self.accounts.values()) or 1.0
        return {
            name: {"cases": one.cases, "discoveries": one.discoveries, "share": round(one.seconds / total, 4)}
            for name, one in self.accounts.items()
        }


def cost(proposal: Proposal) -> float:
    """What a plan costs, in plans that are as small as can be: each replica is launched and judged."""
    elements = proposal.replicas * proposal.plan.elements()
    return 1.0 + proposal.replicas / 8 + elements / ELEMENTS
