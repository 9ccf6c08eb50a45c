"""A pool answers in the order of the waves, whatever becomes of its workers."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from fuzz.model.case import Case
from fuzz.worker.pool import DEPTH, Pool
from fuzz.worker.protocol import Question, Report, Wave

SERVICE = "test_pool:service"


def service(setting: object) -> Callable[[Question | Wave], Report | tuple[Report, ...]]:
    """Does what the question's first sampled oracle says; reports this process and the second one."""

    def handle(request: Question | Wave) -> Report | tuple[Report, ...]:
        if isinstance(request, Wave):
            return tuple(one(question) for question in request.questions())
        return one(request)

    def one(question: Question) -> Report:
        deed, label = question.sampled
        if deed == "segfault":
            ctypes.string_at(0)
        if deed == "hang":
            while True:
                pass
        if deed == "slow":
            time.sleep(0.2)
        return Report(label, False, (), (str(os.getpid()),))

    return handle


def wave(case: Case, deed: str, index: int) -> Wave:
    return Wave(case, ((deed, str(index)),), index)


def ask(pool: Pool, case: Case, deeds: list[str]) -> list[tuple[int, str]]:
    with pool:
        answers = pool.answers(wave(case, deed, index) for index, deed in enumerate(deeds))
        return [(asked.first, report.outcome) for asked, (report,) in answers]


def pool(count: int, timeout: float = 20.0) -> Pool:
    return Pool(SERVICE, None, 8 << 30, timeout, count)


@pytest.mark.parametrize("count", [1, 3])
def test_answers_come_in_the_order_of_the_questions(case: Case, count: int) -> None:
    deeds = ["slow" if index % 5 == 0 else "echo" for index in range(20)]
    assert ask(pool(count), case, deeds) == [(index, str(index)) for index in range(20)]


@pytest.mark.parametrize("count", [1, 2])
def test_a_death_is_told_in_its_place_and_the_rest_is_answered(case: Case, count: int) -> None:
    deeds = ["echo"] * 20
    deeds[0] = deeds[7] = deeds[8] = deeds[19] = "segfault"
    found = ask(pool(count), case, deeds)
    died = "the worker process died of SIGSEGV"
    assert found == [(index, died if deed == "segfault" else str(index)) for index, deed in enumerate(deeds)]


def test_a_hang_is_noticed_while_another_worker_is_busy(case: Case) -> None:
    asked = 0
    start = time.monotonic()

    def waves() -> Iterator[Wave]:
        nonlocal asked
        yield wave(case, "hang", 0)
        while time.monotonic() - start < 6.0:
            asked += 1
            yield wave(case, "echo", asked)

    with pool(2, timeout=1.0) as made:
        first, (report,) = next(made.answers(waves()))
        assert time.monotonic() - start < 5.0
    assert (first.first, report.outcome) == (0, "did not return within 1 s")


def test_a_wave_in_which_a_worker_dies_ends_with_the_replica_that_killed_it(case: Case) -> None:
    deeds = ("echo", "echo", "segfault", "echo")
    whole = Wave(case, tuple((deed, str(index)) for index, deed in enumerate(deeds)))
    with pool(1) as made:
        answers = list(made.answers(iter([whole, wave(case, "echo", 4)])))
    outcomes = [[report.outcome for report in reports] for _, reports in answers]
    assert outcomes == [["0", "1", "the worker process died of SIGSEGV"], ["4"]]


def test_a_worker_that_is_killed_amid_a_run_costs_one_answer_at_most(case: Case) -> None:
    outcomes = []
    with pool(2) as made:
        for asked, (report,) in made.answers(wave(case, "echo", index) for index in range(60)):
            outcomes.append((asked.first, report.outcome))
            if asked.first == 10:
                os.kill(int(report.examined[0]), signal.SIGKILL)
    wrong = [outcome for index, outcome in outcomes if outcome != str(index)]
    assert [index for index, _ in outcomes] == list(range(60))
    assert wrong in ([], ["the worker process died of SIGKILL"])


def test_waves_are_taken_only_as_workers_get_free(case: Case) -> None:
    taken = 0

    def waves() -> Iterator[Wave]:
        nonlocal taken
        for index in range(1000):
            taken += 1
            yield wave(case, "slow", index)

    with pool(1) as made:
        next(made.answers(waves()))
    assert taken <= DEPTH + 2


def test_no_worker_outlives_its_pool(case: Case) -> None:
    with pool(2) as made:
        answers = made.answers(wave(case, "echo", index) for index in range(12))
        found = [report.examined[0] for _, (report,) in answers]
        processes = [worker._process for worker in made.workers]
    assert set(found) <= {str(process.pid) for process in processes}
    assert all(process.exitcode is not None for process in processes)
