"""Hands what disagrees to triage, one after another, while further cases run."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, FIRST_EXCEPTION, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, field
from threading import Lock

from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.worker.protocol import ReplicaGroup

MOST_WAITING = 256
"""Cases that may wait for triage; the run waits then, rather than leave more than that to its end."""

Handle = Callable[[int, Case, Sequence[Finding], Sequence[Case]], None]
"""Handles the findings of a case: (its index, the case, its findings, cases that ran before)."""


@dataclass(frozen=True, eq=False)
class Suspect:
    """A case that waits for triage: its index in the run, its findings, and cases that ran before it."""

    index: int
    case: Case
    findings: Sequence[Finding]
    history: Sequence[Case]
    handled: Future[None] = field(default_factory=Future)


def take_first(waiting: Sequence[Suspect]) -> Suspect:
    """The one that has waited longest."""
    return waiting[0]


@dataclass
class TriageQueue:
    """Calls a handler in a thread of its own; `on_group_done` is called in the caller's, with what is handled.

    With `in_turn` everything is handled at once, while the caller waits. `choose` gives what is handled next of what
    waits, in the order in which it came. Where that is the first of them, results are the same as in turn. What the
    handler raises is raised by the next call. `seconds_waited` counts the caller's waits, `seconds_handled` the time of
    the handler.
    """

    handle: Handle
    on_group_done: Callable[[ReplicaGroup], None]
    in_turn: bool
    choose: Callable[[Sequence[Suspect]], Suspect] = take_first
    seconds_waited: float = 0.0
    seconds_handled: float = 0.0
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "triage"))
    _others: list[Future[None]] = field(default_factory=list)
    _of_group: list[Future[None]] = field(default_factory=list)
    _groups: deque[tuple[ReplicaGroup, list[Future[None]]]] = field(default_factory=deque)
    _waiting: list[Suspect] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

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
        suspect = Suspect(index, case, findings, history)
        with self._lock:
            self._waiting.append(suspect)
        self._of_group.append(suspect.handled)
        self._thread.submit(self._handle_next)
        if self.in_turn:
            self._wait(self._of_group)

    def _handle_next(self) -> None:
        start = time.monotonic()
        with self._lock:
            waiting = tuple(self._waiting)
        suspect = waiting[0]
        try:
            suspect = self.choose(waiting)
            self.handle(suspect.index, suspect.case, suspect.findings, suspect.history)
        except BaseException as error:
            suspect.handled.set_exception(error)
        else:
            suspect.handled.set_result(None)
        finally:
            with self._lock:
                self._waiting.remove(suspect)
            self.seconds_handled += time.monotonic() - start

    def end_group(self, group: ReplicaGroup) -> None:
        """Ends the present group: it is done when all that was put is handled."""
        if self._of_group:
            self._groups.append((group, self._of_group))
            self._of_group = []
        else:
            self.on_group_done(group)
        while len(open_futures := self._open_futures()) > MOST_WAITING:
            self._wait(open_futures, return_when=FIRST_COMPLETED)
        while self._groups and all(map(Future.done, self._groups[0][1])):
            self._finish_first()

    def finish(self) -> None:
        """Waits until everything is handled."""
        while self._groups:
            self._finish_first()
        self._wait((*self._others, *self._of_group))

    def _open_futures(self) -> list[Future[None]]:
        return [future for _, futures in self._groups for future in futures if not future.done()]

    def _finish_first(self) -> None:
        group, futures = self._groups[0]
        self._wait(futures)
        self._groups.popleft()
        self.on_group_done(group)

    def _wait(self, futures: Sequence[Future[None]], return_when: str = FIRST_EXCEPTION) -> None:
        start = time.monotonic()
        try:
            for future in wait_for(futures, return_when=return_when).done:
                future.result()
        finally:
            self.seconds_waited += time.monotonic() - start
