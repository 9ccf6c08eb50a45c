"""Defines the moment by which something has to end: one object, given to everything that takes time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from fuzz.clock import Clock


class OutOfTime(Exception):
    """The deadline has passed."""


@dataclass
class Deadline:
    """A moment of the monotonic clock, in seconds; infinity where nothing limits the time.

    Everyone who was given the object sees at once when it is moved. `paused` are the seconds by which pauses moved it.
    """

    end: float = math.inf
    clock: Clock = field(default_factory=Clock)
    paused: float = 0.0

    @classmethod
    def after(cls, seconds: float | None, start: float) -> Deadline:
        """The deadline so many seconds after a moment of the monotonic clock; none for None."""
        return cls(math.inf if seconds is None else start + seconds)

    @property
    def seconds_left(self) -> float:
        """Seconds until then; not more than 0 where it has passed."""
        return self.end - self.clock.monotonic()

    @property
    def has_passed(self) -> bool:
        return self.seconds_left <= 0

    def check(self) -> None:
        """Raises OutOfTime where the moment has passed."""
        if self.has_passed:
            raise OutOfTime

    @contextmanager
    def pause(self, most: float) -> Iterator[None]:
        """Inside the block, which takes at most so many seconds, the time until then does not pass."""
        start = self.clock.monotonic()
        self.end += most
        try:
            yield
        finally:
            took = self.clock.monotonic() - start
            self.end += took - most
            self.paused += took

    def end_now(self) -> None:
        """Moves it to the present."""
        self.end = min(self.end, self.clock.monotonic())
