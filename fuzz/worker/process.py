"""Worker: the process in which a backend runs. A segfault, a hang or a full memory kills a worker, never a run.

Requests and answers travel as Python objects over a pipe between processes of one run. Workers are forked from a
server process that has imported what they need, so that a clean one costs milliseconds.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import forkserver, get_context
from multiprocessing.connection import Connection, wait
from types import ModuleType
from typing import Any

from fuzz.errors import UsageError, one_line
from fuzz.model.outcome import Died, Hung, Outcome, OutOfMemory

CONTEXT = get_context("forkserver")
PAGE = os.sysconf("SC_PAGE_SIZE")
SLICE = 0.05
"""Seconds between two looks at a worker's memory and clock."""
PARENT_DEATH = 1
"""prctl's PR_SET_PDEATHSIG."""
GROWN = 32 << 20
"""Bytes by which a process may grow before malloc has to give back to the system what is free."""
FAILED = object()
STARTING = 120.0
"""Seconds a worker may take to import everything and load its target."""


class InternalError(Exception):
    """A worker's own code failed; holds its traceback."""


@dataclass(frozen=True)
class Fate:
    """A worker ended instead of answering."""

    outcome: Outcome


@dataclass(frozen=True)
class Final:
    """An answer after which the worker's process cannot go on."""

    answer: Any


@dataclass
class Worker:
    """One process that answers requests in order. `entry` is ``module:function``, called once with `settings`.

    The function returns a handler, request -> answer. `memory` limits resident bytes; address space is unlimited.
    `timeout` is the watchdog's time for one request in seconds. With an `environment` the process is not forked from
    the server but started anew with those variables, for what must be set before anything is imported.
    """

    entry: str
    settings: Any
    memory: int
    timeout: float
    environment: Mapping[str, str] = field(default_factory=dict)
    pending: deque[Any] = field(default_factory=deque)
    started: float = 0.0
    _process: Any = None
    _pipe: Connection[Any, Any] | None = None
    _ready: bool = False

    def start(self) -> None:
        context: Any = get_context("spawn") if self.environment else CONTEXT
        ours, theirs = context.Pipe()
        try:
            self._launch(context, theirs)
        except (EOFError, ConnectionError):
            # The server of workers was killed while it was asked; it is started anew.
            self._launch(context, theirs)
        theirs.close()
        self._pipe, self._ready, self.started = ours, False, time.monotonic()

    def _launch(self, context: Any, pipe: Connection[Any, Any]) -> None:
        self._process = context.Process(target=serve, args=(pipe, self.entry, self.settings), daemon=True)
        with _without_main(), _environment(self.environment):
            self._process.start()

    def submit(self, request: Any) -> None:
        """Queues a request; the answer is fetched by `answer`, in the order of requests."""
        if self._pipe is None:
            self.start()
        assert self._pipe is not None
        if not self.pending:
            self.started = time.monotonic()
        self.pending.append(request)
        try:
            self._pipe.send(request)
        except (BrokenPipeError, ConnectionResetError):
            pass  # The death is noticed, and told, where the answer is fetched.

    def ask(self, request: Any) -> Any:
        """The answer to one request, or the Fate of the worker."""
        self.submit(request)
        while (answer := self.answer(SLICE)) is None:
            continue
        return answer[1]

    def answer(self, seconds: float) -> tuple[Any, Any] | None:
        """(request, answer or Fate) for the oldest pending request, or None where it is not there after `seconds`."""
        assert self._pipe is not None
        try:
            if not self._pipe.poll(seconds):
                return self._watched()
            kind, value = self._pipe.recv()
        except (EOFError, ConnectionResetError, OSError):
            return self._ended(self._cause())
        return self._received(kind, value)

    def _received(self, kind: str, value: Any) -> tuple[Any, Any] | None:
        if kind == "usage":
            self.stop()
            raise UsageError(value)
        if kind == "error":
            self.stop()
            raise InternalError(value)
        if kind == "ready":
            self._ready, self.started = True, time.monotonic()
            return None
        self.started = time.monotonic()
        request = self.pending.popleft()
        if isinstance(value, Final):
            self.restart()
            return request, value.answer
        return request, value

    def _watched(self) -> tuple[Any, Any] | None:
        limit = self.timeout if self._ready else STARTING
        if self.pending and time.monotonic() - self.started > limit:
            return self._ended(Hung(limit))
        if resident(self._process.pid) > self.memory:
            return self._ended(OutOfMemory(f"over {self.memory >> 20} MiB resident"))
        return None

    def _cause(self) -> Outcome:
        self._process.join(5)
        code = self._process.exitcode
        return Died(signal.Signals(-code).name if code is not None and code < 0 else f"exit status {code}")

    def _ended(self, outcome: Outcome) -> tuple[Any, Any]:
        if not self._ready and not isinstance(outcome, Hung):
            self.stop()
            raise InternalError(f"a worker ended before it was ready: {outcome}")
        request = self.pending.popleft()
        self.restart()
        return request, Fate(outcome)

    def restart(self) -> None:
        """A clean process; requests that were pending are sent to it again."""
        again = list(self.pending)
        self.stop()
        for request in again:
            self.submit(request)

    def stop(self) -> None:
        """Ends the process at once."""
        self.pending.clear()
        if self._process is not None and self._process.pid is not None:
            self._process.kill()
            self._process.join()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None

    @property
    def pipe(self) -> Connection[Any, Any] | None:
        return self._pipe

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


