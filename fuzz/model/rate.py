"""Estimates how often a disagreement shows itself, and how many runs decide whether it is still there."""

from __future__ import annotations

import math
from dataclasses import dataclass

Z = 1.959964
"""Standard normal quantile of a two-sided interval of 95 %."""
MISS_PROBABILITY = 0.01
"""Probability with which a disagreement that is there may stay unseen."""
MOST_RUNS = 200
"""Runs that one decision may take."""


@dataclass(frozen=True)
class Rate:
    """A disagreement that showed itself in `disagreements` of `runs` runs of one case."""

    disagreements: int = 1
    runs: int = 1

    @staticmethod
    def parse(text: str) -> Rate:
        """The rate written as ``2/10``."""
        shown, _, runs = text.partition("/")
        return Rate(int(shown), int(runs or 1))

    @property
    def certain(self) -> bool:
        return self.disagreements >= self.runs

    @property
    def at_least_once(self) -> Rate:
        """The rate; of what showed in an earlier run, but in none of these, that with the earlier one."""
        return self if self.disagreements else Rate(1, self.runs + 1)

    @property
    def interval(self) -> tuple[float, float]:
        """The probability of showing itself, with 95 % confidence: Wilson's score interval (1927, J. ASA 22, 209)."""
        share, n = self.disagreements / self.runs, self.runs
        middle = share + Z * Z / (2 * n)
        half = Z * math.sqrt(share * (1 - share) / n + Z * Z / (4 * n * n))
        scale = 1 + Z * Z / n
        return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)

    @property
    def runs_to_try(self) -> int:
        """Runs that all miss it with MISS_PROBABILITY, if this were the true rate: enough to try a smaller case."""
        return 1 if self.certain else _runs(self.disagreements / self.runs)

    @property
    def runs_to_decide(self) -> int:
        """The same at the interval's lower end: enough to say that it is gone."""
        return 1 if self.certain else _runs(self.interval[0])

    def __str__(self) -> str:
        return f"{self.disagreements}/{self.runs}"

    def describe(self) -> str:
        """For people: the interval too where it does not always show itself."""
        low, high = self.interval
        return str(self) if self.certain else f"{self} ({100 * low:.0f} to {100 * high:.0f} %)"


def _runs(probability: float) -> int:
    return min(math.ceil(math.log(MISS_PROBABILITY) / math.log(1 - max(probability, 1e-3))), MOST_RUNS)
