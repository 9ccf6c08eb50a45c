"""Tells two causes of one output apart by the size of the error, where one of them shows in every case.

Without what the other one needs a case has a far smaller error: with one option, layout or dtype at its default, or
with one size lowered by one step. An error that grows with a size does so by small steps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt

from fuzz.model.case import Case
from fuzz.model.dims import Size
from fuzz.model.finding import Finding
from fuzz.shrink.passes.dims import SMALL_SIZES
from fuzz.target.spec import Target
from fuzz.triage.triage import Triage
from fuzz.triage.triggers import departures, with_size

JUMP = 4.0
"""The factor by which one edit lowers the error."""


@dataclass(frozen=True)
class LargerError:
    """Looks for an edit of cases with a finding that lowers its error by the factor JUMP or more."""

    target: Target
    triage: Triage
    finding: Finding

    def find(self, case: Case) -> float | None:
        """An error between those with and without the edit; None where there is no such edit."""
        for trigger in departures(case, self.target):
            plainer = self._measure(trigger.edit(case))
            if plainer and is_far_larger(plainer, self.finding):
                return middle(plainer, self.finding)
        found = (self._find_size(case, dim) for dim in self.target.sizes)
        return next((error for error in found if error is not None), None)

    def _find_size(self, case: Case, dim: Size) -> float | None:
        """The same for one step of a size, by halving the range in which the error jumps."""
        low, high = dim.least, case.last.dims[dim.name]
        small, large = self._measure(with_size(self.target, dim.name, (low,), case)), self.finding
        while small and is_far_larger(small, large) and high > SMALL_SIZES:
            size = dim.clamp((low + high) // 2)
            if not low < size < high:
                return middle(small, large)
            between = self._measure(with_size(self.target, dim.name, (size,), case))
            if between and is_far_larger(between, large):
                low, small = size, between
            elif between and is_far_larger(small, between):
                high, large = size, between
            else:
                break
        return None

    def _measure(self, case: Case) -> Finding | None:
        """The finding of a case, without an error where the case agrees; None where it was not examined."""
        report = self.triage.examine(case, self.finding.oracle)
        if self.finding.oracle not in report.examined:
            return None
        shown = report.finding_of(self.finding.oracle)
        return shown or replace(self.finding, error=0.0, ratio=0.0)


def is_far_larger(smaller: Finding, larger: Finding) -> bool:
    """Whether one error is larger by the factor JUMP, in itself and measured by what is allowed."""
    return larger.error > JUMP * smaller.error and larger.ratio >= JUMP * smaller.ratio


def middle(smaller: Finding, larger: Finding) -> float:
    """The geometric mean of two errors, of which the smaller one counts as no less than a 16th of the larger one."""
    return sqrt(max(smaller.error, larger.error / JUMP**2) * larger.error)
