"""What compiles ahead sees plans before their turn, and its own end matters to nobody.

A precompiler changes nothing about the plans; where time ends a run on a GPU those come first that are compiled.
"""

from __future__ import annotations

import ctypes
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from itertools import count as numbers_from
from pathlib import Path
from unittest.mock import Mock

import pytest

from fuzz.model.case import Case
from fuzz.worker.precompile import IN_PROCESS, MOST_AHEAD, Precompiler, ReadyFirst
from fuzz.worker.protocol import Precompile, WorkerConfig
from fuzz.worker.worker import Worker

HANDLER = f"{__name__}:make_handler"


def make_handler(folder: str) -> Callable[[Precompile], bool]:
    """Leaves a file named after the first number of the case's dims; some numbers are deadly."""

    def handle(request: Precompile) -> bool:
        number = request.plan.last.dims["N"]
        Path(folder, str(number)).touch()
        if number % 10 == 9 and "deadly" in folder:
            ctypes.string_at(0)
        return True

    return handle


def numbered(case: Case, number: int) -> Case:
    return case.with_call(0, replace(case.last, dims={**case.last.dims, "N": number}))


def plans(case: Case, total: int) -> Iterator[tuple[Case, int]]:
    for number in range(total):
        yield numbered(case, number), number


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
        submit = lambda request, numbers=submitted: numbers.append(request.plan.last.dims["N"])  # noqa: E731
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


def slow(folder: str) -> Callable[[Precompile], bool]:
    """Leaves a file at the end, half a second later; nobody waits for it at the second plan of an impatient folder."""

    def handle(request: Precompile) -> bool:
        number = request.plan.last.dims["N"]
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


def compiles_some(folder: str) -> Callable[[Precompile], str]:
    """Odd numbers do not compile, 9 ends the process, and 2 waits until its file is there."""

    def handle(request: Precompile) -> str:
        number = request.plan.last.dims["N"]
        with Path(folder, "requests").open("a") as requests:
            requests.write(f"{number} {'checked' if request.check_first else 'compiled'}\n")
        while number == 2 and not Path(folder, "go on").exists():
            time.sleep(0.001)
        if number == 9:
            ctypes.string_at(0)
        return "odd" * (number % 2)

    return handle


@dataclass
class Source:
    """Plans of numbers without end, of which it notes those that do not compile and leaves out all but multiples of 5.

    Numbers in `due` need nothing compiled, and come when they are asked for. Nothing is left out where not
    `may_leave_out`.
    """

    case: Case
    folder: Path
    numbers: Iterator[int] = field(default_factory=numbers_from)
    due: list[int] = field(default_factory=list)
    may_leave_out: bool = True
    drawn: list[int] = field(default_factory=list)
    left_out: list[int] = field(default_factory=list)

    def plans(self) -> Iterator[tuple[Case, int]]:
        for number in self.numbers:
            self.drawn.append(number)
            yield numbered(self.case, number), number

    def is_compiled(self, plan: Case) -> bool:
        return plan.last.dims["N"] < 0

    def next_compiled(self) -> tuple[Case, int] | None:
        return (numbered(self.case, self.due[0]), self.due.pop(0)) if self.due else None

    def leaves_out(self, plan: Case, why: str) -> bool:
        assert why == "odd"
        number = plan.last.dims["N"]
        if number % 5 == 0 or not self.may_leave_out:
            return False
        self.left_out.append(number)
        return True

    @property
    def requests(self) -> list[str]:
        """What processes were asked for."""
        return (self.folder / "requests").read_text().splitlines()


