"""Sums the reports of several targets file by file: a line that one of them ran is run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fuzz.coverage_report.report import CoverageReport, Ran


@dataclass(frozen=True)
class FileCoverage:
    """The lines of the functions of a file that targets reach, by what became of them.

    `ran` holds those that one of the targets ran, `explained` others that have a reason at one of them, and `left` the
    rest.
    """

    file: str
    ran: tuple[int, ...]
    explained: tuple[int, ...]
    left: tuple[int, ...]

    @property
    def counts(self) -> tuple[int, int, int]:
        """How many lines ran, how many have a reason, and how many are left."""
        return len(self.ran), len(self.explained), len(self.left)

    def as_json(self) -> dict[str, Any]:
        """The file's coverage as plain data, a stable contract."""
        return dict(file=self.file, ran=list(self.ran), explained=list(self.explained), left=list(self.left))


def sum_files(reports: Iterable[CoverageReport]) -> list[FileCoverage]:
    """The coverage of each file that the targets' reports are about, by the file's name."""
    every, ran, reasons = (defaultdict[str, set[int]](set) for _ in range(3))
    for report in reports:
        for file, (lines, missing) in report.files.items():
            every[file] |= lines
            ran[file] |= lines - missing
        for blocker in report.blockers:
            if blocker.reason:
                reasons[blocker.file] |= blocker.lines
    return [
        FileCoverage(
            file, *(tuple(sorted(each)) for each in (ran[file], never & reasons[file], never - reasons[file]))
        )
        for file, lines in sorted(every.items())
        for never in (lines - ran[file],)
    ]  # fmt: skip


def format_files(files: list[FileCoverage]) -> str:
    """What several targets ran together, and the files of which lines neither ran nor have a reason."""
    left = sorted((each for each in files if each.left), key=lambda each: (-len(each.left), each.file))
    total = [sum(counts) for counts in zip(*(each.counts for each in files), strict=True)] or [0, 0, 0]
    lines = [_format("together", *total) + f" in {len(files)} files"]
    return "\n".join(lines + [_format("  " + each.file, *each.counts) for each in left])


def _format(name: str, ran: int, explained: int, left: int) -> str:
    every = ran + explained + left
    with_reasons = Ran(ran + explained, every).percent
    return f"{name:32} lines {Ran(ran, every).percent:5.1f} % ({with_reasons:.1f} % with reasons) of {every}"
