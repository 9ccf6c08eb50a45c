"""Describes what a target never tried: as a record, as text and as JSON, which is read again for reports and pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fuzz.coverage_report.blockers import Blocker

VERSION = 1
BLOCKER_TYPES = dict(kind=str, file=str, line=int, what=str, needs=str, reason=str)
"""The fields of a blocker in JSON, beside `elsewhere`."""


class Ran(NamedTuple):
    """How many of all lines, branches or masks ran."""

    run: int
    all: int

    def __add__(self, other: Ran) -> Ran:  # type: ignore[override]
        return Ran(self.run + other.run, self.all + other.all)

    @property
    def percent(self) -> float:
        """100 where there is nothing to run."""
        return 100 * self.run / self.all if self.all else 100.0


@dataclass(frozen=True)
class CoverageReport:
    """The coverage of one target: `lines` and `branches` of its functions and kernels, and what blocks the rest.

    `masks` are those of loads and stores that ran; those of which only some lanes were on count as run. `files` holds
    for each file the lines, and those of them that never ran; empty where the report was read. `unreached` counts the
    branches in lines that never ran, which no blocker names.
    """

    target: str
    cases: int
    rejected: int
    crashed: int
    lines: Ran
    branches: Ran
    masks: Ran
    blockers: tuple[Blocker, ...]
    unreached: int = 0
    files: Mapping[str, tuple[frozenset[int], frozenset[int]]] = field(default_factory=dict)

    @property
    def percent_accounted(self) -> float:
        """The percentage of lines that ran or that have a reason."""
        return Ran(self.accounted, self.lines.all).percent

    @property
    def accounted(self) -> int:
        """How many lines ran or have a reason: that of any blocker that they are behind."""
        without, explained = (
            {(blocker.file, line) for blocker in self.blockers for line in blocker.lines if bool(blocker.reason) is has}
            for has in (False, True)
        )
        return self.lines.all - min(len(without - explained), self.lines.all - self.lines.run)

    def as_json(self) -> dict[str, Any]:
        """The report as plain data, a stable contract."""
        keys = ("kind", "file", "line", "elsewhere", "behind", "what", "needs", "reason")
        blockers = [{key: getattr(blocker, key) for key in keys} for blocker in self.blockers]
        return dict(
            version=VERSION, target=self.target, cases=self.cases, rejected=self.rejected,
            lines={**self.lines._asdict(), "accounted": self.accounted}, branches=self.branches._asdict(),
            masks=self.masks._asdict(), blockers=blockers,
        )  # fmt: skip


def read_report(value: Any) -> CoverageReport:
    """The report of a value that `as_json` made. ValueError where it has other fields or types."""
    try:
        lines, branches, masks = (
            Ran(_typed(value[name], "run", int), _typed(value[name], "all", int))
            for name in ("lines", "branches", "masks")
        )
        cases, rejected = _typed(value, "cases", int), _typed(value, "rejected", int)
        blockers = read_blockers(value["blockers"])
        return CoverageReport(_typed(value, "target", str), cases, rejected, 0, lines, branches, masks, blockers)
    except (KeyError, TypeError) as error:
        raise ValueError(f"no report of fuzz coverage: {error}") from None


def read_blockers(values: Any) -> tuple[Blocker, ...]:
    """The blockers in a report's JSON. KeyError, TypeError or ValueError for other values."""
    return tuple(
        Blocker(
            **{name: _typed(value, name, kind) for name, kind in BLOCKER_TYPES.items()},
            elsewhere=tuple(map(int, value["elsewhere"])),
        )
        for value in values
    )


def _typed(value: Any, name: str, kind: type) -> Any:
    if type(value[name]) is not kind:
        raise TypeError(f"{name} is {value[name]!r:.60}")
    return value[name]


def format_line(report: CoverageReport) -> str:
    """The report in one line, for a list of targets."""
    lines, branches, blockers = report.lines, report.branches, report.blockers
    explained, accounted = sum(bool(blocker.reason) for blocker in blockers), report.percent_accounted
    return (
        f"{report.target:32} lines {lines.percent:5.1f} % ({accounted:.1f} % with reasons) of {lines.all}, "
        f"branches {branches.percent:5.1f} % of {branches.all}, "
        f"never tried: {len(blockers)} ({explained} with a reason), {report.cases} cases"
    )


def format_report(report: CoverageReport, most: int = 40) -> str:
    """The report as text, with at most so many blockers."""
    lines, branches, accounted = report.lines, report.branches, report.percent_accounted
    died = f", {report.crashed} ended the worker" if report.crashed else ""
    unreached = f"; {report.unreached} of the others in lines that never ran" if report.unreached else ""
    text = [
        f"{report.target}: {report.cases} cases ({report.rejected} refused{died})",
        f"lines {lines.run} of {lines.all} ({lines.percent:.1f} %; {accounted:.1f} % with reasons), "
        f"branches {branches.run} of {branches.all} ({branches.percent:.1f} %{unreached}), "
        f"masks partly on {report.masks.run} of {report.masks.all}, never tried: {len(report.blockers)}",
    ]
    for blocker in report.blockers[:most]:
        behind = f", lines behind it: {blocker.behind}" if blocker.behind else ""
        also = f", also at {', '.join(map(str, blocker.elsewhere))}" if blocker.elsewhere else ""
        text += [f"  {blocker.kind:13} {blocker.file}:{blocker.line}{also}{behind}", f"    {blocker.what}"]
        text.append(f"    left out: {blocker.reason}" if blocker.reason else f"    needs {blocker.needs}")
    hidden = len(report.blockers) - most
    return "\n".join([*text, *([f"  and {hidden} more: --json lists them all"] if hidden > 0 else [])])
