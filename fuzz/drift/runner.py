"""Search: every batch size by a worker, and where a promise is broken the case that shows it."""

from __future__ import annotations

from collections.abc import Callable

from fuzz.drift.plan import BatchDrift, DriftPlan, LayerDrift
from fuzz.errors import UsageError
from fuzz.model.case import Case
from fuzz.model.outcome import describe
from fuzz.model.recipes import Exact
from fuzz.worker.process import Worker, WorkerCrash

HANDLER = "fuzz.drift.measure:make_handler"
PATIENCE = 600.0
"""Seconds that one batch size may take: all its layers, and their reference."""
WRITTEN = 1 << 16
"""Elements of a state that a case may hold word by word."""


def drifted(plan: DriftPlan, memory: int, told: Callable[[BatchDrift], None]) -> list[BatchDrift]:
    """The rows of every batch size, in order. UsageError where the kernel does not return."""
    found = []
    with Worker(HANDLER, plan, memory, PATIENCE) as worker:
        for size in plan.batches:
            answer = worker.call(size)
            if isinstance(answer, WorkerCrash):
                raise UsageError(f"{plan.target} with {size} rows: {describe(answer.outcome)}; fuzz run shows more")
            found.append(answer)
            told(answer)
    return found


def broken(plan: DriftPlan, row: LayerDrift) -> bool:
    """Whether a row breaks what the target promises: its bits, or the envelope."""
    return bool(row.differ if plan.bitwise else row.beyond)


def cases_of(plan: DriftPlan, found: list[BatchDrift]) -> list[Case]:
    """For each batch size that breaks the promise the first layer whose bits differ, with the row computed alone."""
    made = []
    for rows in found:
        first = rows.first
        if first is None or not any(broken(plan, row) for row in rows.rows):
            continue
        size = rows.rows[0].batch
        if first == 1:
            made.append(plan.case(0, size))
        elif isinstance(rows.state, Exact) and len(rows.state.bits) <= WRITTEN:
            made.append(plan.case(first - 1, size, rows.state))
    return made
