"""Live: progress on standard error while a campaign runs, and the table at its end."""

from __future__ import annotations

from dataclasses import dataclass, field

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fuzz.model.case import Case
from fuzz.model.entry import Entry
from fuzz.model.finding import Finding
from fuzz.report.text import case_lines, element_lines, headline, screen
from fuzz.run.fuzzer import Result
from fuzz.run.options import SECONDS, Run
from fuzz.search.statistics import RunStatistics
from fuzz.target.spec import Target
from fuzz.triage.bug import Record
from fuzz.worker.protocol import Wave


@dataclass
class Progress:
    """A Watcher that writes to a console."""

    console: Console
    command: str
    live: Live | None = None
    shown: float = -1.0
    findings: list[Record] = field(default_factory=list)

    def started(self, run: Run, target: Target, backend: str) -> None:
        planted = f" with the planted bug {run.planted}" if run.planted else ""
        self.console.print(f"seed {run.seed}: fuzzing {run.target}{planted} on {backend}", highlight=False)
        self.console.print(f"promised: {target.promises()}", highlight=False, soft_wrap=True)
        if run.seconds is None and run.cases is None:
            text = f"no budget given: ends after {SECONDS:g} s; --seconds N or --cases N goes on longer"
            self.console.print(text, highlight=False)
        if self.console.is_terminal:
            self.live = Live(console=self.console, refresh_per_second=4, transient=True)
            self.live.start()

    def progress(self, statistics: RunStatistics, seconds: float, findings: int) -> None:
        if seconds - self.shown < (0.25 if self.live else 10.0):
            return
        self.shown = seconds
        line = progress_line(statistics, seconds, findings)
        if self.live:
            self.live.update(Text(line))
        else:
            self.console.print(line, highlight=False)

    def first_seen(self, case: Case, finding: Finding, index: int) -> None:
        lines = [f"case {index} disagrees: {headline(finding)}", *(f"  {line}" for line in case_lines(case))]
        lines += [f"  {line}" for line in element_lines(finding)]
        self._print("\n".join([*lines, "  shrinking .."]))

    def shrunk(self, record: Record) -> None:
        entry = Entry(record.case, record.filing, seen=record.told)
        tries = f"{record.executions} executions"
        self._print(screen(entry, f"{record.path} (shrunk in {tries})", f"{self.command} {record.path}"))

    def asked(self, wave: Wave) -> None: ...
    def answered(self, wave: Wave) -> None: ...
    def saved(self, record: Record, replaced: str) -> None: ...

    def unconfirmed(self, finding: Finding, index: int, why: str) -> None:
        self._print(f"case {index} {why}; not counted as a finding")

    def finish(self) -> None:
        if self.live:
            self.live.stop()

    def _print(self, text: str) -> None:
        self.console.print(Text(text))


def progress_line(statistics: RunStatistics, seconds: float, findings: int) -> str:
    rate = statistics.cases / seconds if seconds > 0 else 0.0
    symptoms = ", ".join(f"{name} {count}" for name, count in statistics.symptoms.most_common()) or "none"
    line = f"{seconds:6.1f} s  {statistics.cases} cases  {rate:.0f} cases/s  worst error/bound {statistics.worst:.3f}"
    return f"{line}  findings {findings} (disagreements: {symptoms})"


def summary(result: Result) -> Table:
    """The table at the end of a run."""
    table = Table(show_header=False, box=None, padding=(0, 2))
    statistics = result.statistics
    rate = statistics.cases / result.seconds if result.seconds else 0.0
    table.add_row(
        "cases", f"{statistics.cases} ({statistics.rejected} rejected) in {result.seconds:.1f} s, {rate:.0f}/s"
    )
    table.add_row("oracles", ", ".join(f"{name} {count}" for name, count in statistics.oracles.items()))
    table.add_row("worst error/bound", f"{statistics.worst:.3f}")
    if result.unconfirmed:
        table.add_row("unconfirmed", str(result.unconfirmed))
    for record in result.records:
        dims = " ".join(f"{name}={size}" for name, size in record.case.last.dims.items())
        seen = "known" if record.known else "new"
        name = f"{record.filing.oracle}/{record.filing.symptom} {record.filing.output}"
        table.add_row(f"finding ({seen})", f"{name}: {dims}, {record.hits} hits")
    if not result.records:
        table.add_row("findings", "none")
    return table


class Quiet:
    """A Watcher that says nothing."""

    def started(self, run: Run, target: Target, backend: str) -> None: ...
    def progress(self, statistics: RunStatistics, seconds: float, findings: int) -> None: ...
    def first_seen(self, case: Case, finding: Finding, index: int) -> None: ...
    def asked(self, wave: Wave) -> None: ...
    def answered(self, wave: Wave) -> None: ...
    def saved(self, record: Record, replaced: str) -> None: ...
    def shrunk(self, record: Record) -> None: ...
    def unconfirmed(self, finding: Finding, index: int, why: str) -> None: ...
