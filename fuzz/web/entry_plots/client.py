"""Runs entries in plot workers, each in a clean process, and keeps the results for the service's pages."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fuzz.errors import InternalError, UsageError, one_line
from fuzz.model.entry import Entry
from fuzz.model.outcome import describe
from fuzz.report.entry_text import replay_command
from fuzz.report.plotting.plot_data import Plot
from fuzz.run.options import RunOptions
from fuzz.target.loader import files_that_declare, search_target
from fuzz.web.corpus_index import IndexedEntry
from fuzz.worker.worker import Worker, WorkerCrash
from fuzz.worker.worker_server import preload

ENTRY_SECONDS = 120.0
"""Seconds that one entry may take, references and arbitrary precision included."""
CAPACITY = 256
"""Results that are kept; the oldest go first."""
BUSY = 10.0
"""Seconds that a request waits for the one before it."""
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 600.0
"""Seconds until what failed once may run again, and at most."""
WORKER = "fuzz.web.entry_plots.worker:make_handler"
Key = tuple[str, float]
"""An entry's file, and its modification time."""


@dataclass(frozen=True)
class PlotConfig:
    """Where a worker runs cases, and where it may load targets from.

    Those are the built-in targets, then the files in `target_folders`; where that is None, `target_file`, and without
    it what is in the four folders above an entry, as `fuzz replay` finds them.
    """

    backend: str
    target_file: str = ""
    target_folders: tuple[Path, ...] | None = None

    def target_argument(self, entry: Entry, path: Path) -> str:
        """What ``--target`` must say for an entry; nothing where `fuzz replay` finds its target itself."""
        name = entry.case.target
        if self.target_folders is None or search_target(name, path):
            return self.target_file
        files = sorted(file for folder in self.target_folders for file in files_that_declare(name, folder))
        return f"{files[0].resolve()}:{name}" if files else ""


@dataclass(frozen=True)
class PlotRequest:
    """An entry with its file, and what ``--target`` must say for it."""

    path: Path
    entry: Entry
    target: str = ""

    @property
    def command(self) -> str:
        """The command that repeats it, which its script states."""
        return replay_command(self.path, self.target)


@dataclass(frozen=True)
class PlotResult:
    """The plots of one case, and its stand-alone program. `why` and `no_script` say why there is none.

    `failed` is whether another try may give more.
    """

    plots: tuple[Plot, ...] = ()
    why: str = ""
    script: str = ""
    no_script: str = ""
    failed: bool = False


def run_plots(requests: Iterable[PlotRequest], config: PlotConfig) -> Iterator[PlotResult]:
    """The result of each entry, in order. What cannot be loaded or run is said in its texts, never raised."""
    preload("fuzz.server_preload")
    with Worker(WORKER, config, RunOptions("").worker_memory, ENTRY_SECONDS) as worker:
        for request in requests:
            answer = worker.call(request)
            if isinstance(answer, WorkerCrash):
                why = f"nothing to draw: {describe(answer.outcome)}"
                answer = PlotResult(why=why, no_script="the worker that makes it ended", failed=True)
            yield answer


@dataclass
class PlotCache:
    """Results by an entry's file and its modification time. One entry runs at a time.

    What failed runs again when it is asked for after a pause, which doubles with each failure in a row.
    """

    config: PlotConfig
    results: OrderedDict[Key, tuple[PlotResult, int, float]] = field(default_factory=OrderedDict)
    """Key -> (its result, how often it failed in a row, when it runs again)."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def plot(self, indexed: IndexedEntry) -> tuple[PlotResult, float]:
        """The result of an entry, from before where its file is still the same.

        With it the seconds after which another try may give more; 0 where none would.
        """
        key = str(indexed.path), indexed.changed
        if (kept := self._kept(key)) is not None:
            return kept
        if not self.lock.acquire(timeout=BUSY):
            return PlotResult(why="other entries are being drawn", failed=True), FIRST_PAUSE
        try:
            return self._kept(key) or self._run(key, indexed)
        finally:
            self.lock.release()

    def _kept(self, key: Key) -> tuple[PlotResult, float] | None:
        """What is known of an entry, unless it is to run now."""
        kept = self.results.get(key)
        if kept is None:
            return None
        result, _, again = kept
        left = again - time.monotonic() if result.failed else 0.0
        return None if result.failed and left <= 0 else (result, left)

    def _run(self, key: Key, indexed: IndexedEntry) -> tuple[PlotResult, float]:
        entry, error = indexed.read()
        if entry is None:
            return PlotResult(why=error, failed=True), FIRST_PAUSE
        request = PlotRequest(indexed.path, entry, self.config.target_argument(entry, indexed.path))
        try:
            (result,) = run_plots([request], self.config)
        except (UsageError, InternalError) as failure:
            result = PlotResult(why=f"nothing to draw: {one_line(failure)[-300:]}", failed=True)
        times = self.results[key][1] if key in self.results else 0
        pause = min(FIRST_PAUSE * 2**times, LONGEST_PAUSE) if result.failed else 0.0
        self.results[key] = result, times + 1 if result.failed else 0, time.monotonic() + pause
        while len(self.results) > CAPACITY:
            self.results.popitem(last=False)
        return result, pause
