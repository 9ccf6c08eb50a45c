"""SweepCounts: what a sweep has counted so far: errors by region, wrong signs, NaN and infinities. Parts add up."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fuzz.model.oracles import ACCURACY

BOUNDS = (-5.0, -2.0, -0.5, 0.5, 2.0, 5.0)
REGIONS = (
    "deep negative", "moderate negative", "near negative", "near zero", "near positive", "moderate positive",
    "large positive", "subnormal",
)  # fmt: skip
"""By the swept value, each from its lower bound up to but not including the next; the last holds subnormal inputs."""
RANGES = ("x < -5", "[-5, -2)", "[-2, -0.5)", "[-0.5, 0.5)", "[0.5, 2)", "[2, 5)", "x >= 5", "inputs")
OVER = (1, 10, 100, 1000)
SYMPTOM_NAMES = ACCURACY.symptoms[:3]
EACH = 4
"""WrongValue values kept of each region and symptom, the worst ones."""
BINS = 1024
NEAR = 8.0
"""The near view of the plot goes from -NEAR to NEAR."""


@dataclass(frozen=True)
class WrongValue:
    """One value at which the contract is broken: words of the swept arguments, what came and what is due, as text.

    `part` is the part of the plan that it came from; `ratio` is error over bound.
    """

    part: int
    region: int
    symptom: str
    words: tuple[int, ...]
    inputs: tuple[str, ...]
    got: str
    want: str
    ulps: float
    ordinals: int
    ratio: float

    @property
    def rank(self) -> tuple[int, float]:
        """Sorts the worst first."""
        return SYMPTOM_NAMES.index(self.symptom), -self.ratio


def zeros(n: int = len(REGIONS)) -> NDArray[np.float64]:
    return np.zeros(n)


@dataclass
class SweepCounts:
    """Counts of one part, or of several in the order of the first argument's values.

    `runs` are maximal runs of swept values whose result has the wrong sign; `open_first` and `open_last` tell whether
    the first and the last run touch the ends of what was counted. `worst` holds a few values that break the contract,
    `failed` the parts in which the kernel did not return, and why. `bins` are for the plot, see `binned`.
    """

    count: int = 0
    number: NDArray[np.float64] = field(default_factory=zeros)
    ulps: NDArray[np.float64] = field(default_factory=zeros)
    most: NDArray[np.float64] = field(default_factory=zeros)
    ordinals: NDArray[np.float64] = field(default_factory=zeros)
    most_ordinals: NDArray[np.float64] = field(default_factory=zeros)
    over: NDArray[np.float64] = field(default_factory=lambda: zeros(len(OVER)))
    other: Counter[str] = field(default_factory=Counter)
    symptoms: Counter[str] = field(default_factory=Counter)
    runs: list[tuple[float, float]] = field(default_factory=list)
    open_first: bool = False
    open_last: bool = False
    worst: list[WrongValue] = field(default_factory=list)
    failed: list[tuple[int, str]] = field(default_factory=list)
    bins: NDArray[np.float64] = field(default_factory=lambda: np.full((2, 2, BINS), np.nan))

    def add(self, part: SweepCounts) -> None:
        """Takes in the part that follows."""
        self.count += part.count
        for name in ("number", "ulps", "ordinals", "over"):
            setattr(self, name, getattr(self, name) + getattr(part, name))
        self.most = np.maximum(self.most, part.most)
        self.most_ordinals = np.maximum(self.most_ordinals, part.most_ordinals)
        self.other += part.other
        self.symptoms += part.symptoms
        self._join(part)
        self.worst = best_of([*self.worst, *part.worst])
        self.failed += part.failed
        self.bins = np.fmax(self.bins, part.bins)

    def add_beside(self, some: SweepCounts) -> None:
        """Takes in what was counted apart of values that this part holds already; runs are left out."""
        self.count -= some.count
        some.runs = []
        self.add(some)

    def _join(self, part: SweepCounts) -> None:
        if not part.runs:
            self.open_last = False
            return
        if not self.runs:
            self.open_first = part.open_first
        new = list(part.runs)
        if self.runs and self.open_last and part.open_first:
            new[0] = (self.runs.pop()[0], new[0][1])
        self.runs += new
        self.open_last = part.open_last

    @property
    def wrong(self) -> int:
        """Values at which the contract is broken."""
        return sum(self.symptoms.values())

    def regions(self) -> list[dict[str, Any]]:
        """The table's rows as data; those without values are left out of a sweep that has none there."""
        each = np.maximum(self.number, 1)
        return [
            {
                "name": name,
                "range": RANGES[i],
                "count": int(self.number[i]),
                "mean_ulp": float(self.ulps[i] / each[i]),
                "max_ulp": float(self.most[i]),
                "mean_ordinal": float(self.ordinals[i] / each[i]),
                "max_ordinal": int(self.most_ordinals[i]),
            }
            for i, name in enumerate(REGIONS)
        ]


def best_of(wrong: list[WrongValue]) -> list[WrongValue]:
    """The worst of each region and symptom, the worst of all first."""
    seen: Counter[tuple[int, str]] = Counter()
    kept = []
    for one in sorted(wrong, key=lambda one: one.rank):
        seen[one.region, one.symptom] += 1
        if seen[one.region, one.symptom] <= EACH:
            kept.append(one)
    return kept


def region_of(x: NDArray[np.float64], smallest_normal: float) -> NDArray[np.int64]:
    """The region of each finite value."""
    found = np.searchsorted(np.array(BOUNDS), x, side="right")
    tiny = (np.abs(x) < smallest_normal) & (x != 0)
    return np.where(tiny, len(REGIONS) - 1, found)


def runs_of(x: NDArray[np.float64], wrong: NDArray[np.bool_]) -> list[tuple[float, float]]:
    """Maximal runs of `wrong` along x, as (first, last) values."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], wrong, [False]]).astype(np.int8)))
    return [(float(x[a]), float(x[b - 1])) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def binned(
    places: NDArray[np.float64], x: NDArray[np.float64], ulps: NDArray[np.float64], sign: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """For the plot, of shape (view, kind, BINS): the largest error in each bin, NaN where none is.

    Views: all values by their place (0 to 1) in the order of values, and -NEAR to NEAR by value. Kinds: values whose
    sign is right, and those whose sign is wrong.
    """
    made = np.full((2, 2, BINS), np.nan)
    near = np.abs(x) < NEAR
    for view, (where, inside) in enumerate(((places, x == x), ((x / NEAR + 1) / 2, near))):
        for kind, chosen in enumerate((inside & ~sign, inside & sign)):
            index = np.minimum((where[chosen] * BINS).astype(np.int64), BINS - 1)
            np.fmax.at(made[view, kind], index, ulps[chosen])
    return made
