"""Runs a handler in a process of its own, so that a segfault, a hang or a full memory ends a worker, never a run.

Requests and responses travel as Python objects over a pipe between processes of one run. Workers are forked from a
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
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
POLL_SECONDS = 0.05
"""Seconds between two looks at a worker's memory and clock."""
PR_SET_PDEATHSIG = 1
"""prctl's option that sends a signal to a process when its parent ends."""
TRIM_BYTES = 32 << 20
"""Bytes by which a process may grow before malloc has to give free memory back to the system."""
FAILED = object()
START_SECONDS = 120.0
"""Seconds that a worker may take to import everything and load its target."""


class InternalError(Exception):
    """A worker's own code failed; holds its traceback."""


@dataclass(frozen=True)
class WorkerCrash:
    """What `Worker` returns in the place of a response where the process ended instead; `outcome` says how."""

    outcome: Outcome


@dataclass(frozen=True)
class LastResponse:
    """A handler returns this around a response after which its process cannot go on."""

    response: Any


@dataclass
class Worker:
    """One process that answers requests in order. `handler` is ``module:function``, called once with `config`.

    The function returns the handler, request -> response. `memory` limits resident bytes; address space is unlimited.
    `timeout` limits the seconds of one request. With an `environment` the process is not forked from the server but
    started anew with those variables, for what must be set before anything is imported.
    """

    handler: str
    config: Any
    memory: int
    timeout: float
    environment: Mapping[str, str] = field(default_factory=dict)
    pending: deque[Any] = field(default_factory=deque)
    started: float = 0.0
    _process: Any = None
    _pipe: Connection[Any, Any] | None = None
    _ready: bool = False

    def start(self) -> None:
        """Starts the process; `submit` does so where there is none."""
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
        self._process = context.Process(target=serve, args=(pipe, self.handler, self.config), daemon=True)
        with _without_main(), _environment(self.environment):
            self._process.start()

    def submit(self, request: Any) -> None:
        """Queues a request; `receive` fetches the responses in the order of requests."""
        if self._pipe is None:
            self.start()
        assert self._pipe is not None
        if not self.pending:
            self.started = time.monotonic()
        self.pending.append(request)
        # The end of a process is noticed and reported where its response is fetched.
        with suppress(BrokenPipeError, ConnectionResetError):
            self._pipe.send(request)

    def call(self, request: Any) -> Any:
        """The response to one request, or a WorkerCrash."""
        self.submit(request)
        while (answered := self.receive(POLL_SECONDS)) is None:
            continue
        return answered[1]

    def receive(self, seconds: float) -> tuple[Any, Any] | None:
        """(request, response or WorkerCrash) of the oldest pending request, None where it has not come by then."""
        assert self._pipe is not None
        try:
            if not self._pipe.poll(seconds):
                return self._enforce_limits()
            kind, value = self._pipe.recv()
        except (EOFError, ConnectionResetError, OSError):
            return self._end(self._exit_outcome())
        return self._accept(kind, value)

    def _accept(self, kind: str, value: Any) -> tuple[Any, Any] | None:
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
        if kind == "heartbeat":
            return None
        request = self.pending.popleft()
        if isinstance(value, LastResponse):
            self.restart()
            return request, value.response
        return request, value

    def _enforce_limits(self) -> tuple[Any, Any] | None:
        limit = self.timeout if self._ready else START_SECONDS
        if self.pending and time.monotonic() - self.started > limit:
            return self._end(Hung(limit))
        if resident(self._process.pid) > self.memory:
            return self._end(OutOfMemory(f"over {self.memory >> 20} MiB resident"))
        return None

    def _exit_outcome(self) -> Outcome:
        self._process.join(5)
        code = self._process.exitcode
        return Died(signal.Signals(-code).name if code is not None and code < 0 else f"exit status {code}")

    def _end(self, outcome: Outcome) -> tuple[Any, Any]:
        if not self._ready and not isinstance(outcome, Hung):
            self.stop()
            raise InternalError(f"a worker ended before it was ready: {outcome}")
        request = self.pending.popleft()
        self.restart()
        return request, WorkerCrash(outcome)

    def restart(self) -> None:
        """Replaces the process by a clean one and sends it the requests that are pending."""
        again = list(self.pending)
        self.stop()
        for request in again:
            self.submit(request)

    def stop(self) -> None:
        """Ends the process at once and drops the requests that are pending."""
        self.pending.clear()
        if self._process is not None and self._process.pid is not None:
            self._process.kill()
            self._process.join()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None

    @property
    def pid(self) -> int | None:
        """The process's number; None where none runs."""
        return self._process.pid if self._process is not None and self._process.is_alive() else None

    @property
    def pipe(self) -> Connection[Any, Any] | None:
        """The parent's end of the pipe, to wait for; None where no process runs."""
        return self._pipe

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
    forkserver.ensure_running()


