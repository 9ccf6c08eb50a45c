"""Gives templates the texts of an entry and what targets never tried: plain strings, which the templates escape."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fuzz.coverage_report.report import CoverageReport, read_report
from fuzz.errors import UsageError, os_errors_as
from fuzz.files import read_file
from fuzz.model.entry import Entry
from fuzz.model.oracle_specs import ACCURACY
from fuzz.report.entry_text import other_backends, replay_command, verdict_lines
from fuzz.report.plotting.plot_data import Plot
from fuzz.web.entry_plots.client import PlotResult

if TYPE_CHECKING:
    from fuzz.campaign.store import Job

PROVENANCE = ("seed", "first_case", "cut_off")
LARGEST_FILE = 1 << 26
"""Bytes of the largest file of coverage that is read."""


@dataclass(frozen=True)
class EntryView:
    """One entry. `path` is shown, `target` what ``--target`` must say, `result` what a worker computed, if it ran."""

    entry: Entry
    path: str
    target: str = ""
    result: PlotResult | None = None

    @property
    def command(self) -> str:
        """The command to copy, which repeats it."""
        return replay_command(self.path, self.target)

    @property
    def title(self) -> str:
        finding = self.entry.finding
        return f"{finding.oracle}/{finding.symptom} {finding.output}" if finding else "seed case"

    @property
    def size(self) -> str:
        """Dims of the last call, with the number of calls where there are several."""
        dims = " ".join(f"{name}={size}" for name, size in self.entry.case.last.dims.items())
        count = len(self.entry.case.calls)
        return f"{dims}, {count} calls" if count > 1 else dims

    @property
    def is_accuracy(self) -> bool:
        return self.entry.finding is not None and self.entry.finding.as_accuracy.oracle == ACCURACY.name

    @property
    def verdict(self) -> str:
        """The verdict of an accuracy finding; other findings have none."""
        return self.entry.provenance.adjudication.name if self.is_accuracy else ""

    @property
    def certificate(self) -> str:
        """What adjudication says, or why it says nothing."""
        if self.entry.finding is None:
            return ""
        lines = [line.strip() for line in verdict_lines(self.entry.finding, self.entry.provenance)]
        verdict = self.entry.provenance.adjudication
        if not lines and self.is_accuracy and verdict.name == "unadjudicated" and verdict.reason:
            return f"unadjudicated: {verdict.reason}"
        return "\n".join(lines)

    @property
    def numbers(self) -> Iterator[tuple[str, str]]:
        """What was counted: how much disagrees, by how much, how often, since when."""
        finding, provenance = self.entry.finding, self.entry.provenance
        seen = provenance.fields()
        if finding and finding.compared:
            yield "disagree", f"{finding.disagreeing} of {finding.compared} elements"
        if finding and finding.ratio:
            yield "error / bound", f"{finding.ratio:.4g}"
        if provenance.rate:
            yield "shows in", f"{provenance.rate.describe()} runs"
        yield from ((name.replace("_", " "), seen[name]) for name in PROVENANCE if name in seen)
        if others := other_backends(provenance):
            yield "other backends", others
        if finding and finding.source_line:
            yield "source line", finding.source_line
        if finding and finding.call:
            yield "shown by", f"call {finding.call + 1}"


@dataclass(frozen=True)
class CoverageView:
    """The reports of targets, and how coverage grew over a campaign's time, where it has several moments."""

    reports: tuple[CoverageReport, ...]
    plots: tuple[Plot, ...] = ()


@dataclass(frozen=True)
class ReportContent:
    """What a report shows beside each finding; `paths` are the findings' entries, `jobs` those of a campaign."""

    title: str
    paths: tuple[Path, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    jobs: Sequence[Job] = ()
    coverage: CoverageView | None = None


def read_coverage_file(path: Path) -> CoverageView:
    """The reports in a file that ``fuzz coverage --json`` has written. UsageError where it is none."""
    try:
        with os_errors_as(UsageError, f"cannot read {path}"):
            value = json.loads(read_file(path, LARGEST_FILE))
        targets = value["targets"] if isinstance(value, dict) and "targets" in value else [value]
        return CoverageView(tuple(map(read_report, targets)))
    except (ValueError, TypeError, RecursionError) as error:
        raise UsageError(f"{path} holds nothing that fuzz coverage --json prints: {error}") from None
