"""Runs a handler in a process of its own, so that a segfault, a hang or a full memory ends a worker, never a run.

Workers are forked from a server process that has imported what they need, so that a clean one costs milliseconds.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import forkserver, get_context
from multiprocessing.connection import Connection, wait
from types import ModuleType
from typing import Any

from fuzz.errors import UsageError
from fuzz.model.outcome import Died, Hung, Outcome, OutOfMemory, describe
from fuzz.worker.channel import (
    STARTING,
    Activity,
    HandlerFailure,
    HandlerReady,
    HandlerRequest,
    HandlerResponse,
    LastResponse,
)
from fuzz.worker.deadline import Deadline
from fuzz.worker.serve import OWN_FAULT, resident, serve
from fuzz.worker.watchdog import POLL_SECONDS, WATCHDOG

CONTEXT = get_context("forkserver")
SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""Keeps a process that is started from running a file of the working folder that is named as one of its modules is."""
START_SECONDS = 120.0
"""Seconds that a worker may take to import everything and load its target."""
STARTS = threading.Lock()
"""Held while a process starts, which changes this process's variables for a moment."""


class InternalError(Exception):
    """A worker's own code failed, which is no outcome of the kernel; holds its traceback."""


@dataclass(frozen=True)
class WorkerCrash:
    """What `Worker` returns in place of a response where the process ended instead; `outcome` says how."""

    outcome: Outcome


