"""Shows the progress of a run on standard error, and the table at its end."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fuzz.escaping import printable_lines
from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.model.grade import SEVERITIES, UNGRADED
from fuzz.report.entry_text import (
    case_lines,
    element_lines,
    format_entry,
    headline,
    other_backends,
    replay_command,
    severity_lines,
)
from fuzz.run.derived_rejects import SEVERITY
from fuzz.run.options import DEFAULT_SECONDS, RunOptions
from fuzz.run.result import Result, unconfirmed_severity
from fuzz.run.watcher import Watcher
from fuzz.search.statistics import RunStatistics
from fuzz.target.loader import target_argument
from fuzz.target.spec import Target
from fuzz.triage.bug import Bug, group_for_report
from fuzz.triage.severity import GRADING

COMPILING = 0.1
"""The share of the workers' time from which the line says how much of it is compiling."""
NOTHING_CONFIRMED = "none confirmed; what disagreed counts as {} until a longer run has confirmed it"
CLOSE = 0.9
"""The error over bound from which the end of a run says why that is no near miss."""
MOST_ACCEPTED = 4
"""Invalid inputs that were not refused and that the end of a run shows one by one."""
MOST_CUT_OFF = 3
"""Disagreements that the end of a run cut off and that are shown one by one."""


@dataclass
class TerminalProgress(Watcher):
    """Writes the events of a run to a console."""

    console: Console
    options: RunOptions | None = None
    target: Target | None = None
    backend: str = ""
    live: Live | None = None
    last_print: float = -1.0
    cut_off: int = 0
    interrupted: bool = False

    def on_start(self, options: RunOptions, target: Target, backend: str) -> None:
        self.options, self.target, self.backend = options, target, backend
        planted = f" with the planted bug {options.planted}" if options.planted else ""
        self._print(f"seed {options.seed}: fuzzing {options.target}{planted} on {backend}")
        self._print(f"promised: {target.promises()}")
        if options.seconds is None and options.cases is None:
            self._print(f"no budget given: ends after {DEFAULT_SECONDS:g} s; --seconds N or --cases N goes on longer")
        if self.console.is_terminal:
            self.live = Live(console=self.console, refresh_per_second=4, transient=True)
            self.live.start()

    def on_left_out(self, reason: str) -> None:
        self._print(f"left out: {reason}")

    def on_progress(self, statistics: RunStatistics, seconds: float, findings: int) -> None:
        if seconds - self.last_print < (0.25 if self.live else 10.0):
            return
        self.last_print = seconds
        line = progress_line(statistics, seconds, findings)
        if self.live:
            self.live.update(Text(line))
        else:
            self._print(line)

    def on_lack(self, lack: str) -> None:
        self._print(f"a case could not run, and waits to run again: {lack}")

    def on_disagreement(self, case: Case, finding: Finding, index: int) -> None:
        lines = [f"case {index} disagrees: {headline(finding)}", *case_lines(case), *element_lines(finding)]
        self._print("\n  ".join([*lines, "shrinking .."]))

    def on_shrunk(self, bug: Bug) -> None:
        path = f"{bug.path} (shrunk in {bug.executions} executions)"
        argument = target_argument(self.target, Path(bug.path)) if self.target else ""
        entry = bug.to_entry(cut_off=bug.cut_off)
        self._print(format_entry(entry, path, replay_command(bug.path, argument)))

    def on_merged(self, bug: Bug, index: int) -> None:
        self._print(f"case {index} shows the cause of {bug.path} again")

    def on_triaged(self, bug: Bug) -> None:
        lines = list(severity_lines(bug.grade)) if bug.grade else []
        lines += [f"others   {said}"] if (said := other_backends(bug.least.provenance)) else []
        if lines:
            self._print("\n  ".join([f"{bug.path}: {bug.least.reported_finding.summary}", *lines]))

    def on_unconfirmed(self, finding: Finding, index: int, reason: str) -> None:
        self._print(f"case {index} {reason}; not counted as a finding")

    def on_cut_off(self, case: Case, finding: Finding, index: int) -> None:
        self.cut_off += 1
        if self.cut_off <= MOST_CUT_OFF:
            why = "the run was interrupted" if self.interrupted else "the time ended"
            self._print(f"case {index} disagrees, and {why} before that was confirmed: {headline(finding)}")

    def on_interrupt(self) -> None:
        self.interrupted = True

    def on_removed(self, bug: Bug) -> None:
        self._print(f"{bug.path} is gone: its entry was removed or replaced during the run")

    def finish(self) -> None:
        if self.live:
            self.live.stop()

    def _print(self, text: str) -> None:
        self.console.print(Text(printable_lines(text)), soft_wrap=True)


def progress_line(statistics: RunStatistics, seconds: float, findings: int) -> str:
    rate = statistics.cases / seconds if seconds > 0 else 0.0
    symptoms = ", ".join(f"{name} {count}" for name, count in statistics.symptoms.most_common()) or "none"
    line = f"{seconds:6.1f} s  {statistics.cases} cases  {rate:.0f} cases/s"
    line += f"  largest agreeing error {statistics.worst:.2f} of the bound"
    if statistics.compiling >= COMPILING:
        line += f"  compiling {statistics.compiling:.0%} of the time"
    return f"{line}  findings {findings} (disagreements: {symptoms})"


