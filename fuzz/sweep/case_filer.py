"""Files cases that are known to be wrong: they are confirmed, shrunk, merged and saved as in `fuzz run`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

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


@dataclass(frozen=True)
class CaseFiler:
    """Files cases of one target into a corpus folder, reporting on a console."""

    options: RunOptions
    target: Target
    backend: str
    folder: Path
    console: Console

    def file(self, cases: list[Case], sampled: tuple[str, ...] = ()) -> Result:
        options = replace(self.options, engine="exhaustive", cases=len(cases))
        progress = FindingsProgress(self.console, self.target)
        fuzzer = FixedCasesFuzzer(
            options, self.target, self.backend, self.folder, progress, environment.versions(),
            cases=cases, sampled=sampled,
        )  # fmt: skip
        return fuzzer.run()
