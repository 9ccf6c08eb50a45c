"""Drawing: entries to studies, each in a clean process: a kernel that harms its process harms no other picture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fuzz.model.outcome import describe
from fuzz.run.options import RunOptions
from fuzz.web.plots.data import PlotData
from fuzz.web.plots.protocol import STUDIO, PlotConfig, PlotRequest, PlotResult
from fuzz.worker.process import Worker, WorkerCrash, preload

PATIENCE = 120.0
"""Seconds that drawing one entry may take, references and arbitrary precision included."""


def studies(sittings: Iterable[PlotRequest], gallery: PlotConfig) -> Iterator[PlotResult]:
    """The study of each entry, in order. What cannot be loaded or run is told in words, never raised."""
    preload("fuzz.oracles.preload")
    with Worker(STUDIO, gallery, RunOptions("").worker_memory, PATIENCE) as worker:
        for sitting in sittings:
            answer = worker.call(sitting)
            yield ended(answer) if isinstance(answer, WorkerCrash) else answer


def ended(fate: WorkerCrash) -> PlotResult:
    return PlotResult(PlotData(why=f"nothing to draw: {describe(fate.outcome)}"), why="the worker that makes it ended")
