"""Shrinks a case that shows a bug to the least one, under sort_key, that the passes reach and that still shows it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from fuzz.model.case import Case, sort_key
from fuzz.model.finding import Finding
from fuzz.shrink.passes import BATTERY, COARSE, FINE, Pass, fill, write_out_small
from fuzz.target.legal import make_legal
from fuzz.target.spec import Target

Shows = Callable[[Case], Finding | None]
"""The finding where a case still shows the bug, else None."""


PATIENCE = 2.0
"""Seconds that something urgent waits at most before it is asked about."""


def never() -> bool:
    return False


@dataclass
class Budget:
    """What shrinking may cost: executions, and seconds of wall time, until something urgent comes.

    `is_urgent` says whether that waits, `postponed` that the budget ended by it.
    """

    executions: int = 20_000
    seconds: float = 60.0
    is_urgent: Callable[[], bool] = never
    used: int = 0
    started: float = field(default_factory=lambda: time.monotonic())
    postponed: bool = False

    def left(self) -> bool:
        """Whether there is more of it."""
        elapsed = time.monotonic() - self.started
        if self.postponed or self.used >= self.executions or elapsed >= self.seconds:
            return False
        self.postponed = elapsed >= PATIENCE and self.is_urgent()
        return not self.postponed


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
        self._run_until_stable(COARSE)
        self._replace_values()
        written_out = write_out_small(self.case)
        if written_out.key != self.case.key and self._still_shows(written_out):
            self.case = written_out
        self._run_until_stable(FINE)
        return self.case

    def _replace_values(self) -> None:
        """Takes the first values of the battery that show the bug, so that the end does not depend on the start.

        Sizes, dtypes, layouts and options are as small as they get by now; the values are yet to be shrunk.
        """
        for recipe in BATTERY:
            candidate = fill(self.case, recipe)
            if self.budget.left() and self._still_shows(candidate):
                self.case = candidate
                return

    def _run_until_stable(self, passes: tuple[Pass, ...]) -> None:
        before = None
        while before != self.case.key and self.budget.left():
            before = self.case.key
            for simplify in passes:
                while self._run_pass(simplify):
                    continue

    def _run_pass(self, simplify: Pass) -> bool:
        """Whether a candidate of the pass is smaller and still shows the bug; the case moves there."""
        least = sort_key(self.case, self.target.defaults)
        for proposed in simplify(self.case, self.target):
            candidate = make_legal(proposed, self.target)
            if not self.budget.left():
                return False
            if candidate.key in self.seen or self._sort_key(candidate) >= least:
                continue
            self.seen.add(candidate.key)
            if self._still_shows(candidate):
                self.case = candidate
                return True
        return False

    def _sort_key(self, candidate: Case) -> tuple[object, ...]:
        try:
            return sort_key(candidate, self.target.defaults)
        except ValueError:
            # Exact values that no longer fill their tensor: the pass did not adapt them, so this is no case.
            return (float("inf"),)

    def _still_shows(self, candidate: Case) -> bool:
        self.budget.used += 1
        finding = self.shows(candidate)
        if finding is not None:
            self.finding = finding
        return finding is not None