def heartbeat() -> None:
    """Restarts the watchdog's clock for the request that this process answers: what runs is ours, not the kernel's.

    Does nothing in a process that is no worker.
    """
    pid, pipe = _serving
    if pipe is not None and pid == os.getpid():
        with suppress(OSError):  # The run has ended.
            pipe.send(("heartbeat", None))


_serving: tuple[int, Connection[Any, Any] | None] = (0, None)
"""This process's number and its pipe to the run, where it is a worker; a process forked from it is none."""


def resident(pid: int) -> int:
    """Bytes of memory that a process holds; 0 where it has ended."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * PAGE_BYTES
    except (OSError, IndexError):
        return 0


def serve(pipe: Connection[Any, Any], handler: str, config: Any) -> None:
    """The program of a worker's process: makes the handler, then answers requests until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _end_with_the_run()
    global _serving
    _serving = os.getpid(), pipe
    # What a launcher prints must not end up in the one JSON value on standard output.
    os.dup2(2, 1)
    handle = _send_errors(pipe, lambda _: _load_handler(handler, config), None)
    if handle is FAILED:
        return
    base = resident(os.getpid())
    # The pipe breaks where the run ends before its worker does.
    with suppress(EOFError, ConnectionResetError, BrokenPipeError):
        pipe.send(("ready", None))
        while (response := _send_errors(pipe, handle, pipe.recv())) is not FAILED:
            pipe.send(("response", response))
            if isinstance(response, LastResponse):
                sys.stdout.flush()
                os._exit(0)
            base = _trim_heap(base)


def _trim_heap(base: int) -> int:
    """Gives free memory back to the system where the process has grown beyond `base` resident bytes; the next base.

    After large tensors malloc keeps the memory that lies between small ones.
    """
    now = resident(os.getpid())
    if now > base + TRIM_BYTES:
        ctypes.CDLL(None).malloc_trim(0)
        return resident(os.getpid())
    return min(base, now)


def _end_with_the_run() -> None:
    """Even a worker that hangs dies with the server that it was forked from, and the server with the run.

    The server lives as long as anyone holds one end of a pipe, which every worker would otherwise inherit.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    server = getattr(forkserver, "_forkserver", None)
    alive = getattr(server, "_forkserver_alive_fd", None)
    if server is not None and alive is not None:
        os.close(alive)
        server._forkserver_alive_fd = None


def _load_handler(handler: str, config: Any) -> Callable[[Any], Any]:
    module, _, function = handler.partition(":")
    handle: Callable[[Any], Any] = getattr(importlib.import_module(module), function)(config)
    return handle


def _send_errors(pipe: Connection[Any, Any], function: Callable[[Any], Any], argument: Any) -> Any:
    """The function's value; FAILED where it raised, after the error was sent: a worker never swallows one."""
    try:
        return function(argument)
    except UsageError as error:
        pipe.send(("usage", one_line(error)))
    except Exception:
        pipe.send(("error", traceback.format_exc()))
    return FAILED