@dataclass
class WorkerProcess:
    """A process as its worker knows it. `killed` is the request in which it exceeded a limit, and the outcome."""

    process: Any
    pipe: Connection[Any, Any]
    activity: Activity
    ready: bool = False
    killed: tuple[int, Outcome] | None = None

    def kill_if_over(self, timeout: float, memory: int) -> None:
        """Ends the process where its request exceeds `timeout` seconds, or the process `memory` resident bytes."""
        if self.killed:
            return
        number = self.activity.number
        limit = START_SECONDS if number == STARTING else timeout
        if self.activity.seconds > limit:
            self.killed = number, Hung(limit)
        elif resident(self.process.pid) > memory:
            self.killed = number, OutOfMemory(f"over {memory >> 20} MiB resident")
        if self.killed:
            self.process.kill()

    def exit_outcome(self) -> Outcome:
        """How it ended by itself. Raises InternalError where its own code failed."""
        self.process.join(5)
        code = self.process.exitcode
        if code == OWN_FAULT:
            raise InternalError("a worker's own code failed; its traceback is on standard error")
        return Died(signal.Signals(-code).name if code is not None and code < 0 else f"exit status {code}")

    def end(self) -> None:
        """Ends it at once."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


@dataclass
class Worker:
    """One process that answers requests in order. `handler` is ``module:function``, called once with `config`.

    The function returns the handler, request -> response. `memory` limits resident bytes; address space is unlimited.
    `timeout` limits the seconds of one request. With an `environment` the process is not forked from the server but
    started anew with those variables, for what must be set before anything is imported. A start has a limit of its
    own: a process that fails before it has made its handler raises, and is never the crash of a request. What is called
    after the `deadline`, or goes on then, raises OutOfTime.
    """

    handler: str
    config: Any
    memory: int
    timeout: float
    environment: Mapping[str, str] = field(default_factory=dict)
    deadline: Deadline = field(default_factory=Deadline)
    pending: dict[int, Any] = field(default_factory=dict)
    _child: WorkerProcess | None = None
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def start(self) -> None:
        """Starts the process; `submit` does so where there is none."""
        self.deadline.check()
        context: Any = get_context("spawn") if self.environment else CONTEXT
        activity = Activity()
        activity.begin(STARTING)
        ours, theirs = context.Pipe()
        try:
            process = self._launch(context, theirs, activity)
        except (EOFError, ConnectionError):
            # The server of workers was killed while it was asked; it is started anew.
            process = self._launch(context, theirs, activity)
        theirs.close()
        self._child = WorkerProcess(process, ours, activity)
        WATCHDOG.add(self._enforce_limits)

    def _launch(self, context: Any, pipe: Connection[Any, Any], activity: Activity) -> Any:
        arguments = pipe, activity, self.handler, self.config
        process = context.Process(target=serve, args=arguments, daemon=True)
        with STARTS, _without_main(), _environment({**SAFE_PATH, **self.environment}):
            process.start()
        return process

    def _enforce_limits(self) -> None:
        if self._child is not None:
            self._child.kill_if_over(self.timeout, self.memory)

    def submit(self, request: Any) -> None:
        """Queues a request; `receive` fetches the responses in the order of requests."""
        self.deadline.check()
        self._send(next(self._numbers), request)

    def _send(self, number: int, request: Any) -> None:
        if self._child is None:
            self.start()
        assert self._child is not None
        self.pending[number] = request
        # The end of a process is noticed and reported where its response is fetched.
        with suppress(BrokenPipeError, ConnectionResetError):
            self._child.pipe.send(HandlerRequest(number, request))

    def call(self, request: Any) -> Any:
        """The response to one request, or a WorkerCrash."""
        self.submit(request)
        while (answered := self.receive(POLL_SECONDS)) is None:
            continue
        return answered[1]

    def receive(self, seconds: float) -> tuple[Any, Any] | None:
        """(request, response or WorkerCrash) of the oldest pending request, None where it has not come by then.

        Raises UsageError or InternalError where the worker's own code raised it.
        """
        self.deadline.check()
        assert self._child is not None
        try:
            message = self._child.pipe.recv() if self._child.pipe.poll(seconds) else None
        except (EOFError, OSError):
            return self._replace(self._child)
        if isinstance(message, HandlerFailure):
            self.stop()
            raise UsageError(message.text) if message.usage else InternalError(message.text)
        if isinstance(message, HandlerResponse):
            return self._complete(message)
        self._child.ready |= isinstance(message, HandlerReady)
        return None

    def _complete(self, response: HandlerResponse) -> tuple[Any, Any]:
        request = self.pending.pop(response.number)
        if isinstance(response.body, LastResponse):
            self.restart()
            return request, response.body.response
        return request, response.body

    def _replace(self, child: WorkerProcess) -> tuple[Any, Any] | None:
        """Starts a new process for one that ended; the request that it ended in, if any, with the crash."""
        try:
            number, outcome = child.killed or (next(iter(self.pending), STARTING), child.exit_outcome())
            if not child.ready:
                raise InternalError(f"a worker ended before its first request: {describe(outcome)}")
        except InternalError:
            self.stop()
            raise
        # A process may be killed just after it has sent the response.
        crashed = number in self.pending
        request = self.pending.pop(number, None)
        self.restart()
        return (request, WorkerCrash(outcome)) if crashed else None

    def clone(self) -> Worker:
        """A worker alike, without a process."""
        return Worker(self.handler, self.config, self.memory, self.timeout, self.environment, self.deadline)

    def restart(self) -> None:
        """Replaces the process by a clean one and sends it the requests that are pending."""
        again = self.pending
        self.stop()
        for number, request in again.items():
            self._send(number, request)

    def stop(self) -> None:
        """Ends the process at once and drops the requests that are pending."""
        self.pending = {}
        if self._child is not None:
            WATCHDOG.remove(self._enforce_limits)
            self._child.end()
        self._child = None

    @property
    def current(self) -> Any:
        """The oldest pending request; None where there is none."""
        return next(iter(self.pending.values()), None)

    @property
    def pid(self) -> int | None:
        """The process's number; None where none runs."""
        return self._child.process.pid if self._child is not None and self._child.process.is_alive() else None

    @property
    def pipe(self) -> Connection[Any, Any] | None:
        """The run's end of the pipe, to wait for; None where no process runs."""
        return self._child.pipe if self._child is not None else None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


def wait_for_response(workers: list[Worker], seconds: float) -> Worker | None:
    """A worker whose pipe holds a response or has closed; None where none does after so many seconds."""
    pipes = {worker.pipe: worker for worker in workers if worker.pipe is not None}
    ready = wait(list(pipes), seconds)
    return pipes[ready[0]] if ready else None  # type: ignore[index]


@contextmanager
def _without_main() -> Iterator[None]:
    """Keeps a new process from importing the program that is running, which it does not need and may not survive."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets variables for processes that are started inside."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def preload(module: str) -> None:
    """Starts the server that workers are forked from, with a module imported, while the caller does other things."""
    CONTEXT.set_forkserver_preload([module])
    with STARTS, _environment(SAFE_PATH):
        forkserver.ensure_running()
