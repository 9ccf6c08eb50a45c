"""Schedules engines by discoveries per unit of cost; feeds reports back after a fixed lag.

With several engines the share of each is proportional to its discoveries per unit of cost, old ones counting less and
less, above a floor that every engine keeps. Nothing is random: the engine that is furthest behind its share is asked
for the next plan. Engines learn from reports a fixed number of plans later, so that what they propose does not depend
on how fast workers answer. In a run that time ends on a GPU it does: there plans run in the order in which they are
compiled, and reports come in that order.

A plan that is larger than all before it together waits until it is not: one case of millions of elements may take as
long as a whole run. What decides is the number of elements, so that the plans do not depend on the machine.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from fuzz.model.case import Case
from fuzz.search.engines.base import Engine, Proposal
from fuzz.search.engines.dictionary import Dictionary
from fuzz.search.engines.integer_sharing import IntegerSharing
from fuzz.search.engines.novelty import Novelty
from fuzz.search.engines.other_values import OtherValues
from fuzz.search.engines.refusals import Refusals
from fuzz.search.engines.runnable_sizes import RunnableSizes
from fuzz.worker.protocol import Report

LAG = 80
"""Plans between a report and the engines' learning from it: more than are drawn ahead and wait at one worker."""
LONG_LAG = 1200
"""The same for a run that does not depend on how many workers it has: more than are drawn ahead of any answer."""
FLOOR = 0.5
"""This part of an equal share goes to every engine, whatever it discovers."""
DECAY = 0.998
"""With each plan, the weight of earlier discoveries and of their cost is multiplied by this."""
PRIOR = 4.0
"""Discoveries, and cost, that every engine is credited with at the start, so that the first few decide little."""
ELEMENTS_PER_PLAN = 1 << 12
"""Elements that cost as much as one more plan."""
FIRST_COST = 16.0
"""The cost of the largest plan that may come first."""
MOST_POSTPONED = 4
"""Plans that may wait until they are no larger than all before them; of more the smallest comes all the same."""


@dataclass
class EngineStats:
    """What an engine has done in this run.

    `decayed_discoveries` and `decayed_cost` give old plans less weight; `deficit` is how far the engine is behind its
    share of the cost.
    """

    plans: int = 0
    cases: int = 0
    discoveries: int = 0
    seconds: float = 0.0
    decayed_discoveries: float = PRIOR
    decayed_cost: float = PRIOR
    deficit: float = 0.0

    @property
    def rate(self) -> float:
        """Discoveries per unit of cost."""
        return self.decayed_discoveries / self.decayed_cost

    def record(self, cases: int, discoveries: int, seconds: float, cost: float) -> None:
        """Counts one plan."""
        self.plans += 1
        self.cases += cases
        self.discoveries += discoveries
        self.seconds += seconds
        self.decayed_discoveries += discoveries
        self.decayed_cost += cost

    def decay(self) -> None:
        self.decayed_discoveries *= DECAY
        self.decayed_cost *= DECAY


