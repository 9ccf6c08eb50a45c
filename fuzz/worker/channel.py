"""Defines the messages between a run and a worker's process: numbered requests and responses, framed by a pipe."""

from __future__ import annotations

import math
import time
from collections.abc import MutableSequence
from dataclasses import dataclass, field
from multiprocessing.sharedctypes import RawArray
from typing import Any

STARTING = -1
"""The number of the request that a process is at before it has made its handler."""


@dataclass(frozen=True)
class HandlerRequest:
    """What the run sends: a request with a number that no other one has."""

    number: int
    body: Any


@dataclass(frozen=True)
class HandlerReady:
    """The first message of a process: its handler is made."""


@dataclass(frozen=True)
class HandlerResponse:
    """The response to the request of that number."""

    number: int
    body: Any


@dataclass(frozen=True)
class HandlerFailure:
    """The last message of a process whose own code raised: a usage error's line, or a traceback."""

    text: str
    usage: bool


@dataclass(frozen=True)
class LastResponse:
    """A handler returns this around a response after which its process cannot go on."""

    response: Any


@dataclass
class Activity:
    """Which request a process is at and since when, in two doubles of memory that it shares with the run.

    So the run knows how long a request has taken, however late it comes to read what the process sent before.
    """

    cells: MutableSequence[float] = field(default_factory=lambda: RawArray("d", 2))

    def begin(self, number: int) -> None:
        """Notes that the process begins with a request."""
        self.end()
        self.cells[0] = number
        self.cells[1] = time.monotonic()

    def touch(self) -> None:
        """Notes that the time of the present request counts from now."""
        if math.isfinite(self.cells[1]):
            self.cells[1] = time.monotonic()

    def end(self) -> None:
        """Notes that the process waits for a request."""
        self.cells[1] = math.inf

    @property
    def number(self) -> int:
        """The request that the process is at, or the last one that it was at."""
        return int(self.cells[0])

    @property
    def seconds(self) -> float:
        """How long it has been at that request; negative infinity where it waits for one."""
        return time.monotonic() - self.cells[1]
