"""Measures every batch size by a worker, and makes the case that shows where a promise is broken."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fuzz.drift.plan import BatchDrift, DriftPlan, LayerDrift
from fuzz.errors import UsageError
from fuzz.model.case import Case
from fuzz.model.outcome import describe
from fuzz.model.recipes import Exact
from fuzz.run.result import Result
from fuzz.sweep.runner import call_again
from fuzz.worker.worker import Worker

HANDLER = "fuzz.drift.measure:make_handler"
BATCH_SECONDS = 600.0
"""Seconds that one batch size may take: all its layers, and their reference."""
MAX_EXACT = 1 << 16
"""Elements of a state that a case may hold bit by bit."""


def run_drift(plan: DriftPlan, memory: int) -> Iterator[BatchDrift]:
    """The layers of every batch size, in order. UsageError where the kernel does not return, or memory lacks."""
    with Worker(HANDLER, plan, memory, BATCH_SECONDS) as worker:
        for size in plan.batches:
            answer = call_again(worker, size)
            if not isinstance(answer, BatchDrift):
                raise UsageError(f"{plan.target} with {size} rows: {describe(answer)}; fuzz run shows more")
            yield answer


def breaks_promise(plan: DriftPlan, layer: LayerDrift) -> bool:
    """Whether a layer breaks what the target promises: its bits, or the envelope."""
    return bool(layer.differ if plan.bitwise else layer.beyond)


def make_cases(plan: DriftPlan, batches: list[BatchDrift]) -> list[Case]:
    """For each batch size that breaks the promise the first layer whose bits differ, with the row computed alone.

    Of a state that is too large for a case it has the last rows only, which may not show it.
    """
    cases = []
    for batch in batches:
        first = batch.first_different
        if first is None or not any(breaks_promise(plan, layer) for layer in batch.layers):
            continue
        size = batch.layers[0].batch
        if first == 1:
            cases.append(plan.case(0, size))
        elif isinstance(batch.state, Exact):
            kept = kept_rows(size, batch.state)
            bits = batch.state.bits[-kept * (len(batch.state.bits) // size) :] if kept else ()
            cases += [plan.case(first - 1, kept, replace(batch.state, bits=bits))] if kept else []
    return cases


def kept_rows(size: int, state: Exact) -> int:
    """How many of the rows of a batch a case can hold: all, where that are few enough; none where one is too large.

    Fewer than all are a power of two, as many a target takes multiples of one only.
    """
    most = MAX_EXACT // (len(state.bits) // size)
    return size if most >= size else (1 << most.bit_length()) >> 1


def why_unsaved(plan: DriftPlan, batches: list[BatchDrift], result: Result | None) -> str:
    """Why a broken promise is in no finding, in one line; empty where there is one, or nothing is broken."""
    broken = [batch for batch in batches if any(breaks_promise(plan, layer) for layer in batch.layers)]
    if not broken or (result and result.bugs):
        return ""
    for batch in broken:
        first, size = batch.first_different, batch.layers[0].batch
        if first and first > 1 and isinstance(batch.state, Exact) and (kept := kept_rows(size, batch.state)) < size:
            tried = f"its last {kept} alone do not show it" if kept else "one alone is too large"
            what = f"the {size} rows before layer {first}, of {len(batch.state.bits):,} elements"
            return f"nothing is saved: a case holds {MAX_EXACT:,} elements, not {what}, and {tried}"
    return "nothing is saved: the layer alone does not show it again"
