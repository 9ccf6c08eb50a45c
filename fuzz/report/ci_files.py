"""Writes the files that continuous integration reads: JUnit XML and SARIF."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fuzz.errors import UsageError
from fuzz.report.items import ReportItem
from fuzz.report.junit import junit
from fuzz.report.result_files import check_result_path, is_device, write_result
from fuzz.report.sarif import sarif
from fuzz.run import environment
from fuzz.run.replay import SkippedEntry


@dataclass(frozen=True)
class CiFiles:
    """The files that a command was asked to write for continuous integration; None where it was not.

    UsageError where one cannot be written, before hours of work end in that.
    """

    junit: Path | None
    sarif: Path | None

    def __post_init__(self) -> None:
        check_result_path(self.junit, "--junit")
        check_result_path(self.sarif, "--sarif")
        if self.junit and self.sarif and not is_device(self.junit) and self.junit.resolve() == self.sarif.resolve():
            raise UsageError(f"--junit and --sarif name one file: {self.junit}")

    def __bool__(self) -> bool:
        return bool(self.junit or self.sarif)

    def write(
        self,
        name: str,
        items: Sequence[ReportItem],
        seconds: float,
        *,
        examined: Mapping[str, int] | None = None,
        disagreeing: Sequence[ReportItem] | None = None,
        unconfirmed: Mapping[str, str] | None = None,
        skipped: Sequence[SkippedEntry] = (),
    ) -> None:
        """Writes the files. `examined` maps oracles to the cases that they examined; those without an item pass, but
        not those that `unconfirmed` says something of.

        SARIF holds the `disagreeing` items only, all of them by default. A `skipped` entry is an error in JUnit XML.
        """
        if self.junit:
            blamed = {item.oracle for item in items} | set(unconfirmed or {})
            agreed = {oracle: cases for oracle, cases in (examined or {}).items() if oracle not in blamed}
            not_run = {str(each.path): str(each.error) for each in skipped}
            write_result(self.junit, junit(name, items, seconds, agreed, not_run, unconfirmed))
        if self.sarif:
            shown = items if disagreeing is None else disagreeing
            write_result(self.sarif, sarif(shown, environment.fuzz_version(), unconfirmed))
