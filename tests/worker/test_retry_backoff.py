"""What could not run is waited for, a bounded share of the time where the machine lacks it for good."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from fuzz.clock import Clock
from fuzz.worker import retry_backoff
from fuzz.worker.deadline import Deadline, OutOfTime
from fuzz.worker.retry_backoff import PAUSES, REST, RetryBackoff

LACK = "no memory is left here"


@dataclass(frozen=True)
class SleepingClock(Clock):
    """A monotonic clock that moves only where somebody sleeps."""

    now: list[float] = field(default_factory=lambda: [1000.0])

    def monotonic(self) -> float:
        return self.now[0]

    def sleep(self, seconds: float) -> None:
        self.now[0] += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SleepingClock:
    clock = SleepingClock()
    monkeypatch.setattr(retry_backoff.time, "sleep", clock.sleep)
    return clock


def test_a_case_is_tried_again_after_ever_longer_pauses(clock: SleepingClock) -> None:
    waits, deadline = RetryBackoff(), Deadline(clock=clock)
    tries = 1
    while waits.wait(LACK, tries, deadline):
        tries += 1
    assert tries == len(PAUSES) + 1 and waits.seconds == sum(PAUSES) == clock.now[0] - 1000.0


def test_what_lacks_for_good_costs_a_share_of_the_time(clock: SleepingClock) -> None:
    waits, deadline = RetryBackoff(), Deadline(clock=clock)
    assert not waits.wait(LACK, len(PAUSES) + 1, deadline)
    assert not waits.wait(LACK, 1, deadline) and waits.seconds == 0
    clock.sleep(REST * sum(PAUSES))
    assert waits.wait(LACK, 1, deadline) and waits.seconds == PAUSES[0]


def test_a_wait_ends_with_the_run(clock: SleepingClock) -> None:
    with pytest.raises(OutOfTime):
        RetryBackoff().wait(LACK, len(PAUSES), Deadline(1002.0, clock))
    assert clock.now[0] == 1002.0
