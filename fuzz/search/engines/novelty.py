"""Novelty: what a report shows that no earlier one of the run has shown, counted as discoveries.

A discovery is a thing that the kernel did for the first time (a counter's outcome, see `Report.features`), a kind of
disagreement that is new, or an error nearer to its bound than any before in its cell, by a factor of two.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field
from hashlib import blake2b

from fuzz.model.case import Argument, Case
from fuzz.model.recipes import Patched, Recipe
from fuzz.worker.protocol import Report

FINDING = 8
"""Discoveries that a new kind of disagreement counts as."""
NEAREST = 24
"""Errors below 2^-24 of the bound are all alike."""

Cell = int
"""The number of a feature: a run meets tens of thousands of them."""


def cell(case: Case) -> Cell:
    """The feature of a case under which its elite is kept: dtypes x layouts x classes of dims x exponent region."""
    call = case.last
    tensors = tuple(call.tensors.values())
    dtypes = sorted({value.dtype for value in tensors})
    layouts = sorted({value.layout.kind for value in tensors})
    sizes = [size.bit_length() for size in call.dims.values()]
    feature = repr((dtypes, layouts, sizes, [region(value) for value in tensors]))
    return int.from_bytes(blake2b(feature.encode(), digest_size=8).digest())


def region(value: Argument) -> str:
    """Where a tensor's values lie: its recipe with its scale in steps of 2^8, or that its bits are listed."""
    made = value.values.recipe if isinstance(value.values, Patched) else value.values
    if not isinstance(made, Recipe):
        return "exact"
    scale = dict(made.params).get("exponent", 0)
    return f"{made.name} {int(scale) // 8}"


def error(report: Report) -> float:
    """The largest error over bound that was seen; infinity where it is not finite."""
    ratio = max([report.worst, *(found.ratio for found in report.findings)])
    return math.inf if math.isnan(ratio) else ratio


def nearness(ratio: float) -> int:
    """Error over bound as a whole number of factors of two above 2^-24; 0 where it is less."""
    if not ratio > 0:
        return 0
    return 2 * NEAREST if math.isinf(ratio) else max(NEAREST + math.frexp(ratio)[1], 0)


@dataclass
class Novelty:
    """What a run has seen."""

    features: set[int] = field(default_factory=set)
    kinds: set[Hashable] = field(default_factory=set)
    nearest: dict[Cell, int] = field(default_factory=dict)

    def discoveries(self, case: Case, *reports: Report) -> int:
        """How much is new in the reports on a case, or on replicas of a plan in their order, which is then known."""
        place = cell(case)
        return sum(self.discovered(place, report) for report in reports)

    def discovered(self, place: Cell, report: Report) -> int:
        """The same of one report on a case with this cell."""
        if report.rejected:
            return 0
        fresh = set(report.features) - self.features
        self.features |= fresh
        kinds = {(found.oracle, found.outputs, found.symptom) for found in report.findings} - self.kinds
        self.kinds |= kinds
        near = nearness(error(report))
        nearer = near > self.nearest.get(place, 0)
        if nearer:
            self.nearest[place] = near
        return len(fresh) + FINDING * len(kinds) + nearer
