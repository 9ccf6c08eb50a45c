"""Replays saved cases: says whether each still shows what it was saved for, and whether its status expects that."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from fuzz import corpus
from fuzz.backends import DEFAULT
from fuzz.errors import InternalError, UsageError
from fuzz.escaping import shell_quote
from fuzz.model.entry import Entry
from fuzz.model.oracle_specs import ACCURACY, FAULT, SAMPLED_ORACLES
from fuzz.model.rate import Rate
from fuzz.run.options import RunOptions
from fuzz.run.setup import choose_backend, fork_worker_server, serve_target
from fuzz.target.loader import check_fits, find_target, load_planted
from fuzz.target.spec import Target
from fuzz.triage.triage import Triage
from fuzz.worker.protocol import HANDLER, WorkerConfig
from fuzz.worker.target_server import TargetServer
from fuzz.worker.worker import Worker


@dataclass(frozen=True)
class ReplayedEntry:
    """An entry, its target, the backend that ran it, and whether the case still shows what it was saved for.

    `failure` says how the launcher failed where it shows something else: then it does not agree, either.
    """

    path: Path
    entry: Entry
    target: Target
    backend: str
    reproduced: bool
    failure: str = ""

    @property
    def undecided(self) -> bool:
        """Whether an open entry does not show on a backend that it was not seen on, which decides nothing."""
        seen_on = self.entry.provenance.backend or self.backend
        return self.entry.status == "open" and not self.reproduced and seen_on != self.backend

    @property
    def passed(self) -> bool:
        """Whether the entry did what its status says of its own backend; an accepted one may do either."""
        expected = self.reproduced if self.entry.status == "open" else not (self.reproduced or self.failure)
        return self.entry.status == "accepted" or expected or self.undecided

    @property
    def message(self) -> str:
        """What became of it, in one line."""
        if self.undecided:
            return f"open, seen on {self.entry.provenance.backend}; {self.failure or 'agrees'} on {self.backend}"
        if self.passed:
            return f"{self.entry.status}, {'disagrees' if self.reproduced else self.failure or 'agrees'}"
        if self.reproduced:
            return f"marked {self.entry.status}, but it disagrees again"
        if self.failure:
            return f"marked {self.entry.status}, but it ends otherwise now: {self.failure}"
        return f"marked {self.entry.status}, but it agrees now; fuzz mark {shell_quote(str(self.path))} fixed --why .."


class Servers:
    """The server of the workers of each thread's latest target: entries of one target mostly follow each other."""

    def __init__(self) -> None:
        self._latest = threading.local()
        self._all: list[TargetServer] = []

    def server(self, config: WorkerConfig, memory: int) -> TargetServer:
        """That of a config, in this thread."""
        latest: TargetServer | None = getattr(self._latest, "server", None)
        if latest is None or latest.config != config:
            if latest is not None:
                latest.close()
            latest = self._latest.server = serve_target(config, memory)
            self._all.append(latest)
        return latest

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *error: object) -> None:
        for server in self._all:
            server.close()


@dataclass(frozen=True)
class SkippedEntry:
    """An entry that cannot be read or run here, or whose worker failed by itself; `error` says why."""

    path: Path
    error: UsageError | InternalError


def replay_entries(paths: Iterable[Path], backend: str, target: str = "") -> Iterator[ReplayedEntry | SkippedEntry]:
    """Replays the entries of files and folders in order, several at a time, each in a clean worker.

    With the backend ``auto`` an entry runs on the one that it was seen on, where that runs here. `target` names the
    entries' target where it is not beside them. Raises UsageError where a path does not exist or the backend cannot
    run; what concerns one entry only is part of its result.
    """
    files = list(corpus.entry_files(list(paths)))
    chosen = choose_backend(backend)
    if not files:
        return

    def replay_file(path: Path) -> ReplayedEntry | SkippedEntry:
        try:
            entry = corpus.read(path)
            one = own_backend(entry, chosen) if backend == "auto" else chosen
            return replay_entry(path, entry, one, target, servers)
        except (UsageError, InternalError) as error:
            return SkippedEntry(path, error)

    fork_worker_server()
    pool = ThreadPoolExecutor(min(len(files), len(os.sched_getaffinity(0))), "replay")
    with Servers() as servers:
        try:
            yield from pool.map(replay_file, files)
        finally:
            pool.shutdown(cancel_futures=True)


def replay_entry(
    path: Path, entry: Entry, backend: str, target: str = "", servers: Servers | None = None
) -> ReplayedEntry:
    """Replays one entry on a backend."""
    backend = choose_backend(backend)
    name, loaded = load_target_of(entry, path, target)
    return ReplayedEntry(path, entry, loaded, backend, *run_again(entry, name, loaded, backend, servers))


def load_target_of(entry: Entry, path: Path, target: str) -> tuple[str, Target]:
    """(the name to load it by, an entry's target); checked to take the entry's case and to have its planted bug."""
    name, loaded = find_target(entry.case.target, path, target)
    check_fits(entry.case, loaded, path)
    if entry.planted:
        load_planted(loaded, entry.planted)
    return name, loaded


def own_backend(entry: Entry, other: str) -> str:
    """The backend that an entry was seen on where that is the default, which runs anywhere, or the other one."""
    return DEFAULT.name if entry.provenance.backend == DEFAULT.name else other


def reproduces(entry: Entry, name: str, target: Target, backend: str, servers: Servers | None = None) -> bool:
    """Whether a finding of its oracle in one of its outputs still shows in the entry's least or typical case.

    Of a seed case, whether anything disagrees.
    """
    return run_again(entry, name, target, backend, servers)[0]


def run_again(
    entry: Entry, name: str, target: Target, backend: str, servers: Servers | None = None
) -> tuple[bool, str]:
    """(whether an entry is reproduced, how the launcher failed where it is not: raised, died or hung)."""
    failure = ""
    with open_triage(entry, name, target, backend, servers) as triage:
        if entry.finding is None:
            return triage.examine(entry.case, ACCURACY.name, clean=True).primary_finding is not None, failure
        finding, rate = entry.finding.as_accuracy, entry.provenance.rate or Rate()
        stateful = len(entry.case.calls) > 1
        least, typical = entry.case, entry.grade.typical if entry.grade else None
        for case in [case for case in (least, typical and typical.case) if case for _ in range(rate.runs_to_decide)]:
            report = triage.examine(case, finding.oracle, clean=True)
            shown, fault = report.finding_of(finding.oracle), report.finding_of(FAULT.name)
            if shown is not None and (stateful or shown.shares_output(finding)):
                return True, ""
            failure = failure or (fault.message if fault else "")
    return False, failure


@contextmanager
def open_triage(
    entry: Entry, name: str, target: Target, backend: str, servers: Servers | None = None
) -> Iterator[Triage]:
    """Triage of an entry's target, with its planted bug; its workers are forked from one of the servers, if given."""
    config, memory = WorkerConfig(name, entry.planted or None, backend), RunOptions(name).worker_memory
    with Servers() if servers is None else nullcontext(servers) as kept:
        worker = Worker(HANDLER, config, memory, target.timeout, server=kept.server(config, memory))
        with Triage(target, worker, SAMPLED_ORACLES) as triage:
            yield triage
