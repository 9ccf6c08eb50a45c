"""Has plans whose kernels are compiled come again with other values, where compiling takes most of the time.

On a GPU a plan costs its compilation, seconds or minutes, and a thousand replicas of it a fraction of a second. Its
sizes, dtypes, layouts and options with values of other recipes compile nothing. Such plans have a part of the time that
new ones take, so that most of it goes to what has not been compiled yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from fuzz.model.case import Case
from fuzz.model.edit import tensors_of, with_values
from fuzz.search.engines.mutations import MutationContext, random_values
from fuzz.target.legal import make_legal
from fuzz.worker.protocol import Report

SHARE = 0.25
"""The time of plans with other values, as a part of that of new plans."""
WORTHWHILE = 8.0
"""How many times as long as one of them a new plan takes at least where there are any."""
MOST_AGAIN = 8
"""Plans with other values for one new plan that ran: several workers run them in the time in which one compiles."""
KEPT = 4
"""The latest plans that ran, which come again in turn."""


@dataclass
class Time:
    """How many plans there were, and the seconds that they took."""

    plans: int = 0
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        self.plans += 1
        self.seconds += seconds

    @property
    def mean(self) -> float:
        return self.seconds / max(self.plans, 1)


@dataclass
class OtherValues:
    """Decides when a plan comes again, by how long new plans and those with other values take."""

    new: Time = field(default_factory=Time)
    again: Time = field(default_factory=Time)
    _ran: deque[Case] = field(default_factory=lambda: deque(maxlen=KEPT))
    _pending: list[Case] = field(default_factory=list)
    _left: int = 0
    _has_begun: bool = False

    def choose(self, context: MutationContext) -> Case | None:
        """The next of the latest plans that ran, with other values; None where a new plan is due."""
        if not self.is_due:
            return None
        self._left -= 1
        self._ran.rotate(1)
        plan = self._ran[0]
        for index, name, value in tensors_of(plan):
            plan = with_values(plan, index, name, random_values(name, value.dtype, context))
        self._pending.append(make_legal(plan, context.target))
        return self._pending[-1]

    @property
    def is_due(self) -> bool:
        """Whether one of them is next."""
        if not self._left:
            return False
        if not self.again.plans:
            # The first one shows what they cost.
            return not self._pending
        due = (self.again.plans + len(self._pending)) * self.again.mean < SHARE * self.new.seconds
        return due and WORTHWHILE * self.again.mean <= self.new.mean

    def awaits(self, plan: Case) -> bool:
        """Whether a plan is one that comes again and on which no report has come."""
        return plan in self._pending

    def learn(self, plan: Case, reports: Sequence[Report], seconds: float) -> None:
        """Takes in the reports on a plan, and how many seconds after those on the plan before it they came."""
        if plan in self._pending:
            self._pending.remove(plan)
            self.again.add(seconds)
            return
        if self._has_begun:
            # Processes start and load before the first one.
            self.new.add(seconds)
        self._has_begun = True
        if not (reports[0].failure or reports[0].not_run or reports[0].findings):
            self._ran.appendleft(plan)
            self._left = MOST_AGAIN
