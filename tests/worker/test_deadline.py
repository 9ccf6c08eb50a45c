"""A deadline is seen by all who hold it, and ends the requests of workers."""

from __future__ import annotations

import math
import time
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from fuzz.clock import Clock
from fuzz.worker.deadline import Deadline, OutOfTime
from fuzz.worker.worker import Worker

HANDLER = f"{__name__}:make_handler"


def make_handler(config: object) -> object:
    """Makes a handler that never answers."""
    return lambda request: time.sleep(10_000)


@dataclass(frozen=True)
class ManualClock(Clock):
    """A monotonic clock that is set by hand."""

    now: list[float] = field(default_factory=lambda: [100.0])

    def monotonic(self) -> float:
        return self.now[0]


def test_the_moment_passes_by_the_monotonic_clock() -> None:
    deadline = Deadline(130.0, ManualClock())
    assert deadline.seconds_left == 30.0 and not deadline.has_passed
    deadline.clock.now[0] = 130.0  # type: ignore[attr-defined]
    assert deadline.has_passed
    with pytest.raises(OutOfTime):
        deadline.check()


def test_without_a_limit_of_time_it_never_passes_until_it_is_moved() -> None:
    deadline = Deadline.after(None, 5.0)
    assert deadline.seconds_left == math.inf
    deadline.check()
    deadline.end_now()
    assert deadline.has_passed
    assert Deadline.after(7.0, 5.0).end == 12.0


def test_ending_now_moves_no_deadline_that_has_passed() -> None:
    deadline = Deadline(90.0, ManualClock())
    deadline.end_now()
    assert deadline.end == 90.0


def test_a_request_that_still_runs_then_is_out_of_time_and_no_crash() -> None:
    deadline = Deadline()
    with Worker(HANDLER, None, 8 << 30, 1000.0, deadline=deadline) as worker:
        worker.submit("hang")
        assert worker.receive(0.2) is None
        deadline.end_now()
        with pytest.raises(OutOfTime):
            worker.receive(0.2)
        assert worker.current == "hang"
        other = worker.clone()
        with pytest.raises(OutOfTime):
            other.call("more")
        assert other.pid is None


def test_all_workers_end_then_without_being_asked() -> None:
    deadline = Deadline()
    with ExitStack() as stack:
        workers = [stack.enter_context(Worker(HANDLER, None, 8 << 30, 1000.0, deadline=deadline)) for _ in range(2)]
        for worker in workers:
            worker.submit("hang")
        assert all(worker.pid is not None for worker in workers)
        deadline.end_now()
        end = time.monotonic() + 300
        while any(worker.pid is not None for worker in workers) and time.monotonic() < end:
            time.sleep(0.05)
        assert all(worker.pid is None and worker.current == "hang" for worker in workers)
