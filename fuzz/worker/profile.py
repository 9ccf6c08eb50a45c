"""Measures how a process spends its time; of activities inside one another the innermost counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableSequence
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

ACTIVITIES = ("starting", "waiting", "generation", "compile", "launch", "reference", "oracles")
"""What a worker does: it imports its target, waits for requests, makes inputs, has kernels compiled or loaded, launches
them, evaluates references, and compares."""
Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


class Profile:
    """The seconds of each activity of this process, in cells that another process may read."""

    def __init__(self) -> None:
        self._cells: MutableSequence[float] = [0.0] * len(ACTIVITIES)
        self._first, self._since = 0, 0.0
        self._current: int | None = None

    def share(self, cells: MutableSequence[float], first: int) -> None:
        """Counts in these cells from now on, from the index `first` on."""
        self._cells, self._first, self._current = cells, first, None

    @contextmanager
    def measure(self, activity: str) -> Iterator[None]:
        """Counts the time inside for an activity."""
        outer = self._switch(ACTIVITIES.index(activity))
        try:
            yield
        finally:
            self._switch(outer)

    def _switch(self, activity: int | None) -> int | None:
        now, before = time.perf_counter(), self._current
        if before is not None:
            self._cells[self._first + before] += now - self._since
        self._current, self._since = activity, now
        return before

    def move(self, activity: str, seconds: float) -> None:
        """Counts seconds that have passed in the present activity for another one."""
        if self._current is not None:
            self._cells[self._first + self._current] -= seconds
            self._cells[self._first + ACTIVITIES.index(activity)] += seconds


PROFILE = Profile()
"""That of this process."""


def add_seconds(profiles: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The sums of profiles, activity by activity."""
    kept = list(profiles)
    return {name: sum(profile.get(name, 0.0) for profile in kept) for name in ACTIVITIES}


def measured(activity: str) -> Callable[[Callable[Parameters, Returned]], Callable[Parameters, Returned]]:
    """Counts the time in a function for an activity of this process, as `measure` does in a quarter of the time."""
    number = ACTIVITIES.index(activity)

    def decorate(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
        @wraps(function)
        def measured_function(*arguments: Parameters.args, **options: Parameters.kwargs) -> Returned:
            outer = PROFILE._switch(number)
            try:
                return function(*arguments, **options)
            finally:
                PROFILE._switch(outer)

        return measured_function

    return decorate
