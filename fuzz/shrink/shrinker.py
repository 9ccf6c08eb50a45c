"""Shrinks a case that shows a bug to the least one, under sort_key, that the passes reach and that still shows it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from fuzz.model.case import Case, sort_key
from fuzz.model.edit import tensors_of
from fuzz.model.finding import Finding
from fuzz.model.recipes import Recipe
from fuzz.shrink.passes import BATTERY, COARSE, FINE, UNUSUAL, USUAL, Pass, all_contiguous, fill, write_out_small
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
    """Greedy search over the passes. `case` is the least case so far; it always shows the bug.

    Values stay usual where the bug shows with some: beside unusual ones, whose results may be wrong in more ways, a
    smaller size or a simpler option may lead to another bug. `skipped` are values of the battery that are not tried.
    """

    target: Target
    case: Case
    finding: Finding
    shows: Shows
    budget: Budget
    seen: set[tuple[object, ...]] = field(default_factory=set)
    skipped: frozenset[Recipe] = field(init=False, default=frozenset())

    def run(self) -> Case:
        """Shrinks until no pass makes progress or the budget ends."""
        self._take_usual_inputs()
        self._run_until_stable(COARSE)
        self._replace_values()
        written_out = write_out_small(self.case)
        if written_out.key != self.case.key and self._still_shows(written_out):
            self.case = written_out
        self._run_until_stable(FINE)
        return self.case

    def _take_usual_inputs(self) -> None:
        """Takes plain layouts and the first usual values where they show the bug. Where all of these values do, any
        may, and few are tried."""
        contiguous = all_contiguous(self.case)
        if contiguous.key != self.case.key and self._shows_within(contiguous):
            self.case = contiguous
        # The finding is that of the candidate that showed it last, which is to be the first one.
        tried = (fill(self.case, values) for values in reversed(USUAL))
        showing = [candidate for candidate in tried if self._shows_within(candidate)]
        if showing:
            self.case = showing[-1]
            self.skipped = frozenset(set(BATTERY) - set(USUAL) if len(showing) == len(USUAL) else UNUSUAL)

    def _shows_within(self, candidate: Case) -> bool:
        """Whether there is budget left, and a candidate still shows the bug."""
        return self.budget.left() and self._still_shows(candidate)

    def _is_skipped(self, candidate: Case) -> bool:
        return any(value.values in self.skipped for _, _, value in tensors_of(candidate))

    def _replace_values(self) -> None:
        """Takes the first values of the battery that show the bug, so that the end does not depend on the start.

        Sizes, dtypes, layouts and options are as small as they get by now; the values are yet to be shrunk.
        """
        for recipe in BATTERY:
            candidate = fill(self.case, recipe)
            if not self._is_skipped(candidate) and self._shows_within(candidate):
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
            if candidate.key in self.seen or self._sort_key(candidate) >= least or self._is_skipped(candidate):
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
