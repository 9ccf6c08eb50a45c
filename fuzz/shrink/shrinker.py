"""Shrinks a case that shows a bug to the least one, under sort_key, that the passes reach and that still shows it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
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
ShowsFirst = Callable[[Sequence[Case]], tuple[int, Finding | None]]
"""How many of some cases were tried, in their order, up to the first that still shows the bug, and that finding."""

MOST_TOGETHER, MOST_TOGETHER_ELEMENTS, MOST_TOGETHER_SECONDS = 64, 1 << 12, 1.0
"""Candidates of other values that run together, the elements of the largest of them, and the seconds they may take."""
PATIENCE = 2.0
"""Seconds that something urgent waits at most before it is asked about."""
PAUSE = 0.1
"""Seconds between two such questions, each of which looks at all that waits."""


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
    asked: float = 0.0

    def left(self, waiting: int = 0) -> bool:
        """Whether there is more of it than what is `waiting` to be executed."""
        elapsed = time.monotonic() - self.started
        if self.postponed or self.used + waiting >= self.executions or elapsed >= self.seconds:
            return False
        if elapsed >= max(PATIENCE, self.asked + PAUSE):
            self.asked, self.postponed = elapsed, self.is_urgent()
        return not self.postponed


@dataclass
class Shrinker:
    """Greedy search over the passes. `case` is the least case so far; it always shows the bug.

    Values stay usual where the bug shows with some: beside unusual ones, whose results may be wrong in more ways, a
    smaller size or a simpler option may lead to another bug. `skipped` are values of the battery that are not tried.
    Where `shows_first` is given, one call of it tries several candidates, more the longer none shows the bug: up to
    `parallel` of any, or up to `together` that differ in their values alone, as many as `seconds_together` allow. The
    first that does is taken, as it is where they are tried one by one; so are those that it leaves.
    """

    target: Target
    case: Case
    finding: Finding
    shows: Shows
    budget: Budget
    shows_first: ShowsFirst | None = None
    seconds_together: float = MOST_TOGETHER_SECONDS
    together: int = MOST_TOGETHER
    parallel: int = 1
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
        filled = (fill(self.case, recipe) for recipe in BATTERY)
        self._take_first(candidate for candidate in filled if not self._is_skipped(candidate))

    def _run_until_stable(self, passes: tuple[Pass, ...]) -> None:
        before = None
        while before != self.case.key and self.budget.left():
            before = self.case.key
            for simplify in passes:
                while self._run_pass(simplify):
                    continue

    def _run_pass(self, simplify: Pass) -> bool:
        """Whether a candidate of the pass is smaller and still shows the bug; the case moves there."""
        return self._take_first(self._smaller(simplify))

    def _smaller(self, simplify: Pass) -> Iterator[Case]:
        """The candidates of a pass that are smaller than the case, and were not tried before."""
        least, proposed_before = sort_key(self.case, self.target.defaults), set[tuple[object, ...]]()
        for proposed in simplify(self.case, self.target):
            candidate = make_legal(proposed, self.target)
            if not self.budget.left():
                return
            known = candidate.key in self.seen or candidate.key in proposed_before
            if known or self._sort_key(candidate) >= least or self._is_skipped(candidate):
                continue
            proposed_before.add(candidate.key)
            yield candidate

    def _take_first(self, candidates: Iterable[Case]) -> bool:
        """Whether one of some candidates still shows the bug; the case moves to the first that does."""
        waiting: list[Case] = []
        are_alike, count, fitting = True, 1, MOST_TOGETHER
        for candidate in candidates:
            if not self.budget.left(len(waiting)):
                break
            joins = are_alike and (not waiting or are_variants(waiting[0], candidate))
            if waiting and len(waiting) >= self._most_at_once(joins, count, fitting):
                start = time.monotonic()
                if self._try(waiting):
                    return True
                if are_alike:
                    fitting = int(self.seconds_together * len(waiting) / max(time.monotonic() - start, 1e-9))
                waiting, joins, count = [], True, 2 * count
            waiting.append(candidate)
            are_alike = joins
        return self._try(waiting)

    def _most_at_once(self, together: bool, count: int, fitting: int) -> int:
        """How many candidates one call tries, `count` at most; `fitting` at most where they run `together`."""
        if self.shows_first is None:
            return 1
        in_time = max(1, min(fitting, self.together)) if together else 1
        return min(count, max(in_time, self.parallel))

    def _try(self, candidates: Sequence[Case]) -> bool:
        """Whether one of some candidates still shows the bug."""
        several = self.shows_first if len(candidates) > 1 else None
        while candidates and self.budget.left():
            tried, finding = several(candidates) if several else (1, self.shows(candidates[0]))
            several = None
            self.budget.used += tried
            self.seen.update(candidate.key for candidate in candidates[:tried])
            if finding is not None:
                self.case, self.finding = candidates[tried - 1], finding
                return True
            candidates = candidates[tried:]
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


def are_variants(case: Case, other: Case) -> bool:
    """Whether two small cases of one call each differ in their values alone."""
    if len(case.calls) > 1 or len(other.calls) > 1 or case.elements() > MOST_TOGETHER_ELEMENTS:
        return False
    # As text 0.0 and -0.0, and 1 and True, are different options.
    structures = [(one.split, one.last.structure, repr(one.last.options)) for one in (case, other)]
    return structures[0] == structures[1]
