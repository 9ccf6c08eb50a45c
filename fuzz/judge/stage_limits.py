"""Limits the time of a judgement's stages, and keeps the names of those that were cut off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from fuzz.worker.deadline import Deadline, OutOfTime

FIRST_CASES, DISAGREEMENTS = "the problem's own dims", "a disagreement"
FIRST_CASES_SECONDS = 150.0
"""Seconds that the first cases may take: smaller dims are tried where the solution does not return in time."""
STAGE_SECONDS = 100.0
"""Seconds that all stages between the first cases and odd values may take together."""
SHARE = 3.0
"""A stage may take so many times its equal share of the remaining time, because most stages take little."""
FINDING_SECONDS = 180.0
"""Seconds beside those of the stages in which findings are confirmed, shrunk, adjudicated and graded."""


@dataclass
class StageLimits:
    """Moves the deadline of the processes that judge. `renew` is called where it passed, which has ended them."""

    deadline: Deadline
    renew: Callable[[], object]
    seconds: float = field(default_factory=lambda: STAGE_SECONDS)
    finding_seconds: float = field(default_factory=lambda: FINDING_SECONDS)
    cut_off: list[str] = field(default_factory=list)
    _paused: float = 0.0

    @contextmanager
    def first_cases(self) -> Iterator[None]:
        """Inside the block, a request after the limit raises OutOfTime, which ends the block."""
        with self._stage(FIRST_CASES, FIRST_CASES_SECONDS):
            yield

    @contextmanager
    def stage(self, name: str, stages_left: int) -> Iterator[None]:
        """The same, with a share of the time that remains for this stage and those after it."""
        start, self._paused = self._now(), 0.0
        try:
            with self._stage(name, min(self.seconds, SHARE * self.seconds / stages_left)):
                yield
        finally:
            self.seconds = max(0.0, self.seconds - (self._now() - start - self._paused))

    @contextmanager
    def last_stage(self, seconds: float) -> Iterator[None]:
        """The same for so many seconds; a stage that ends later is not counted as cut off."""
        with self._stage("", seconds):
            yield

    @contextmanager
    def finding(self) -> Iterator[None]:
        """Inside the block, the time for findings passes instead of the stage's. Raises OutOfTime when none remains."""
        start, began, is_over = self._now(), self.deadline.clock.monotonic(), False
        try:
            with self._limited(self.finding_seconds):
                self.deadline.check()
                try:
                    yield
                finally:
                    is_over = self.deadline.has_passed
        except OutOfTime:
            self.cut_off.append(DISAGREEMENTS)
            raise
        finally:
            took = self._now() - start
            self.finding_seconds -= took
            self._paused += took
            self.deadline.end += self.deadline.clock.monotonic() - began
            if is_over:
                self.renew()

    def _now(self) -> float:
        """The time that counts: without that in which a solution is loaded."""
        return self.deadline.clock.monotonic() - self.deadline.paused

    @contextmanager
    def _stage(self, name: str, seconds: float) -> Iterator[None]:
        start = self._now()
        try:
            with self._limited(seconds):
                yield
        except OutOfTime:
            if name:
                self.cut_off.append(f"{name} after {self._now() - start:.0f} s")
            self.renew()

    @contextmanager
    def _limited(self, seconds: float) -> Iterator[None]:
        before, self.deadline.end = self.deadline.end, self.deadline.clock.monotonic() + seconds
        try:
            yield
        finally:
            self.deadline.end = before