def summary(result: Result) -> Table:
    """The table at the end of a run."""
    table = Table(show_header=False, box=None, padding=(0, 2))
    statistics = result.statistics
    rate = statistics.cases / result.seconds if result.seconds else 0.0
    refused = f"{statistics.rejected} rejected" + f", {statistics.not_run} not run" * bool(statistics.not_run)
    refused += f", {statistics.unexamined} unexamined beside replicas that disagree" * bool(statistics.unexamined)
    table.add_row("cases", f"{statistics.cases} ({refused}) in {result.seconds:.1f} s, {rate:.0f}/s")
    table.add_row("oracles", ", ".join(f"{name} {count}" for name, count in statistics.oracles.items()))
    # Rounding once, to the output's dtype, reaches the bound.
    near = " (correct rounding to the output's dtype comes to 1)" * (statistics.worst >= CLOSE)
    table.add_row("largest error", f"{statistics.worst:.2f} of the bound where cases agree{near}")
    if result.lack:
        waited = f"cases waited {result.seconds_waited:.1f} s to run, the last one for this: {result.lack}"
        table.add_row("lacking", Text(printable_lines(waited)))
    if statistics.left_out:
        table.add_row("left out", f"{statistics.left_out} plans that Triton refuses to compile")
    if result.grid_order_only:
        table.add_row("program orders", "only the grid's was tried: the kernel waits for earlier programs")
    if result.unconfirmed:
        table.add_row("unconfirmed", str(result.unconfirmed))
    if parts := cut_off_parts(result):
        table.add_row("cut off", "; ".join(parts))
    for first, others in group_for_report(result.bugs):
        table.add_row(*bug_row("finding", first))
        for other in others:
            table.add_row(*bug_row("  possibly the same cause", other))
    if not result.bugs:
        table.add_row("findings", nothing_confirmed(result) if result.nothing_confirmed else "none")
    if invalid := result.invalid_inputs.tried:
        harmful = len(result.invalid_inputs.accepted)
        text = f"{invalid} tried, {harmful} accepted and harmful, which only rejects= would forbid"
        table.add_row("invalid inputs", text if harmful else f"{invalid} tried, none harmful")
    accepted = result.invalid_inputs.accepted
    for one in accepted[:MOST_ACCEPTED]:
        table.add_row(f"not refused ({SEVERITY})", Text(printable_lines(one.message)))
    if len(accepted) > MOST_ACCEPTED:
        table.add_row("", f"and {len(accepted) - MOST_ACCEPTED} more, which --json lists")
    return table


def nothing_confirmed(result: Result) -> str:
    """What is said of disagreements of which none was confirmed: the severity that they count as."""
    severities = (unconfirmed_severity(finding) or UNGRADED for finding in result.disagreements_cut_off)
    return NOTHING_CONFIRMED.format(max(severities, key=SEVERITIES.index))


def bug_row(label: str, bug: Bug) -> tuple[str, str]:
    """What a bug is to the run, and in one line what it is."""
    dims = " ".join(f"{name}={size}" for name, size in bug.case.last.dims.items())
    finding = bug.least.reported_finding
    seen = "known" if bug.known else "new"
    severity = bug.grade.severity if bug.grade else "not graded"
    name = f"{finding.oracle}/{finding.symptom} {finding.output}"
    return f"{label} ({seen}, {severity})", f"{name}: {dims}, hits: {bug.hits}"


def profile_table(result: Result) -> Group:
    """Where the time went: the seconds of each activity, and their share of all; and why workers start slowly."""
    table = Table("activity", "seconds", "share", box=None, padding=(0, 2))
    total = sum(result.profile.values()) or 1.0
    for name, seconds in sorted(result.profile.items(), key=lambda item: -item[1]):
        table.add_row(name, f"{seconds:.2f}", f"{seconds / total:.1%}")
    reason = result.loaded_anew
    return Group(table, Text(f"  each clean worker loads the target itself: {reason}")) if reason else Group(table)


def cut_off_parts(result: Result) -> list[str]:
    """What the end of the run cut off, in words."""
    grading = [bug for bug in result.bugs if bug.cut_off == GRADING]
    ungraded = sum(bug.grade is None for bug in grading)
    for_now = len(grading) - ungraded
    unfinished = sum(bool(bug.cut_off) for bug in result.bugs) - len(grading)
    unexplained = 0 if result.nothing_confirmed else len(result.unexplained_cut_off)
    why = "before the run was interrupted" if result.interrupted else "for which --seconds was too short"
    counts = {
        "calls stopped while they ran": result.calls_cut_off,
        f"disagreements not confirmed, {why}": len(result.disagreements_cut_off),
        "of these from usual inputs and like none of the findings, which count as medium": unexplained,
        "findings not yet shrunk, with which the next run, or fuzz shrink, goes on": unfinished,
        "findings not yet graded, which count as medium until the next run, or fuzz shrink, grades them": ungraded,
        "findings graded for now, for which the next run, or fuzz shrink, tries more inputs": for_now,
    }
    return [f"{text}: {count}" for text, count in counts.items() if count]
