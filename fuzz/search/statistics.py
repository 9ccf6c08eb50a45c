"""Counts what a run has seen so far: how its cases are distributed and how near honest errors come to the bound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from fuzz.model.case import Case
from fuzz.model.oracle_specs import FAULT
from fuzz.worker.protocol import Report

LARGE = 1 << 16
"""Elements from which a case counts as large."""


@dataclass
class RunStatistics:
    """Counts over the cases of one run. A case that was rejected or not run counts only as that.

    `compiling` is the share of the workers' time that compiling has taken so far; `left_out` counts plans that did not
    run, as Triton refuses to compile them.
    """

    cases: int = 0
    rejected: int = 0
    not_run: int = 0
    worst: float = 0.0
    large: int = 0
    several_calls: int = 0
    oracles: Counter[str] = field(default_factory=Counter)
    recipes: Counter[str] = field(default_factory=Counter)
    dtypes: Counter[str] = field(default_factory=Counter)
    layouts: Counter[str] = field(default_factory=Counter)
    dims: dict[str, list[int]] = field(default_factory=dict)
    symptoms: Counter[str] = field(default_factory=Counter)
    compiling: float = 0.0
    left_out: int = 0

    @property
    def all_rejected(self) -> bool:
        """Whether cases ran, and every one of them was rejected."""
        return 0 < self.cases == self.rejected

    @property
    def unexamined(self) -> int:
        """Replicas that no oracle examined, as enough of their plan disagreed."""
        return self.cases - self.rejected - self.not_run - self.oracles[FAULT.name]

    def learn(self, case: Case, *reports: Report) -> None:
        """Takes the reports on a case, or on replicas of a plan, of which `case` is one."""
        self.cases += len(reports)
        kept = [report for report in reports if report.accepted]
        count = len(kept)
        self.rejected += sum(report.rejected for report in reports)
        self.not_run += sum(report.not_run for report in reports)
        if not kept:
            return
        self.worst = max(self.worst, *(report.worst for report in kept))
        for examined, times in Counter(report.examined for report in kept).items():
            self.oracles.update(dict.fromkeys(examined, times))
        self.large += count * (case.elements() > LARGE)
        self.several_calls += count * (len(case.calls) > 1)
        self.symptoms.update(report.primary_finding.symptom for report in kept if report.primary_finding)
        for value in case.last.tensors.values():
            self.recipes[getattr(value.values, "name", "exact")] += count
            self.dtypes[value.dtype] += count
            self.layouts[value.layout.kind] += count
        for name, size in case.last.dims.items():
            low, high = self.dims.setdefault(name, [size, size])
            self.dims[name] = [min(low, size), max(high, size)]

    def distribution(self) -> Mapping[str, object]:
        """The share of cases or tensors for each thing that may be special about them."""
        accepted = max(self.cases - self.rejected - self.not_run, 1)
        return {
            "large": round(self.large / accepted, 4),
            "several_calls": round(self.several_calls / accepted, 4),
            "dims": {name: {"least": low, "most": high} for name, (low, high) in self.dims.items()},
            "recipes": shares(self.recipes),
            "dtypes": shares(self.dtypes),
            "layouts": shares(self.layouts),
        }


def shares(counts: Counter[str]) -> dict[str, float]:
    """Each count as a share of their sum, the largest first."""
    total = max(sum(counts.values()), 1)
    return {name: round(count / total, 4) for name, count in counts.most_common()}
