"""A precompiler changes nothing about the plans, and sees them before their turn; its own end matters to nobody."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fuzz.model.case import Case
from fuzz.worker.precompile import MOST_AHEAD, Precompiler
from fuzz.worker.protocol import WorkerConfig
from fuzz.worker.worker import Worker

HANDLER = f"{__name__}:make_handler"


def make_handler(folder: str) -> Callable[[Case], bool]:
    """Leaves a file named after the first number of the case's dims; some numbers are deadly."""

    def handle(case: Case) -> bool:
        number = case.last.dims["N"]
        Path(folder, str(number)).touch()
        if number % 10 == 9 and "deadly" in folder:
            ctypes.string_at(0)
        return True

    return handle


def plans(case: Case, count: int) -> Iterator[tuple[Case, int]]:
    for number in range(count):
        yield case.with_call(0, replace(case.last, dims={**case.last.dims, "N": number})), number


def precompiler_beside(workers: int, *, only_compiles: bool = False) -> Precompiler:
    """The precompiler of a run with so many workers."""
    return Precompiler.for_run(workers, WorkerConfig("t", None, "cpu"), 8 << 30, 600.0, only_compiles=only_compiles)


def alive(precompiler: Precompiler) -> bool:
    """Whether its processes run; one that died is replaced when the next plan is drawn."""
    return all(worker.pid is not None for worker in precompiler.workers)


@pytest.mark.parametrize(("deadly", "count"), [(False, 1), (True, 1), (False, 3)])
def test_plans_come_unchanged_and_most_were_seen_before(case: Case, tmp_path: Path, deadly: bool, count: int) -> None:
    total, seen = 3 * MOST_AHEAD, 0
    folder = tmp_path / ("deadly" if deadly else "harmless")
    folder.mkdir()
    with Precompiler(tuple(Worker(HANDLER, str(folder), 8 << 30, 600.0) for _ in range(count))) as precompiler:
        for expected, (plan, number) in enumerate(precompiler.compile_ahead(plans(case, total))):
            assert (plan.last.dims["N"], number) == (expected, expected)
            deadline = time.monotonic() + 120
            while not (folder / str(number)).exists() and alive(precompiler) and time.monotonic() < deadline:
                time.sleep(0.001)
            seen += (folder / str(number)).exists()
    assert seen == total if count == 1 and not deadly else seen >= total / 2


def test_what_runs_plans_leaves_the_first_one_to_the_run(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both would compile the same at the same time; what only compiles is done before the run's worker has started."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    for left in (True, False):
        precompiler = precompiler_beside(1, only_compiles=not left)
        submitted: list[int] = []
        submit = lambda plan, numbers=submitted: numbers.append(plan.last.dims["N"])  # noqa: E731
        monkeypatch.setattr(precompiler.workers[0], "submit", submit)
        assert [number for _, number in precompiler.compile_ahead(plans(case, 4))] == [0, 1, 2, 3]
        assert submitted == [1, 2, 3] if left else submitted == [0, 1, 2, 3]


def test_without_a_processor_to_spare_there_is_no_precompiler(case: Case) -> None:
    everyone = len(os.sched_getaffinity(0))
    with Precompiler.for_run(
        everyone, WorkerConfig("t", None, "cpu"), 1 << 30, 1.0, only_compiles=False
    ) as precompiler:
        assert precompiler.workers == ()
        assert [number for _, number in precompiler.compile_ahead(plans(case, 200))] == list(range(200))


def test_some_of_many_processors_are_for_precompiling(monkeypatch: pytest.MonkeyPatch) -> None:
    for processors, count in ((1, 0), (2, 1), (5, 1), (16, 3), (64, 4)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, n=processors: set(range(n)))
        assert len(precompiler_beside(1).workers) == count


def test_all_processors_but_one_for_the_run_compile_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for processors, count in ((1, 0), (2, 1), (3, 1), (4, 2), (16, 14), (64, 16)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, n=processors: set(range(n)))
        precompiler = precompiler_beside(1, only_compiles=True)
        assert len(precompiler.workers) == count and precompiler.wait_seconds > 0
        assert {worker.handler for worker in precompiler.workers} <= {"fuzz.oracles.examine:make_compile_handler"}


def slow(folder: str) -> Callable[[Case], bool]:
    """Leaves a file at the end, half a second later; nobody waits for it at the second plan of an impatient folder."""

    def handle(case: Case) -> bool:
        number = case.last.dims["N"]
        time.sleep(600.0 if number and folder.endswith("impatient") else 0.5)
        Path(folder, str(number)).touch()
        return True

    return handle


def test_a_plan_waits_for_the_process_that_is_at_it_no_longer_than_it_has_patience(case: Case, tmp_path: Path) -> None:
    for patience, waited in ((300.0, True), (0.0, False)):
        folder = tmp_path / ("patient" if waited else "impatient")
        folder.mkdir()
        with Precompiler((Worker(f"{__name__}:slow", str(folder), 8 << 30, 600.0),), patience) as precompiler:
            ahead = precompiler.compile_ahead(plans(case, 6))
            next(ahead)
            first = precompiler.workers[0].current
            while precompiler.workers[0].current is first:
                precompiler.submit_plans()
                time.sleep(0.01)
            assert next(ahead)[1] == 1
            assert (folder / "1").exists() == waited


def test_the_first_plan_is_given_as_soon_as_it_is_drawn(case: Case) -> None:
    drawn = plans(case, 2 * MOST_AHEAD)
    first = next(Precompiler(()).compile_ahead(drawn))
    assert first[1] == 0 and next(drawn)[1] <= 2
