"""Runs entries in plot workers, each in a clean process, and keeps the results for the service's pages."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from fuzz.errors import UsageError, one_line
from fuzz.model.outcome import describe
from fuzz.report.text import replay_command
from fuzz.run.options import RunOptions
from fuzz.web.corpus_index import IndexedEntry
from fuzz.web.plots.protocol import WORKER, PlotConfig, PlotRequest, PlotResult
from fuzz.worker.process import InternalError, Worker, WorkerCrash, preload

PATIENCE = 120.0
"""Seconds that one entry may take, references and arbitrary precision included."""
CAPACITY = 256
"""Results that are kept; the oldest go first."""
BUSY = 60.0
"""Seconds that a request waits for the one before it."""


def run_plots(requests: Iterable[PlotRequest], config: PlotConfig) -> Iterator[PlotResult]:
    """The result of each entry, in order. What cannot be loaded or run is said in its texts, never raised."""
    preload("fuzz.oracles.preload")
    with Worker(WORKER, config, RunOptions("").worker_memory, PATIENCE) as worker:
        for request in requests:
            answer = worker.call(request)
            yield make_crash_result(answer) if isinstance(answer, WorkerCrash) else answer


def make_crash_result(fate: WorkerCrash) -> PlotResult:
    why = f"nothing to draw: {describe(fate.outcome)}"
    return PlotResult(why=why, no_script="the worker that makes it ended")


@dataclass
class PlotCache:
    """Results by an entry's file and its modification time. One entry runs at a time."""

    config: PlotConfig
    results: OrderedDict[tuple[str, float], PlotResult] = field(default_factory=OrderedDict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def plot(self, indexed: IndexedEntry) -> PlotResult:
        """The result of an entry, from before where its file is still the same."""
        key = str(indexed.path), indexed.changed
        if key in self.results:
            return self.results[key]
        if not self.lock.acquire(timeout=BUSY):
            return PlotResult(why="other entries are being drawn; try again in a minute")
        try:
            return self.results.get(key) or self._run(key, indexed)
        finally:
            self.lock.release()

    def _run(self, key: tuple[str, float], indexed: IndexedEntry) -> PlotResult:
        entry, error = indexed.read()
        if entry is None:
            return PlotResult(why=error)
        request = PlotRequest(indexed.path, entry, replay_command(indexed.path))
        try:
            (result,) = run_plots([request], self.config)
        except (UsageError, InternalError) as failure:
            return PlotResult(why=f"nothing to draw: {one_line(failure)[-300:]}")
        self.results[key] = result
        while len(self.results) > CAPACITY:
            self.results.popitem(last=False)
        return result
