"""Shares with the run, through memory, what a worker's process is doing: no message has to arrive for it."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, MutableSequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.sharedctypes import RawArray

from fuzz.worker.profile import ACTIVITIES

STARTING = -1
"""The number of the request that a process is at before it has made its handler."""
NUMBER, SINCE, PID, STATUS, FAULT, FORKS, TARGETS_CODE, REORDERED, GRID_ORDER = range(9)
"""The cells of an activity; those of the profile follow them."""
PROFILE_START = 9
MOST_PIDS = 1 << 22
"""The largest number that Linux gives to a process."""
TARGETS_CODES = ("", "the target's file", "the target's reference")
"""What of a target's own code a worker runs beside the launcher."""
FILE, REFERENCE = 1, 2
OWN_FAULT, CHANNEL_LOST, LIMITS_LOWERED, INTERPRETER_CHANGED = 1, 2, 3, 4
"""Why a worker has ended its process: its own code failed and could not report it; its channel is closed, or holds
something else than requests; its code failed after a kernel had changed the limits of its resources, or what names
mean in its interpreter."""


def _make_cells() -> MutableSequence[float]:
    first = [STARTING, math.inf, 0, math.nan, 0, 0, 0, math.inf, 0]
    cells: MutableSequence[float] = RawArray("d", [*first, *[0.0] * len(ACTIVITIES)])
    return cells


@dataclass
class Activity:
    """Which request a process is at and since when, its process's number, how and why it ended: doubles.

    So the run knows how long a request has taken, however late it comes to read what the process sent before.
    """

    cells: MutableSequence[float] = field(default_factory=_make_cells)

    def begin(self, number: int) -> None:
        """Notes that the process begins with a request."""
        self.end()
        self.cells[NUMBER] = number
        self.cells[SINCE] = time.monotonic()

    def touch(self) -> None:
        """Notes that the time of the present request counts from now."""
        if math.isfinite(self.cells[SINCE]):
            self.cells[SINCE] = time.monotonic()

    def end(self) -> None:
        """Notes that the process waits for a request."""
        self.cells[SINCE] = math.inf

    def _whole(self, cell: int, values: range | None = None) -> int:
        """A cell's number, one of `values` if these are given; 0 where a kernel has written over it what is none."""
        value = self.cells[cell]
        number = int(value) if math.isfinite(value) else 0
        return number if values is None or number == value and number in values else 0

    @property
    def number(self) -> int:
        """The request that the process is at, or the last one that it was at."""
        return self._whole(NUMBER)

    @property
    def seconds(self) -> float:
        """How long it has been at that request; negative infinity where it waits for one."""
        return time.monotonic() - self.cells[SINCE]

    @property
    def profile(self) -> dict[str, float]:
        """The seconds that the process has spent on each activity."""
        seconds = (value if 0 <= value < math.inf else 0.0 for value in self.cells[PROFILE_START:])
        return dict(zip(ACTIVITIES, seconds, strict=True))

    @property
    def pid(self) -> int:
        """The number of the worker's process; 0 before it has started."""
        return self._whole(PID, range(MOST_PIDS + 1))

    @pid.setter
    def pid(self, number: int) -> None:
        self.cells[PID] = number

    @property
    def status(self) -> int | None:
        """How the worker's process ended, as os.waitpid tells it; None while it runs, or where nobody waited for it."""
        status = self._whole(STATUS, range(1 << 16))
        has_ended = status == self.cells[STATUS] and (os.WIFEXITED(status) or os.WIFSIGNALED(status))
        return status if has_ended else None

    @status.setter
    def status(self, status: int) -> None:
        self.cells[STATUS] = status

    @property
    def fault(self) -> int:
        """Why the worker has ended its process; 0 where it has not."""
        return self._whole(FAULT, range(INTERPRETER_CHANGED + 1))

    @fault.setter
    def fault(self, fault: int) -> None:
        self.cells[FAULT] = fault

    @property
    def forks(self) -> bool:
        """Whether other workers are forked from the process, which its end must not end."""
        return self.cells[FORKS] == 1

    @forks.setter
    def forks(self, forks: bool) -> None:
        self.cells[FORKS] = forks

    @property
    def targets_code(self) -> str:
        """What of the target's own code the process runs beside the launcher; empty for nothing."""
        return TARGETS_CODES[self._whole(TARGETS_CODE, range(len(TARGETS_CODES)))]

    @contextmanager
    def running(self, which: int) -> Iterator[None]:
        """Inside, the process runs the target's FILE or REFERENCE."""
        self.cells[TARGETS_CODE] = which
        try:
            yield
        finally:
            self.cells[TARGETS_CODE] = 0

    @contextmanager
    def reordering(self) -> Iterator[None]:
        """Inside, the programs of launches run in another order than the grid's: for that the request has more time."""
        start = self.cells[REORDERED] = time.monotonic()
        try:
            yield
        finally:
            self.cells[SINCE] += time.monotonic() - start
            self.cells[REORDERED] = math.inf

    @property
    def seconds_reordered(self) -> tuple[float, float]:
        """How long the process has run programs in another order, negative infinity where it does not, and how long
        the request had taken before."""
        since, start, now = self.cells[SINCE], self.cells[REORDERED], time.monotonic()
        return (now - start, start - since) if since <= start <= now else (-math.inf, 0.0)

    @property
    def grid_order(self) -> bool:
        """Whether the process is to run programs in the grid's order alone."""
        return self.cells[GRID_ORDER] == 1

    @grid_order.setter
    def grid_order(self, only: bool) -> None:
        self.cells[GRID_ORDER] = only
