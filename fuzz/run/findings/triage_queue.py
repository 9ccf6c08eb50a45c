"""Hands what disagrees to triage, one after another, while further cases run."""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, FIRST_EXCEPTION, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, Protocol

from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.worker.protocol import ReplicaGroup

MOST_WAITING = 256
"""Cases that may wait for triage; the run waits then, rather than leave more than that to its end."""

POLL_SECONDS = 0.1
"""Seconds between two looks at whether Ctrl-C has come during a wait."""
Task = Callable[[], None]
Handle = Callable[[int, Case, Sequence[Finding], Sequence[Case], float], Sequence[Finding]]
"""Handles the findings of a case: (its index, the case, its findings, cases that ran before, when it was put, by
time.monotonic) -> what of them is to be handled once more."""


@dataclass(frozen=True, eq=False)
class Suspect:
    """A case that waits for triage since `put`: its index in the run, its findings, and cases that ran before it.

    `is_rest` is whether other findings of the case were handled before.
    """

    index: int
    case: Case
    findings: Sequence[Finding]
    history: Sequence[Case]
    is_rest: bool = False
    put: float = field(default_factory=time.monotonic)
    handled: Future[None] = field(default_factory=Future)


class TriageOrder(Protocol):
    """In which order is handled what waits, in the order in which it came."""

    def choose(self, waiting: Sequence[Suspect], task_waits: bool) -> Suspect | None:
        """What is handled next; None where a task, which waits as well, comes first."""

    def has_news(self, waiting: Sequence[Suspect]) -> bool:
        """Whether something is not to wait for what takes long now."""


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Has Ctrl-C, and what ends a service, raise KeyboardInterrupt after what is done meanwhile.

    Inside of the code of a future's condition it would leave that locked for good, and who sets the result would wait.
    """
    arrived: list[int] = []
    handlers: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is signal.default_int_handler:
                handlers[number] = signal.signal(number, lambda number, frame: arrived.append(number))
    try:
        yield
    finally:
        for deferred, handler in handlers.items():
            signal.signal(deferred, handler)
        if arrived:
            raise KeyboardInterrupt


class InOrder:
    """The one that has waited longest is next, after tasks that came of one before it."""

    def choose(self, waiting: Sequence[Suspect], task_waits: bool) -> Suspect | None:
        return None if task_waits or not waiting else waiting[0]

    def has_news(self, waiting: Sequence[Suspect]) -> bool:
        return False


@dataclass
class TriageQueue:
    """Calls a handler in a thread of its own; `on_group_done` is called in the caller's, with what is handled.

    With `in_turn` everything is handled at once, while the caller waits. `order` says what is handled next. Where
    that is the first of what waits, results are the same as in turn. What the handler or a task raises is raised by the
    next call. `seconds_waited` counts the caller's waits, `seconds_handled` the time of the handler and of tasks.
    """

    handle: Handle
    on_group_done: Callable[[ReplicaGroup], None]
    in_turn: bool
    order: TriageOrder = field(default_factory=InOrder)
    seconds_waited: float = 0.0
    seconds_handled: float = 0.0
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "triage"))
    _others: list[Future[None]] = field(default_factory=list)
    _of_group: list[Future[None]] = field(default_factory=list)
    _groups: deque[tuple[ReplicaGroup, list[Future[None]]]] = field(default_factory=deque)
    _waiting: list[Suspect] = field(default_factory=list)
    _tasks: deque[tuple[Task, Future[None]]] = field(default_factory=deque)
    _lock: Lock = field(default_factory=Lock)

    def __enter__(self) -> TriageQueue:
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.shutdown(cancel_futures=True)

    def has_news(self) -> bool:
        """Whether something waits that the present task is to be postponed for."""
        with self._lock:
            waiting = tuple(self._waiting)
        return self.order.has_news(waiting)

    def submit(self, task: Task) -> None:
        """Runs a task in its turn."""
        with deferred_interrupts():
            self._others.append(self._thread.submit(task))
        if self.in_turn:
            self._wait_for_others()

    def defer(self, task: Task) -> None:
        """Runs a task when it is chosen; the handler and other tasks may call this."""
        done: Future[None] = Future()
        with self._lock:
            self._tasks.append((task, done))
        self._others.append(done)
        self._thread.submit(self._do_next)

    def put(self, index: int, case: Case, findings: Sequence[Finding], history: Sequence[Case]) -> None:
        """Has the findings of a case of the present group handled."""
        suspect = Suspect(index, case, findings, history)
        with self._lock:
            self._waiting.append(suspect)
        with deferred_interrupts():
            self._of_group.append(suspect.handled)
            self._thread.submit(self._do_next)
        if self.in_turn:
            self._wait(self._of_group)
            self._wait_for_others()

    def _do_next(self) -> None:
        """Handles the next suspect, or does the next task; each of them came with one call of this."""
        start = time.monotonic()
        with self._lock:
            waiting, task_waits = tuple(self._waiting), bool(self._tasks)
        done = waiting[0].handled if waiting else self._tasks[0][1]
        try:
            suspect = self.order.choose(waiting, task_waits)
            if suspect is None:
                task, done = self._tasks.popleft()
                task()
            else:
                done = suspect.handled
                rest = self.handle(suspect.index, suspect.case, suspect.findings, suspect.history, suspect.put)
                self._replace(suspect, [replace(suspect, findings=rest, is_rest=True)] if rest else [])
                if rest:
                    self._thread.submit(self._do_next)
                    return
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(None)
        finally:
            self.seconds_handled += time.monotonic() - start

    def _replace(self, suspect: Suspect, by: Sequence[Suspect]) -> None:
        """Has others wait in the place of a suspect."""
        with self._lock:
            place = self._waiting.index(suspect)
            self._waiting[place : place + 1] = by

    def end_group(self, group: ReplicaGroup) -> None:
        """Ends the present group: it is done when all that was put is handled."""
        with deferred_interrupts():
            while self._others and self._others[0].done():
                self._others.pop(0).result()
        if self._of_group:
            self._groups.append((group, self._of_group))
            self._of_group = []
        else:
            self.on_group_done(group)
        while len(open_futures := self._open_futures()) > MOST_WAITING:
            self._wait(open_futures, return_when=FIRST_COMPLETED)
        while self._groups and not self._open_futures(self._groups[0][1]):
            self._finish_first()

    def finish(self) -> None:
        """Waits until everything is handled."""
        while self._groups:
            self._finish_first()
        self._wait(self._of_group)
        self._wait_for_others()

    def _wait_for_others(self) -> None:
        """Waits for all tasks, those that tasks defer among them."""
        while self._others:
            self._wait([self._others.pop(0)])

    def _open_futures(self, among: Sequence[Future[None]] | None = None) -> list[Future[None]]:
        """What is not handled yet of some futures, by default of all groups."""
        futures = [future for _, part in self._groups for future in part] if among is None else among
        with deferred_interrupts():
            return [future for future in futures if not future.done()]

    def _finish_first(self) -> None:
        group, futures = self._groups[0]
        self._wait(futures)
        self._groups.popleft()
        self.on_group_done(group)

    def _wait(self, futures: Sequence[Future[None]], return_when: str = FIRST_EXCEPTION) -> None:
        start = time.monotonic()
        try:
            while not self._have_ended(futures, return_when):
                pass
        finally:
            self.seconds_waited += time.monotonic() - start

    def _have_ended(self, futures: Sequence[Future[None]], return_when: str) -> bool:
        """Whether what is waited for has ended within a moment. Raises what a future has raised."""
        with deferred_interrupts():
            done, open_ones = wait_for(futures, POLL_SECONDS, return_when)
            for future in done:
                future.result()
        return not open_ones or bool(done) and return_when == FIRST_COMPLETED
