"""Hands what disagrees to triage, one after another and in its order, while further cases run."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.worker.protocol import ReplicaGroup

MOST_WAITING = 256
"""Cases that may wait for triage; the run waits then, rather than leave more than that to its end."""

Handle = Callable[[int, Case, Sequence[Finding], Sequence[Case]], None]
"""Handles the findings of a case: (its index, the case, its findings, cases that ran before)."""


def has_spare_processor() -> bool:
    """Whether a second process can run beside the one that runs cases."""
    return len(os.sched_getaffinity(0)) > 1


@dataclass
class TriageQueue:
    """Calls a handler in a thread of its own; `on_group_done` is called in the caller's, with what is handled.

    With `in_turn` everything is handled at once, while the caller waits. Since the order is that of the calls in both,
    so are the results. What the handler raises is raised by the next call. `seconds_waited` counts the caller's waits,
    `seconds_handled` the time of the handler.
    """

    handle: Handle
    on_group_done: Callable[[ReplicaGroup], None]
    in_turn: bool
    seconds_waited: float = 0.0
    seconds_handled: float = 0.0
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "triage"))
    _others: list[Future[None]] = field(default_factory=list)
    _of_group: list[Future[None]] = field(default_factory=list)
    _waiting: deque[tuple[ReplicaGroup, list[Future[None]]]] = field(default_factory=deque)

    def __enter__(self) -> TriageQueue:
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.shutdown(cancel_futures=True)

    def submit(self, task: Callable[[], None]) -> None:
        """Runs another task in its turn."""
        self._others.append(self._thread.submit(task))
        if self.in_turn:
            self._wait(self._others)

    def put(self, index: int, case: Case, findings: Sequence[Finding], history: Sequence[Case]) -> None:
        """Has the findings of a case of the present group handled."""
        self._of_group.append(self._thread.submit(self._handle_timed, index, case, findings, history))
        if self.in_turn:
            self._wait(self._of_group)

    def _handle_timed(self, index: int, case: Case, findings: Sequence[Finding], history: Sequence[Case]) -> None:
        start = time.monotonic()
        try:
            self.handle(index, case, findings, history)
        finally:
            self.seconds_handled += time.monotonic() - start

    def end_group(self, group: ReplicaGroup) -> None:
        """Ends the present group: it is done when all that was put is handled."""
        if self._of_group:
            self._waiting.append((group, self._of_group))
            self._of_group = []
        else:
            self.on_group_done(group)
        while self._waiting and (self._count > MOST_WAITING or all(map(Future.done, self._waiting[0][1]))):
            self._finish_first()

    def finish(self) -> None:
        """Waits until everything is handled."""
        while self._waiting:
            self._finish_first()
        self._wait((*self._others, *self._of_group))

    @property
    def _count(self) -> int:
        return sum(len(futures) for _, futures in self._waiting)

    def _finish_first(self) -> None:
        group, futures = self._waiting[0]
        self._wait(futures)
        self._waiting.popleft()
        self.on_group_done(group)

    def _wait(self, futures: Sequence[Future[None]]) -> None:
        start = time.monotonic()
        try:
            for future in futures:
                future.result()
        finally:
            self.seconds_waited += time.monotonic() - start