@contextmanager
def compiling(source: Source, processes: int) -> Iterator[Callable[[], int]]:
    """What gives the number of the next plan that is ready."""
    folder = str(source.folder)
    with Precompiler(
        tuple(Worker(f"{__name__}:compiles_some", folder, 8 << 30, 600.0) for _ in range(processes))
    ) as precompiler:
        count_left_out = Mock()
        ahead = ReadyFirst(precompiler.workers, source, count_left_out).compile_ahead()

        def take() -> int:
            end = time.monotonic() + 300
            while (planned := next(ahead)) is None:
                assert time.monotonic() < end
            return planned[1]

        yield take
        assert count_left_out.call_count == len(source.left_out)


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs plans compiles none, however long the processes take."""
    monkeypatch.setattr("fuzz.worker.precompile.WAIT_SECONDS", math.inf)


@pytest.mark.usefixtures("patience")
def test_what_is_compiled_comes_first_and_what_does_not_compile_may_be_left_out(case: Case, tmp_path: Path) -> None:
    source = Source(case, tmp_path)
    with compiling(source, 2) as take:
        given = [take() for _ in range(6)]
        assert 2 not in given, "the process that is at it holds back what is queued at it alone"
        (tmp_path / "go on").touch()
        # How a process has ended, at 9, says nothing of a plan.
        while not {2, 5, 9, 15} <= set(given) or not {1, 3, 7, 11, 13} <= set(source.left_out):
            given.append(take())
            assert len(given) < 1000
    assert len(set(given)) == len(given)
    assert not {number for number in source.left_out if number % 2 == 0 or number % 5 == 0 or number == 9}
    # What is not left out is compiled as far as it can be.
    assert source.requests.count("15 checked") == source.requests.count("15 compiled") == 1


@pytest.mark.usefixtures("patience")
def test_the_front_end_goes_first_where_plans_may_not_compile(case: Case, tmp_path: Path) -> None:
    """What compiles would go through it for nothing."""
    for last, is_checked in ((10, False), (15, True)):
        folder = tmp_path / str(last)
        folder.mkdir()
        source = Source(case, folder, chain((4, 6, 8, last), numbers_from(20, 2)))
        with compiling(source, 1) as take:
            assert [take() for _ in range(20)] == [4, 6, 8, last, *range(20, 52, 2)]
        requests = source.requests
        assert requests[:4] == ["4 checked", "6 compiled", "8 compiled", f"{last} compiled"]
        assert any("checked" in request for request in requests[4:]) == is_checked


@pytest.mark.usefixtures("patience")
def test_what_needs_nothing_compiled_is_given_at_once_and_the_processes_are_not_asked(
    case: Case, tmp_path: Path
) -> None:
    """Also where all that was drawn before is being compiled."""
    source = Source(case, tmp_path, chain((2, 4, 6, -1), numbers_from(8, 2)))
    with compiling(source, 1) as take:
        source.due = [7, 9]
        assert take() == 7 and source.drawn == [2, 4, 6]
        assert {take(), take()} == {9, -1}
        (tmp_path / "go on").touch()
        assert [take(), take()] == [2, 4]
    assert not {"7", "9", "-1"} & {request.split()[0] for request in source.requests}


@pytest.mark.usefixtures("patience")
def test_where_nothing_is_left_out_the_front_end_does_not_go_first(case: Case, tmp_path: Path) -> None:
    source = Source(case, tmp_path, numbers_from(11, 2), may_leave_out=False)
    with compiling(source, 1) as take:
        assert [take() for _ in range(10)] == list(range(11, 31, 2))
    assert not [request for request in source.requests if "checked" in request]


@pytest.mark.usefixtures("patience")
def test_few_plans_are_drawn_while_none_has_run_and_more_later(case: Case, tmp_path: Path) -> None:
    source = Source(case, tmp_path, repeat(4))
    with compiling(source, 2) as take:
        take()
        first = len(source.drawn)
        for _ in range(3 * MOST_AHEAD):
            take()
        assert 2 * IN_PROCESS < first <= 2 * IN_PROCESS + 3
        assert len(source.drawn) <= 4 * MOST_AHEAD + 2


def test_where_none_is_ready_for_long_the_run_compiles_one_that_no_process_has(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fuzz.worker.precompile.WAIT_SECONDS", 0.1)
    source = Source(case, tmp_path, numbers_from(2, 2))
    with compiling(source, 1) as take:
        assert [take(), take()] == [6, 8]
        monkeypatch.setattr("fuzz.worker.precompile.WAIT_SECONDS", math.inf)
        (tmp_path / "go on").touch()
        assert [take() for _ in range(4)] == [2, 4, 10, 12], "and each comes once"
    assert not {"6", "8"} & {request.split()[0] for request in source.requests}
