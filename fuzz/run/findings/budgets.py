"""How much of a run's time triage of one bug may take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fuzz.shrink.shrinker import Budget, never
from fuzz.worker.deadline import Deadline

SHRINK_SHARE = 0.5
"""Shrinking and adjudication may take this share of the run's time before each bug is limited by itself."""
UNUSUAL_SHARE = 1 / 6
"""The same for a bug that usual inputs do not show: its severity is worth more than a smaller case."""
GRADING_SHARE = 0.25
"""The share of the run's time that grading one bug may take. So much at its end is kept for bugs without a grade."""
ASKING_SHARE = 1 / 8
"""The share of the run's time in which waiting cases are run to tell whether a postponed bug explains them."""
LONGEST_SHRINKING = 600.0
"""Seconds of shrinking one bug in a run without a limit of time: only calls that hang or are very slow take so long."""
VERIFY_SECONDS = 2.0
"""Seconds before the deadline at which shrinking ends, so that a clean process can show the shrunk case again."""
VERIFY_SHARE = 0.1
"""The share of a short run's time that this is, at most."""


@dataclass
class TriageBudgets:
    """The budgets of a run with a limit of time, in seconds, or with none; `spent` is what triage took so far.

    Without a limit of time shrinking ends by itself, so that it does not depend on the machine's speed. With one,
    shrinking and grading are postponed where `has_news` says that something waits that is like nothing before.
    """

    time_limit: float | None
    deadline: Deadline = field(default_factory=Deadline)
    spent: float = 0.0
    has_news: Callable[[], bool] = never

    @property
    def is_for_shrinking(self) -> bool:
        """Whether more time is left than is kept for bugs without a grade."""
        return self.time_limit is None or self.deadline.seconds_left >= GRADING_SHARE * self.time_limit

    def shrinking(self, *, usual: bool = True) -> Budget:
        """What shrinking one more bug may take: what is left of half the run's time, 10 s at least, but no more than
        leaves as much time to verify the shrunk case and to grade it before the deadline. `usual` is whether usual
        inputs show it.
        """
        if self.time_limit is None:
            return Budget(seconds=LONGEST_SHRINKING)
        share = (SHRINK_SHARE if usual else UNUSUAL_SHARE) * self.time_limit
        seconds = max(share - self.spent, min(share, 10.0))
        verifying = min(VERIFY_SECONDS, VERIFY_SHARE * self.time_limit)
        most = SHRINK_SHARE * (self.deadline.seconds_left - verifying)
        return Budget(seconds=min(seconds, most), is_urgent=self.has_news)

    def grading(self) -> Budget:
        """What grading one bug may take."""
        if self.time_limit is None:
            return Budget(seconds=LONGEST_SHRINKING)
        return Budget(seconds=GRADING_SHARE * self.time_limit, is_urgent=self.has_news)
