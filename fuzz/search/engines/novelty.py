"""Counts discoveries: what a report shows that no earlier report of the run has shown.

A discovery is something that the kernel did for the first time (a counter's outcome, see `Report.features`), a kind of
disagreement that is new, or an error nearer to its bound than any before in its cell, by a factor of two.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field
from hashlib import blake2b

from fuzz.model.case import Argument, Case
from fuzz.model.edit import base_recipe
from fuzz.worker.protocol import Report

DISCOVERIES_PER_FINDING = 8
"""Discoveries that a new kind of disagreement counts as."""
SMALLEST_RATIO = 24
"""Errors below 2^-24 of the bound count as equal."""

EliteCell = int
"""A hash of a kind of case: a run meets tens of thousands of them."""


def elite_cell(case: Case) -> EliteCell:
    """The cell of a case: dtypes x layouts x classes of dims x recipes with their scale."""
    call = case.last
    tensors = tuple(call.tensors.values())
    dtypes = sorted({value.dtype for value in tensors})
    layouts = sorted({value.layout.kind for value in tensors})
    sizes = [size.bit_length() for size in call.dims.values()]
    kind = repr((dtypes, layouts, sizes, [value_class(value) for value in tensors]))
    return int.from_bytes(blake2b(kind.encode(), digest_size=8).digest())


def value_class(value: Argument) -> str:
    """A tensor's recipe with its scale in steps of 2^8, or that its values are exact."""
    recipe = base_recipe(value.values)
    if recipe is None:
        return "exact"
    scale = dict(recipe.params).get("exponent", 0)
    return f"{recipe.name} {int(scale) // 8}"


def error(report: Report) -> float:
    """The largest error over bound that was seen; infinity where it is not finite."""
    ratio = max([report.worst, *(finding.ratio for finding in report.findings)])
    return math.inf if math.isnan(ratio) else ratio


def nearness(ratio: float) -> int:
    """Error over bound as a whole number of factors of two above 2^-24; 0 where it is less."""
    if not ratio > 0:
        return 0
    return 2 * SMALLEST_RATIO if math.isinf(ratio) else max(SMALLEST_RATIO + math.frexp(ratio)[1], 0)


@dataclass
class Novelty:
    """What a run has seen so far: features, kinds of findings, and the least distance to the bound of each cell."""

    features: set[int] = field(default_factory=set)
    kinds: set[Hashable] = field(default_factory=set)
    nearest: dict[EliteCell, int] = field(default_factory=dict)

    def discoveries(self, case: Case, *reports: Report) -> int:
        """Counts what is new in the reports on a case, or on replicas of a plan in their order, and remembers it."""
        cell = elite_cell(case)
        return sum(self.discoveries_in(cell, report) for report in reports)

    def discoveries_in(self, cell: EliteCell, report: Report) -> int:
        """The same of one report on a case of this cell."""
        if not report.accepted:
            return 0
        features = set(report.features) - self.features
        self.features |= features
        kinds = {(finding.oracle, finding.outputs, finding.symptom) for finding in report.findings} - self.kinds
        self.kinds |= kinds
        near = nearness(error(report))
        nearer = near > self.nearest.get(cell, 0)
        if nearer:
            self.nearest[cell] = near
        return len(features) + DISCOVERIES_PER_FINDING * len(kinds) + nearer
