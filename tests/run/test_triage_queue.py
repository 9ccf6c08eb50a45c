"""What disagrees is handled in its order, beside the run or in turn with it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Sequence
from concurrent.futures import wait as wait_for
from typing import Any

import pytest
from bugs import wrong_value

from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.run.findings import triage_queue
from fuzz.run.findings.triage_queue import InOrder, Suspect, TriageQueue
from fuzz.worker.protocol import ReplicaGroup

PATIENCE = 120.0


class Recorder:
    """Handles cases while its gate is open, and notes the order and the thread."""

    def __init__(self, is_open: bool = True) -> None:
        self.gate = threading.Event()
        self.handled: list[int] = []
        self.done: list[int] = []
        self.put: list[float] = []
        self.threads: set[int] = set()
        if is_open:
            self.gate.set()

    def handle(
        self, index: int, case: Case, findings: Sequence[Finding], history: Sequence[Case], put: float
    ) -> Sequence[Finding]:
        assert self.gate.wait(PATIENCE)
        self.threads.add(threading.get_ident())
        self.put.append(put)
        self.handled.append(index)
        return ()

    def end(self, group: ReplicaGroup) -> None:
        self.done.append(group.first)
        assert threading.current_thread() is threading.main_thread()

    def queue(self, in_turn: bool = False, **how: Any) -> TriageQueue:
        return TriageQueue(self.handle, self.end, in_turn, **how)


class LastFirst(InOrder):
    def choose(self, waiting: Sequence[Suspect], task_waits: bool) -> Suspect | None:
        return waiting[-1]


class TasksLast(InOrder):
    def choose(self, waiting: Sequence[Suspect], task_waits: bool) -> Suspect | None:
        return waiting[0] if waiting else None

    def has_news(self, waiting: Sequence[Suspect]) -> bool:
        return bool(waiting)


@pytest.fixture
def findings() -> tuple[Finding, ...]:
    return wrong_value("y"), wrong_value("z")


def put_group(queue: TriageQueue, case: Case, first: int, count: int) -> None:
    for index in range(first, first + count):
        queue.put(index, case, (), ())
    queue.end_group(ReplicaGroup(case, ((),), first))


@pytest.mark.parametrize("in_turn", [True, False])
def test_the_order_is_that_of_the_cases(case: Case, in_turn: bool) -> None:
    recorder = Recorder()
    with recorder.queue(in_turn) as queue:
        for first in range(0, 30, 3):
            put_group(queue, case, first, 3)
        queue.finish()
    assert recorder.handled == list(range(30)) and recorder.done == list(range(0, 30, 3))
    assert len(recorder.threads) == 1 and threading.get_ident() not in recorder.threads


def test_the_run_goes_on_while_a_case_is_handled(case: Case) -> None:
    recorder = Recorder(is_open=False)
    with recorder.queue() as queue:
        put_group(queue, case, 0, 2)
        put_group(queue, case, 2, 0)
        assert recorder.handled == [] and recorder.done == [2]
        opened = time.monotonic()
        recorder.gate.set()
        queue.finish()
    assert recorder.handled == [0, 1] and recorder.done == [2, 0]
    # What counts is when a case disagreed, however long it waited.
    assert max(recorder.put) <= opened


def test_what_is_handled_next_may_be_chosen_and_groups_end_in_their_order(case: Case) -> None:
    recorder = Recorder(is_open=False)
    with recorder.queue(order=LastFirst()) as queue:
        for first in range(0, 6, 2):
            put_group(queue, case, first, 2)
        recorder.gate.set()
        queue.finish()
    assert sorted(recorder.handled) == list(range(6)) and recorder.handled[1:] == sorted(recorder.handled[1:])[::-1]
    assert recorder.done == [0, 2, 4]


@pytest.mark.parametrize("in_turn", [True, False])
def test_what_is_left_of_a_case_and_its_tasks_come_before_the_next_case(
    case: Case, findings: tuple[Finding, ...], in_turn: bool
) -> None:
    """Unless another order is chosen. A task may defer another one."""
    steps: list[object] = []

    def handle(
        index: int, case: Case, findings: Sequence[Finding], history: Sequence[Case], put: float
    ) -> Sequence[Finding]:
        steps.append((index, len(findings)))
        queue.defer(lambda: (steps.append("first"), queue.defer(lambda: steps.append("second")))[0])
        return findings[1:]

    with TriageQueue(handle, lambda group: steps.append("done"), in_turn) as queue:
        for index in range(2):
            queue.put(index, case, findings, ())
        queue.end_group(ReplicaGroup(case, ((),), 0))
        queue.finish()
    tasks = ["first", "second"]
    assert [one for one in steps if one != "done"] == [
        step for index in range(2) for step in ((index, 2), *tasks, (index, 1), *tasks)
    ]
    assert "done" in steps


def test_tasks_may_come_last_and_end_before_the_run_does(case: Case) -> None:
    steps: list[object] = []
    with TriageQueue(
        lambda index, *_: (steps.append(index), queue.defer(lambda: steps.append("task")), ())[-1],
        lambda group: None, False, TasksLast(),
    ) as queue:  # fmt: skip
        gate = threading.Event()
        queue.submit(lambda: None if gate.wait(PATIENCE) else None)
        put_group(queue, case, 0, 3)
        gate.set()
        queue.finish()
    assert steps == [0, 1, 2, "task", "task", "task"]


@pytest.mark.parametrize(("order", "expected"), [(InOrder(), False), (TasksLast(), True)])
def test_a_task_can_ask_whether_something_waits_that_it_is_to_be_postponed_for(
    case: Case, order: InOrder, expected: bool
) -> None:
    asked, gate = list[bool](), threading.Event()
    with TriageQueue(lambda *_: (), lambda group: None, False, order) as queue:
        queue.submit(lambda: asked.append(gate.wait(PATIENCE) and queue.has_news()))
        put_group(queue, case, 0, 1)
        gate.set()
        queue.finish()
        assert asked == [expected] and not queue.has_news()


def test_what_a_task_raises_ends_the_run(case: Case) -> None:
    def fail() -> None:
        raise ArithmeticError("broken")

    with TriageQueue(lambda *_: (), lambda group: None, False) as queue:
        queue.defer(fail)
        with pytest.raises(ArithmeticError):
            queue.finish()


def test_what_a_task_raises_is_raised_by_the_next_call() -> None:
    def fail() -> None:
        raise ArithmeticError("broken")

    group: Any = None
    with TriageQueue(lambda *_: (), lambda group: None, False) as queue:
        queue.submit(lambda: None)
        queue.submit(fail)
        wait_for(list(queue._others))
        with pytest.raises(ArithmeticError):
            queue.end_group(group)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_waits_until_no_condition_of_a_future_is_held(
    case: Case, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Raised inside of the wait it would leave conditions locked, and the thread of triage would wait for them."""
    events = []

    def interrupted(*arguments: Any) -> Any:
        os.kill(os.getpid(), number)
        found = wait_for(*arguments)
        events.append("waited")
        return found

    before = signal.signal(number, signal.default_int_handler)
    monkeypatch.setattr(triage_queue, "wait_for", interrupted)
    recorder = Recorder(is_open=False)
    try:
        with recorder.queue() as queue:
            put_group(queue, case, 0, 2)
            with pytest.raises(KeyboardInterrupt):
                queue.finish()
            assert events == ["waited"] and signal.getsignal(number) is signal.default_int_handler
            monkeypatch.setattr(triage_queue, "wait_for", wait_for)
            recorder.gate.set()
            queue.finish()
    finally:
        signal.signal(number, before)
    assert recorder.handled == [0, 1]


def test_in_turn_a_case_is_handled_before_the_run_goes_on(case: Case) -> None:
    recorder = Recorder()
    with recorder.queue(in_turn=True) as queue:
        queue.put(5, case, (), ())
        assert recorder.handled == [5]


def test_the_run_waits_where_too_much_waits(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triage_queue, "MOST_WAITING", 4)
    recorder = Recorder(is_open=False)
    threading.Timer(0.2, recorder.gate.set).start()
    with recorder.queue() as queue:
        for first in range(0, 8, 2):
            put_group(queue, case, first, 2)
        assert recorder.done[:1] == [0]


def test_what_the_handler_raises_ends_the_run(case: Case) -> None:
    def fail(*_: object) -> Sequence[Finding]:
        raise ArithmeticError("broken")

    with TriageQueue(fail, lambda group: None, False) as queue:
        queue.put(0, case, (), ())
        with pytest.raises(ArithmeticError):
            queue.finish()
