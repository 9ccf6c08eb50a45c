"""Files cases that are known to be wrong: they are confirmed, shrunk, merged and saved as in `fuzz run`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from rich.console import Console

from fuzz.model.case import Case
from fuzz.report.progress import TerminalProgress
from fuzz.run import environment
from fuzz.run.fuzzer import Fuzzer
from fuzz.run.options import RunOptions
from fuzz.run.result import Result
from fuzz.search.engines import EngineScheduler
from fuzz.target.spec import Target
from fuzz.worker.deadline import Deadline
from fuzz.worker.protocol import ReplicaGroup


@dataclass
class FixedCasesFuzzer(Fuzzer):
    """Runs fixed cases, each examined by these sampled oracles and by those that examine every case."""

    cases: list[Case] = field(default_factory=list)
    sampled: tuple[str, ...] = ()

    def make_scheduler(self, deadline: Deadline) -> EngineScheduler:
        return EngineScheduler(())

    def replica_groups(self, plans: Iterator[tuple[Case, int]]) -> Iterator[ReplicaGroup]:
        for index, case in enumerate(self.cases):
            yield ReplicaGroup(case, (self.sampled,), index)


class FindingsProgress(TerminalProgress):
    """Shows findings only: the command has reported its own progress."""

    def on_start(self, *arguments: object) -> None: ...
    def on_progress(self, *arguments: object) -> None: ...


def file_cases(
    options: RunOptions, target: Target, backend: str, console: Console, cases: list[Case], *sampled: str
) -> Result:
    """Files cases of one target into the corpus folder of the options, reporting on a console."""
    assert options.corpus is not None
    fixed = replace(options, engine="exhaustive", cases=len(cases))
    progress = FindingsProgress(console, target=target)
    return FixedCasesFuzzer(
        fixed, target, backend, options.corpus, progress, environment.versions(), cases=cases, sampled=sampled
    ).run()


def exit_code(result: Result | None, *, is_broken: bool) -> int:
    """1 where a promise is broken, unless each of its findings is accepted or too low to count."""
    if result and result.bugs:
        return int(any(bug.counts(result.options.threshold) for bug in result.bugs))
    return int(is_broken)
