"""Shrink: from a case that shows a bug to the least one, under sort_key, that the passes reach and still shows it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from fuzz.model.case import Case, sort_key
from fuzz.model.finding import Finding
from fuzz.shrink.passes import BATTERY, COARSE, FINE, Pass, filled, listed
from fuzz.target.indices import legal
from fuzz.target.spec import Target

Shows = Callable[[Case], Finding | None]
"""Whether a case still shows the bug: the finding, or None."""


@dataclass
class Budget:
    """What shrinking may cost: executions, and seconds of wall time."""

    executions: int = 20_000
    seconds: float = 60.0
    used: int = 0
    started: float = field(default_factory=time.monotonic)

    def left(self) -> bool:
        return self.used < self.executions and time.monotonic() - self.started < self.seconds


@dataclass
class Shrinker:
    """Greedy search over the passes. `case` is the least case so far; it always shows the bug."""

    target: Target
    case: Case
    finding: Finding
    shows: Shows
    budget: Budget
    seen: set[tuple[object, ...]] = field(default_factory=set)

    def run(self) -> Case:
        """Shrinks until no pass makes progress or the budget ends."""
        self._until_stable(COARSE)
        self._start_alike()
        written = listed(self.case)
        if written.key != self.case.key and self._still(written):
            self.case = written
        self._until_stable(FINE)
        return self.case

    def _start_alike(self) -> None:
        """Takes the first values of the battery that show the bug, so that the end does not depend on the start.

        Sizes, dtypes, layouts and options are as small as they get by now; the values are yet to be shrunk.
        """
        for recipe in BATTERY:
            candidate = filled(self.case, recipe)
            if self.budget.left() and self._still(candidate):
                self.case = candidate
                return

    def _until_stable(self, passes: tuple[Pass, ...]) -> None:
        before = None
        while before != self.case.key and self.budget.left():
            before = self.case.key
            for step in passes:
                while self._step(step):
                    continue

    def _step(self, step: Pass) -> bool:
        """Whether a candidate of the pass is smaller and still shows the bug; the case moves there."""
        least = sort_key(self.case, self.target.defaults)
        for candidate in (legal(made, self.target) for made in step(self.case, self.target)):
            if not self.budget.left():
                return False
            if candidate.key in self.seen or self._key(candidate) >= least:
                continue
            self.seen.add(candidate.key)
            if self._still(candidate):
                self.case = candidate
                return True
        return False

    def _key(self, candidate: Case) -> tuple[object, ...]:
        try:
            return sort_key(candidate, self.target.defaults)
        except ValueError:
            # Exact bits that no longer fill their tensor: the pass did not adapt them, so this is no case.
            return (float("inf"),)

    def _still(self, candidate: Case) -> bool:
        self.budget.used += 1
        found = self.shows(candidate)
        if found is not None:
            self.finding = found
        return found is not None
