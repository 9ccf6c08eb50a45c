"""Measures every batch size by a worker, and makes the case that shows where a promise is broken."""

from __future__ import annotations

from collections.abc import Iterator

from fuzz.drift.plan import BatchDrift, DriftPlan, LayerDrift
from fuzz.errors import UsageError
from fuzz.model.case import Case
from fuzz.model.outcome import describe
from fuzz.model.recipes import Exact
from fuzz.worker.worker import Worker, WorkerCrash

HANDLER = "fuzz.drift.measure:make_handler"
BATCH_SECONDS = 600.0
"""Seconds that one batch size may take: all its layers, and their reference."""
MAX_EXACT = 1 << 16
"""Elements of a state that a case may hold bit by bit."""


def run_drift(plan: DriftPlan, memory: int) -> Iterator[BatchDrift]:
    """The layers of every batch size, in order. UsageError where the kernel does not return."""
    with Worker(HANDLER, plan, memory, BATCH_SECONDS) as worker:
        for size in plan.batches:
            answer = worker.call(size)
            if isinstance(answer, WorkerCrash):
                raise UsageError(f"{plan.target} with {size} rows: {describe(answer.outcome)}; fuzz run shows more")
            yield answer


def breaks_promise(plan: DriftPlan, layer: LayerDrift) -> bool:
    """Whether a layer breaks what the target promises: its bits, or the envelope."""
    return bool(layer.differ if plan.bitwise else layer.beyond)


def make_cases(plan: DriftPlan, batches: list[BatchDrift]) -> list[Case]:
    """For each batch size that breaks the promise the first layer whose bits differ, with the row computed alone."""
    cases = []
    for batch in batches:
        first = batch.first_different
        if first is None or not any(breaks_promise(plan, layer) for layer in batch.layers):
            continue
        size = batch.layers[0].batch
        if first == 1:
            cases.append(plan.case(0, size))
        elif isinstance(batch.state, Exact) and len(batch.state.bits) <= MAX_EXACT:
            cases.append(plan.case(first - 1, size, batch.state))
    return cases
