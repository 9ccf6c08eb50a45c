"""What a kernel writes over the memory that its worker shares with the run fails nothing there."""

from __future__ import annotations

import math
import signal
from types import SimpleNamespace
from typing import Any

import pytest

from fuzz.model.outcome import Died
from fuzz.worker.activity import CHANNEL_LOST, FAULT, FILE, FORKS, MOST_PIDS, STATUS, TARGETS_CODE, Activity
from fuzz.worker.worker_process import WorkerProcess

GARBAGE = (math.nan, math.inf, -math.inf, 1e300, -7.0, 0.5, 1.5, 255.5, 1e6 + 0.5)


@pytest.mark.parametrize("value", GARBAGE)
def test_garbage_is_as_nothing(value: float) -> None:
    activity = Activity()
    activity.cells[:] = [value] * len(activity.cells)
    assert (activity.pid, activity.status, activity.fault, activity.forks) == (0, None, 0, False)
    assert activity.targets_code == "" and all(0 <= seconds < math.inf for seconds in activity.profile.values())
    assert activity.number == (int(value) if math.isfinite(value) else 0)


@pytest.mark.parametrize("value", [*GARBAGE, 0x137F])
def test_a_worker_that_wrote_garbage_has_died(value: float) -> None:
    """0x137f is what os.waitpid tells of a process that is stopped."""
    activity = Activity()
    activity.cells[STATUS] = activity.cells[FAULT] = value
    channel: Any = None
    process = WorkerProcess(SimpleNamespace(pid=MOST_PIDS), channel, activity)
    assert process.exit_outcome() == Died("SIGKILL")


def test_what_a_worker_writes_is_read() -> None:
    activity = Activity()
    activity.pid, activity.fault, activity.forks, activity.status = 12, CHANNEL_LOST, True, signal.SIGSEGV
    assert (activity.pid, activity.fault, activity.forks) == (12, CHANNEL_LOST, True)
    assert activity.status == signal.SIGSEGV and activity.cells[FORKS] == 1
    activity.status = 0
    assert activity.status == 0
    with activity.running(FILE):
        assert activity.targets_code == "the target's file" and activity.cells[TARGETS_CODE] == FILE
