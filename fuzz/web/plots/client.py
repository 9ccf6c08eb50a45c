"""Drawing: entries to studies, each in a clean process: a kernel that harms its process harms no other picture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fuzz.model.outcome import describe
from fuzz.run.options import Run
from fuzz.web.plots.data import Portrait
from fuzz.web.plots.requests import STUDIO, Gallery, Sitting, Study
from fuzz.worker.process import Fate, Worker, preload

PATIENCE = 120.0
"""Seconds that drawing one entry may take, references and arbitrary precision included."""


def studies(sittings: Iterable[Sitting], gallery: Gallery) -> Iterator[Study]:
    """The study of each entry, in order. What cannot be loaded or run is told in words, never raised."""
    preload("fuzz.oracles.preload")
    with Worker(STUDIO, gallery, Run("").resident, PATIENCE) as worker:
        for sitting in sittings:
            answer = worker.ask(sitting)
            yield ended(answer) if isinstance(answer, Fate) else answer


def ended(fate: Fate) -> Study:
    return Study(Portrait(why=f"nothing to draw: {describe(fate.outcome)}"), why="the worker that makes it ended")
