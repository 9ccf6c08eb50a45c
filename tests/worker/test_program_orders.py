"""Programs that wait for ever in another order than the grid's are no hang, and the workers of a run learn so once."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator

import pytest

from fuzz.model.outcome import Hung
from fuzz.worker.activity import REORDERED, SINCE, Activity
from fuzz.worker.child.serve import may_reorder, reordering
from fuzz.worker.worker import Worker, WorkerCrash
from fuzz.worker.worker_process import ProgramOrders

HANDLER = f"{__name__}:make_handler"


def make_handler(config: object) -> Callable[[str], bool]:
    """Makes a handler that tells whether it may try other orders, in which programs may wait or take their time."""

    def handle(request: str) -> bool:
        reorders = may_reorder()
        if request == "waits" and reorders:
            with reordering():
                time.sleep(1000)
        if request == "takes":
            time.sleep(0.6)
            with reordering():
                time.sleep(0.6)
        if request == "hangs":
            time.sleep(1000)
        return reorders

    return handle


@pytest.fixture
def worker() -> Iterator[Worker]:
    with Worker(HANDLER, None, memory=8 << 30, timeout=1.0) as fresh:
        yield fresh


def test_a_request_whose_programs_wait_in_another_order_is_answered_without_it(worker: Worker) -> None:
    assert worker.call("plain") is True
    worker.submit("waits")
    worker.submit("plain")
    answers = []
    while len(answers) < 2:
        answers += [found] if (found := worker.receive(0.05)) else []
    assert answers == [("waits", False), ("plain", False)]
    assert worker.orders == ProgramOrders(grid_only=True)


def test_the_workers_of_a_run_learn_it_from_each_other(worker: Worker) -> None:
    with worker.clone() as other, worker.clone() as late:
        assert other.call("plain") is True
        assert worker.call("waits") is False
        assert late.call("plain") is False
        end = time.monotonic() + 60
        while other.call("plain") and time.monotonic() < end:
            time.sleep(0.05)
        assert other.call("waits") is False


def test_two_workers_may_wait_at_once(worker: Worker) -> None:
    with worker.clone() as other:
        worker.submit("waits")
        other.submit("waits")
        answers: list[object] = []
        while len(answers) < 2:
            answers += [found[1] for one in (worker, other) if one.pending and (found := one.receive(0.05))]
        assert answers == [False, False]


def test_other_orders_have_a_time_of_their_own() -> None:
    with Worker(HANDLER, None, memory=8 << 30, timeout=1.0) as worker:
        assert worker.call("plain") is True
        assert worker.call("takes") is True and not worker.orders.grid_only


def test_what_hangs_in_the_grids_order_hangs(worker: Worker) -> None:
    crash = worker.call("hangs")
    assert isinstance(crash, WorkerCrash) and crash.outcome == Hung(1.0)
    assert worker.call("plain") is True


def test_the_time_in_another_order_is_not_that_of_the_request() -> None:
    activity = Activity()
    activity.begin(3)
    activity.cells[SINCE] -= 10.0
    with activity.reordering():
        activity.cells[REORDERED] -= 4.0
        reordered, before = activity.seconds_reordered
        assert 4.0 <= reordered < 60.0 and 6.0 <= before < 60.0
    assert activity.seconds_reordered == (-math.inf, 0.0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e300, -7.0, 0.5])
def test_garbage_is_no_other_order(value: float) -> None:
    activity = Activity()
    activity.begin(3)
    activity.cells[REORDERED] = value
    assert activity.seconds_reordered == (-math.inf, 0.0)
