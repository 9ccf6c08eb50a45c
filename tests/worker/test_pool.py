"""A pool reports in the order of the groups, whatever becomes of its workers."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice

import pytest

from fuzz.model.case import Case
from fuzz.model.outcome import Died, Hung
from fuzz.worker import retry_backoff
from fuzz.worker.deadline import Deadline, OutOfTime
from fuzz.worker.pool import QUEUE_DEPTH, Pool, WorkerTeam
from fuzz.worker.protocol import Examine, ReplicaGroup, Report
from fuzz.worker.retry_backoff import RetryBackoff
from fuzz.worker.system import resident
from fuzz.worker.worker import Worker, WorkerCrash

HANDLER = f"{__name__}:make_handler"


def make_handler(config: object) -> Callable[[Examine | ReplicaGroup], Report | tuple[Report, ...]]:
    """Makes a handler that does what a request's first sampled oracle says and reports its process and the second.

    What is short of memory for `n` tries is ``short{n}``.
    """
    seen: Counter[str] = Counter()

    def handle(request: Examine | ReplicaGroup) -> Report | tuple[Report, ...]:
        if isinstance(request, ReplicaGroup):
            return tuple(examine(part) for part in request.requests())
        return examine(request)

    def examine(request: Examine) -> Report:
        action, label = request.sampled
        if action == "segfault":
            ctypes.string_at(0)
        if action == "hang":
            while True:
                pass
        if action == "stop":
            os.kill(os.getppid(), signal.SIGSTOP)
            time.sleep(600)
        if action == "slow":
            time.sleep(0.2)
        if action.startswith("short"):
            seen[label] += 1
            if seen[label] <= int(action.removeprefix("short")):
                return Report("not run: no memory is left here", False, (), (), not_run=True)
        return Report(label, False, (), (str(os.getpid()),))

    return handle


def group(case: Case, action: str, index: int) -> ReplicaGroup:
    return ReplicaGroup(case, ((action, str(index)),), index)


def outcomes_of(pool: Pool, case: Case, actions: list[str]) -> list[tuple[int, str]]:
    with pool:
        results = pool.examine(group(case, action, index) for index, action in enumerate(actions))
        return [(examined.first, report.outcome) for examined, (report,) in results]


def pool(count: int, timeout: float = 20.0) -> Pool:
    return Pool(HANDLER, None, 8 << 30, timeout, count)


@pytest.mark.parametrize("count", [1, 3])
def test_answers_come_in_the_order_of_the_questions(case: Case, count: int) -> None:
    actions = ["slow" if index % 5 == 0 else "echo" for index in range(20)]
    assert outcomes_of(pool(count), case, actions) == [(index, str(index)) for index in range(20)]


@pytest.mark.parametrize("count", [1, 2])
def test_a_death_is_reported_in_its_place_and_the_rest_is_examined(case: Case, count: int) -> None:
    actions = ["echo"] * 20
    actions[0] = actions[7] = actions[8] = actions[19] = "segfault"
    outcomes = outcomes_of(pool(count), case, actions)
    died = "the worker process died of SIGSEGV"
    assert outcomes == [(index, died if action == "segfault" else str(index)) for index, action in enumerate(actions)]


def test_other_workers_begin_after_the_first_report_unless_all_were_started(case: Case) -> None:
    for starts in (False, True):
        with pool(2) as workers:
            if starts:
                workers.start()
            results = workers.examine(group(case, "slow", index) for index in range(3 * QUEUE_DEPTH))
            processes, reporters = [], []
            for _, (report,) in results:
                processes.append(report.examined[0])
                reporters.append(workers.reporter)
        alone = processes[:QUEUE_DEPTH]
        assert len(set(zip(processes, reporters, strict=True))) == len(set(processes)) == len(set(reporters))
        assert (len(set(alone)), len(set(processes))) == ((2, 2) if starts else (1, 2))


def test_other_workers_do_not_wait_for_a_first_group_that_hangs(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz.worker.pool.ALONE_SECONDS", 0.5)
    drawn = 0

    def groups() -> Iterator[ReplicaGroup]:
        nonlocal drawn
        yield group(case, "hang", 0)
        for drawn in range(1, 1000):
            yield group(case, "slow", drawn)

    with pool(2, timeout=8.0) as workers:
        next(workers.examine(groups()))
    assert drawn > 2 * QUEUE_DEPTH


def test_a_hang_is_noticed_while_another_worker_is_busy(case: Case) -> None:
    drawn = 0
    start = time.monotonic()

    def groups() -> Iterator[ReplicaGroup]:
        nonlocal drawn
        # Other workers begin after the first report.
        yield group(case, "echo", 0)
        yield group(case, "hang", 1)
        while time.monotonic() - start < 120.0:
            drawn += 1
            yield group(case, "echo", 1 + drawn)

    with pool(2, timeout=4.0) as workers:
        second, (report,) = list(islice(workers.examine(groups()), 2))[1]
        assert time.monotonic() - start < 120.0
    assert (second.first, report.outcome) == (1, "did not return within 4 s")


def test_a_hang_ends_in_time_while_the_run_is_busy(case: Case) -> None:
    actions = ["echo", "hang", "echo"]
    with pool(1, timeout=4.0) as workers:
        results = workers.examine(group(case, action, index) for index, action in enumerate(actions))
        first = next(results)[1][0]
        start = time.monotonic()
        while resident(int(first.examined[0])) and time.monotonic() - start < 120.0:
            sum(range(1000))
        assert time.monotonic() - start < 120.0
        outcomes = [report.outcome for _, (report,) in results]
    assert outcomes == ["did not return within 4 s", "2"]


def test_a_group_in_which_a_worker_dies_ends_with_the_replica_that_killed_it(case: Case) -> None:
    actions = ("echo", "echo", "segfault", "echo")
    whole = ReplicaGroup(case, tuple((action, str(index)) for index, action in enumerate(actions)))
    with pool(1) as workers:
        results = list(workers.examine(iter([whole, group(case, "echo", 4)])))
    outcomes = [[report.outcome for report in reports] for _, reports in results]
    assert outcomes == [["0", "1", "the worker process died of SIGSEGV"], ["4"]]


def test_a_group_in_which_a_worker_dies_ends_with_the_replica_that_could_not_run(case: Case) -> None:
    """It took a process of its own to see that, and would take another one for each that follows."""
    actions = ("echo", "short99", "segfault", "echo")
    whole = ReplicaGroup(case, tuple((action, str(index)) for index, action in enumerate(actions)))
    with pool(1) as workers:
        reports = workers._rerun_alone(whole, WorkerCrash(Died("SIGSEGV")))
    assert [report.outcome for report in reports] == ["0", "not run: no memory is left here"]


def test_a_worker_that_is_killed_amid_a_run_costs_one_answer_at_most(case: Case) -> None:
    outcomes = []
    with pool(2) as workers:
        for examined, (report,) in workers.examine(group(case, "echo", index) for index in range(60)):
            outcomes.append((examined.first, report.outcome))
            if examined.first == 10:
                os.kill(int(report.examined[0]), signal.SIGKILL)
    wrong = [outcome for index, outcome in outcomes if outcome != str(index)]
    assert [index for index, _ in outcomes] == list(range(60))
    assert wrong in ([], ["the worker process died of SIGKILL"])


def test_groups_are_drawn_only_as_workers_get_free(case: Case) -> None:
    taken = 0

    def groups() -> Iterator[ReplicaGroup]:
        nonlocal taken
        for index in range(1000):
            taken += 1
            yield group(case, "slow", index)

    with pool(1) as workers:
        next(workers.examine(groups()))
    assert taken <= QUEUE_DEPTH + 2


def test_no_worker_outlives_its_pool(case: Case) -> None:
    with pool(2) as workers:
        results = workers.examine(group(case, "echo", index) for index in range(12))
        seen = [report.examined[0] for _, (report,) in results]
        pids = {str(worker.pid) for worker in workers.workers}
    assert set(seen) <= pids
    assert all(worker.pid is None for worker in workers.workers)
    assert all(resident(int(pid)) == 0 for pid in pids)


def test_what_the_machine_lacks_memory_for_is_examined_again_in_its_place(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry_backoff, "PAUSES", (0.0,) * 3)
    actions = ["echo", "short1", "echo", "short3", "echo", "short4", "echo"]
    lacks: list[str] = []
    outcomes = outcomes_of(replace(pool(1), backoff=RetryBackoff(on_lack=lacks.append)), case, actions)
    lacking = "no memory is left here"
    assert outcomes == [(index, f"not run: {lacking}" if index == 5 else str(index)) for index in range(7)]
    assert lacks == [lacking] * (1 + 3 + 4)


def test_the_tries_of_one_stream_are_not_counted_in_the_next(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_backoff, "PAUSES", (0.0,) * 3)
    with pool(1) as workers:
        streams = [list(workers.examine(iter([group(case, "short2", index)]))) for index in range(3)]
    assert [report.outcome for ((_, (report,)),) in streams] == ["0", "1", "2"]


@pytest.fixture
def team() -> Iterator[WorkerTeam]:
    made = WorkerTeam(tuple(Worker(HANDLER, None, 8 << 30, 20.0) for _ in range(3)))
    yield made
    made.stop()


def asked(case: Case, *actions: str) -> list[Examine]:
    return [Examine(case, (action, str(number))) for number, action in enumerate(actions)]


def test_a_team_answers_in_the_order_of_the_requests_by_several_processes(case: Case, team: WorkerTeam) -> None:
    answers = list(team.call(asked(case, "slow", *["echo"] * 8, "slow"), 20.0))
    assert [answer.outcome for answer in answers] == [str(number) for number in range(10)]
    assert len({answer.examined for answer in answers}) > 1


def test_a_team_reports_a_death_and_a_hang_in_their_place(case: Case, team: WorkerTeam) -> None:
    """What is asked next is answered, by new processes."""
    first, died, hung, last = team.call(asked(case, "echo", "segfault", "hang", "echo"), 0.5)
    assert (first.outcome, last.outcome) == ("0", "3")
    assert isinstance(died, WorkerCrash) and died.outcome == Died("SIGSEGV")
    assert isinstance(hung, WorkerCrash) and hung.outcome == Hung(0.5)
    assert [answer.outcome for answer in team.call(asked(case, *["echo"] * 4), 20.0)] == ["0", "1", "2", "3"]


def test_what_nobody_waits_for_any_more_is_dropped(case: Case, team: WorkerTeam) -> None:
    """It answers no later request."""
    for _ in range(3):
        answers = team.call(asked(case, "echo", "slow", "segfault", "slow"), 20.0)
        assert next(answers).outcome == "0"
        answers.close()  # type: ignore[attr-defined]
    again = [Examine(case, ("slow", f"again {number}")) for number in range(6)]
    assert [answer.outcome for answer in team.call(again, 20.0)] == [f"again {number}" for number in range(6)]


def test_a_call_of_a_team_goes_on_after_one_that_began_meanwhile(case: Case, team: WorkerTeam) -> None:
    outer = team.call(asked(case, "echo", "slow", "slow", "echo", "slow", "echo"), 20.0)
    assert next(outer).outcome == "0"
    inner = [Examine(case, ("slow", f"inner {number}")) for number in range(4)]
    assert [answer.outcome for answer in team.call(inner, 20.0)] == [f"inner {number}" for number in range(4)]
    assert [answer.outcome for answer in outer] == ["1", "2", "3", "4", "5"]


def test_a_team_that_is_not_usable_has_no_size() -> None:
    workers = tuple(Worker(HANDLER, None, 8 << 30, 20.0) for _ in range(2))
    assert [WorkerTeam(workers, is_usable).size for is_usable in (lambda: True, lambda: False)] == [2, 0]
    assert WorkerTeam().size == 0 and list(WorkerTeam().call([], 1.0)) == []


def test_a_team_gives_up_at_the_deadline_whatever_its_workers_do(case: Case) -> None:
    """Also where one can be neither read nor killed: its supervisor was stopped."""
    deadline = Deadline()
    team = WorkerTeam((Worker(HANDLER, None, 8 << 30, 60.0, deadline=deadline),))
    try:
        answers = team.call(asked(case, "stop", "echo"), 60.0)
        deadline.end = time.monotonic() + 1.0
        with pytest.raises(OutOfTime):
            next(answers)
    finally:
        team.stop()