def any_answer(workers: list[Worker], seconds: float) -> Worker | None:
    """A worker whose answer has come, or that needs looking at, after at most `seconds`."""
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
    forkserver.ensure_running()


def resident(pid: int) -> int:
    """Bytes of memory that a process holds; 0 where it has ended."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * PAGE
    except (OSError, IndexError):
        return 0


def serve(pipe: Connection[Any, Any], entry: str, settings: Any) -> None:
    """The worker's process: make the handler, then answer until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _end_with_the_run()
    # What a launcher prints must not end up in the one JSON value on standard output.
    os.dup2(2, 1)
    handle = _guarded(pipe, lambda _: _handler(entry, settings), None)
    if handle is FAILED:
        return
    least = resident(os.getpid())
    # The pipe breaks where the run ends before its worker does.
    with suppress(EOFError, ConnectionResetError, BrokenPipeError):
        pipe.send(("ready", None))
        while (answer := _guarded(pipe, handle, pipe.recv())) is not FAILED:
            pipe.send(("answer", answer))
            if isinstance(answer, Final):
                sys.stdout.flush()
                os._exit(0)
            least = _gave_back(least)


def _gave_back(least: int) -> int:
    """Resident bytes from which on growth counts: after large tensors malloc keeps what lies between small ones."""
    now = resident(os.getpid())
    if now > least + GROWN:
        ctypes.CDLL(None).malloc_trim(0)
        return resident(os.getpid())
    return min(least, now)


def _end_with_the_run() -> None:
    """Even a worker that hangs dies with the server that it was forked from, and the server with the run.

    The server lives as long as anyone holds one end of a pipe, which every worker would otherwise inherit.
    """
    ctypes.CDLL(None).prctl(PARENT_DEATH, signal.SIGKILL)
    server = getattr(forkserver, "_forkserver", None)
    alive = getattr(server, "_forkserver_alive_fd", None)
    if server is not None and alive is not None:
        os.close(alive)
        server._forkserver_alive_fd = None


def _handler(entry: str, settings: Any) -> Callable[[Any], Any]:
    module, _, function = entry.partition(":")
    made: Callable[[Any], Any] = getattr(importlib.import_module(module), function)(settings)
    return made


def _guarded(pipe: Connection[Any, Any], function: Callable[[Any], Any], argument: Any) -> Any:
    """The function's value, or FAILED after the error was sent: a worker never swallows one."""
    try:
        return function(argument)
    except UsageError as error:
        pipe.send(("usage", one_line(error)))
    except Exception:
        pipe.send(("error", traceback.format_exc()))
    return FAILED
