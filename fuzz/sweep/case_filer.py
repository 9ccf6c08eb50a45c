"""Files cases that are known to be wrong: they are confirmed, shrunk, merged and saved as in `fuzz run`."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console

from fuzz.model.case import Case
from fuzz.report.progress import TerminalProgress
from fuzz.run import environment
from fuzz.run.fuzzer import Fuzzer
from fuzz.run.options import RunOptions
from fuzz.run.result import Result
from fuzz.target.spec import Target


class FindingsProgress(TerminalProgress):
    """Shows findings only: the command has reported its own progress."""

    def on_start(self, *arguments: object) -> None: ...
    def on_progress(self, *arguments: object) -> None: ...


def file_cases(
    options: RunOptions, target: Target, backend: str, console: Console, cases: list[Case], *sampled: str
) -> Result:
    """Files cases of one target into the corpus folder of the options, reporting on a console.

    Oracles that examine a share of cases do so with these where they are among `sampled`.
    """
    assert options.corpus is not None
    fixed, progress = replace(options, engine="random", cases=len(cases)), FindingsProgress(console, target=target)
    return Fuzzer(
        fixed, target, backend, options.corpus, progress, environment.versions(),
        suspects=tuple(cases), suspect_oracles=sampled,
    ).run()  # fmt: skip


def exit_code(result: Result | None, *, is_broken: bool) -> int:
    """1 where a promise is broken, unless each of its findings is accepted or too low to count."""
    if result and result.bugs:
        return int(any(bug.counts(result.options.threshold) for bug in result.bugs))
    return int(is_broken)