@dataclass
class EngineScheduler:
    """Chooses the engine of each plan; the first engine proposes the first plans.

    `lag` is how many plans later the engines learn from a report, `spent` the cost of the plans so far. `sizes` and
    `other_values` learn from each at once; `propose_again` gives a plan of the first engine with other values.
    """

    engines: Sequence[Engine]
    dictionary: Dictionary = field(default_factory=Dictionary)
    lag: int = LAG
    spent: float = FIRST_COST
    stats: dict[str, EngineStats] = field(default_factory=dict)
    novelty: Novelty = field(default_factory=Novelty)
    sharing: IntegerSharing = field(default_factory=IntegerSharing)
    sizes: RunnableSizes | None = None
    other_values: OtherValues | None = None
    refusals: Refusals = field(default_factory=Refusals)
    propose_again: Callable[[], Proposal | None] = lambda: None
    _proposed: int = 0
    _undivided: float = 0.0
    _postponed: list[tuple[Engine, Proposal]] = field(default_factory=list)
    _pending: deque[tuple[int, Engine, Proposal]] = field(default_factory=deque)
    _unlearnt: deque[tuple[int, Proposal, Sequence[Report]]] = field(default_factory=deque)
    _last_report: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.stats = {engine.name: EngineStats() for engine in self.engines}

    def __enter__(self) -> EngineScheduler:
        return self

    def __exit__(self, *error: object) -> None:
        for engine in self.engines:
            engine.close()

    def plans(self) -> Iterator[tuple[Case, int]]:
        """Yields (plan, number of replicas) for ever."""
        while True:
            self._teach_engines(self._proposed - self.lag)
            yield self._give(*self._next_proposal())

    def _give(self, engine: Engine, proposal: Proposal) -> tuple[Case, int]:
        """Notes that reports on what an engine proposes will come."""
        if not self.is_compiled(proposal.plan):
            proposal = replace(proposal, plan=self.sharing.decide(proposal.plan, proposal.replica_count))
        self._pending.append((self._proposed, engine, proposal))
        self._proposed += 1
        spent = cost(proposal)
        self.spent += spent
        self._undivided += spent
        self.stats[engine.name].deficit -= spent
        return proposal.plan, proposal.replica_count

    def next_compiled(self) -> tuple[Case, int] | None:
        """A plan that comes again with other values, which needs nothing compiled; None where none is due."""
        proposal = self.propose_again()
        return self._give(self.engines[0], proposal) if proposal else None

    def _next_proposal(self) -> tuple[Engine, Proposal]:
        """The first proposal that was postponed and is not too large any more, or else the next one that is not."""
        for postponed in self._postponed:
            if not self._is_too_large(postponed[1]):
                self._postponed.remove(postponed)
                return postponed
        while True:
            engine = self._choose_engine()
            proposal = engine.propose()
            if not self._is_too_large(proposal):
                return engine, proposal
            self._postponed.append((engine, proposal))
            if len(self._postponed) > MOST_POSTPONED:
                self._postponed.sort(key=lambda one: one[1].plan.elements())
                return self._postponed.pop(0)

    def _is_too_large(self, proposal: Proposal) -> bool:
        return proposal.plan.elements() / ELEMENTS_PER_PLAN > self.spent

    def learn(self, plan: Case, reports: Sequence[Report], paused: float = 0.0) -> None:
        """Takes the reports on a plan; reports on a plan of no engine are ignored.

        `paused` are the seconds since the last call that were spent on something else.
        """
        now = time.monotonic()
        seconds, self._last_report = max(now - self._last_report - paused, 0.0), now
        if (pending := self._take_pending(plan)) is None:
            return
        number, engine, proposal = pending
        for stats in self.stats.values():
            stats.decay()
        is_distrusted = self.refusals.learn(plan, reports)
        if self.sizes is not None:
            if is_distrusted:
                self.sizes.forget_failures()
            self.sizes.learn(plan, reports)
        if self.other_values is not None:
            self.other_values.learn(plan, reports, seconds)
        discoveries = self.novelty.discoveries(plan, *reports)
        self.stats[engine.name].record(len(reports), discoveries, seconds, cost(proposal))
        self._unlearnt.append((number, proposal, reports))

    def is_compiled(self, plan: Case) -> bool:
        """Whether a plan needs nothing compiled, as it comes again with other values."""
        return self.other_values is not None and self.other_values.awaits(plan)

    @property
    def may_leave_out(self) -> bool:
        """Whether any plan is left out."""
        return self.refusals.is_trusted

    def leaves_out(self, plan: Case, why: str) -> bool:
        """Whether a plan that does not compile, and why, is not to run; the engines do not learn of it then."""
        if not self.refusals.leaves_out(plan, why) or self._take_pending(plan) is None:
            return False
        if self.sizes is not None:
            self.sizes.learn_failure(plan)
        return True

    def _take_pending(self, plan: Case) -> tuple[int, Engine, Proposal] | None:
        """The number, engine and proposal of a plan that waits for its reports, and does not any more."""
        for place, pending in enumerate(self._pending):
            if pending[2].plan is plan:
                del self._pending[place]
                return pending
        return None

    def _teach_engines(self, last: int) -> None:
        """Lets all engines learn from the reports on the plans up to this number."""
        while self._unlearnt and self._unlearnt[0][0] <= last:
            _, proposal, reports = self._unlearnt.popleft()
            self.dictionary.add(sorted({number for report in reports for number in report.constants}))
            self.sharing.learn(proposal.plan, reports)
            for engine in self.engines:
                engine.learn(proposal, reports)

    def _choose_engine(self) -> Engine:
        """The engine that is furthest behind its share of the cost so far."""
        joined = [engine for engine in self.engines if engine.joins <= self._proposed] or self.engines[:1]
        shares = self.shares(joined)
        for engine in joined:
            self.stats[engine.name].deficit += shares[engine.name] * self._undivided
        self._undivided = 0.0
        return max(joined, key=lambda engine: self.stats[engine.name].deficit)

    def shares(self, engines: Sequence[Engine]) -> dict[str, float]:
        """The share of the cost that each engine is to have now."""
        floor, rates = FLOOR / len(engines), {engine.name: self.stats[engine.name].rate for engine in engines}
        total = sum(rates.values())
        return {name: floor + (1 - FLOOR) * rate / total for name, rate in rates.items()}

    def statistics(self) -> dict[str, dict[str, float]]:
        """For each engine its cases, discoveries and share of the time."""
        total = sum(stats.seconds for stats in self.stats.values()) or 1.0
        return {
            name: {"cases": stats.cases, "discoveries": stats.discoveries, "share": round(stats.seconds / total, 4)}
            for name, stats in self.stats.items()
        }


def cost(proposal: Proposal) -> float:
    """What a plan costs, in units of the smallest plan: each replica is launched and judged."""
    elements = proposal.replica_count * proposal.plan.elements()
    return 1.0 + proposal.replica_count / 8 + elements / ELEMENTS_PER_PLAN
