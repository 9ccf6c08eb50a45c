"""Adds up what the parts of a sweep counted: errors by region, wrong signs, NaN and infinities."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuzz.model.dtypes import Doubles
from fuzz.model.oracle_specs import ACCURACY

BOUNDS = (-5.0, -2.0, -0.5, 0.5, 2.0, 5.0)
REGIONS = (
    "deep negative", "moderate negative", "near negative", "near zero", "near positive", "moderate positive",
    "large positive", "subnormal",
)  # fmt: skip
"""By the swept value, each from its lower bound up to but not including the next; the last holds subnormal inputs."""
RANGES = ("x < -5", "[-5, -2)", "[-2, -0.5)", "[-0.5, 0.5)", "[0.5, 2)", "[2, 5)", "x >= 5", "inputs")
OVER = (1, 10, 100, 1000)
"""Errors in units in the last place, beyond each of which values are counted."""
SYMPTOM_NAMES = ACCURACY.symptoms[:3]
BINS = 1024
NEAR_VIEW = 8.0
"""The near view of the plot goes from -NEAR_VIEW to NEAR_VIEW."""


@dataclass(frozen=True)
class WrongValue:
    """A value at which the contract is broken, by the bits of the swept arguments.

    `part` is the part of the plan that it came from; `ratio` is error over bound.
    """

    part: int
    region: int
    symptom: str
    bits: tuple[int, ...]
    ratio: float

    @property
    def rank(self) -> tuple[int, float]:
        """Sorts the worst first."""
        return SYMPTOM_NAMES.index(self.symptom), -self.ratio


def zeros(*shape: int) -> Any:
    return field(default_factory=lambda: np.zeros(shape))


@dataclass
class SweepCounts:
    """Counts of one part, or of several in the order of the first argument's values.

    `values` are by region, as are `sums` and `maxima` of their errors, first in units in the last place, then in
    ordinals (steps in the order of values). `over` is by limit, `other` by name. `sign_runs` are maximal runs of swept
    values whose result has the wrong sign; `first` and `last` are the ends of what was counted, NaN where no sign is
    wrong. `worst` holds the worst value of each region and symptom that breaks the contract, `failed` the parts in
    which the kernel did not return, with the reason. `bins`, of shape (view, kind, BINS), are the plot's: the largest
    error in each bin, NaN where none is. Views: all values by their rank in the order of values, and those from
    -NEAR_VIEW to NEAR_VIEW by value. Kinds: values whose sign is right, and those whose sign is wrong.
    """

    count: int = 0
    values: Doubles = zeros(len(REGIONS))
    sums: Doubles = zeros(2, len(REGIONS))
    maxima: Doubles = zeros(2, len(REGIONS))
    over: Doubles = zeros(len(OVER))
    other: Counter[str] = field(default_factory=Counter)
    symptoms: Counter[str] = field(default_factory=Counter)
    sign_runs: list[tuple[float, float]] = field(default_factory=list)
    first: float = math.nan
    last: float = math.nan
    worst: list[WrongValue] = field(default_factory=list)
    failed: list[tuple[int, str]] = field(default_factory=list)
    bins: Doubles = field(default_factory=lambda: np.full((2, 2, BINS), np.nan))

    def add(self, part: SweepCounts) -> None:
        """Adds the part that follows."""
        self.count += part.count
        self.values += part.values
        self.sums += part.sums
        self.maxima = np.maximum(self.maxima, part.maxima)
        self.over += part.over
        self.other += part.other
        self.symptoms += part.symptoms
        runs = list(part.sign_runs)
        if self.sign_runs and runs and (self.sign_runs[-1][1], runs[0][0]) == (self.last, part.first):
            runs[0] = (self.sign_runs.pop()[0], runs[0][1])
        self.sign_runs += runs
        self.last = part.last
        self.worst = keep_worst([*self.worst, *part.worst])
        self.failed += part.failed
        self.bins = np.fmax(self.bins, part.bins)

    @property
    def wrong(self) -> int:
        """Values at which the contract is broken."""
        return sum(self.symptoms.values())

    def regions(self) -> list[dict[str, Any]]:
        """The rows of the table, as the JSON value has them."""
        means = self.sums / np.maximum(self.values, 1)
        return [
            {
                "name": name,
                "range": RANGES[i],
                "count": int(self.values[i]),
                "mean_ulp": float(means[0, i]),
                "max_ulp": float(self.maxima[0, i]),
                "mean_ordinal": float(means[1, i]),
                "max_ordinal": int(self.maxima[1, i]),
            }
            for i, name in enumerate(REGIONS)
        ]


def keep_worst(wrong: list[WrongValue]) -> list[WrongValue]:
    """The worst of each region and symptom, the worst of all first."""
    worst: dict[tuple[int, str], WrongValue] = {}
    for value in sorted(wrong, key=lambda value: value.rank):
        worst.setdefault((value.region, value.symptom), value)
    return list(worst.values())


def find_runs(x: Doubles, wrong: NDArray[np.bool_]) -> list[tuple[float, float]]:
    """Maximal runs of `wrong` along x, as (first, last) values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], wrong, [False]]).astype(np.int8)))
    return [(float(x[a]), float(x[b - 1])) for a, b in zip(edges[::2], edges[1::2], strict=True)]
