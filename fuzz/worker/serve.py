"""Runs in a worker's process: makes the handler, then answers requests until the run closes the pipe."""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any

from fuzz.errors import UsageError, one_line
from fuzz.worker.channel import Activity, HandlerFailure, HandlerReady, HandlerRequest, HandlerResponse, LastResponse

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
PR_SET_PDEATHSIG = 1
"""prctl's option that sends a signal to a process when its parent ends."""
TRIM_BYTES = 32 << 20
"""Bytes by which a process may grow before malloc has to give free memory back to the system."""
OWN_FAULT = 70
"""The exit status of a process whose own code failed and could not report it (EX_SOFTWARE)."""
CLOSED = (EOFError, ConnectionResetError, BrokenPipeError)
"""What a pipe raises whose other end is closed."""


_serving: tuple[int, Activity | None] = (0, None)
"""This process's number and its activity, where it is a worker; a process forked from it is none."""


def heartbeat() -> None:
    """Restarts the watchdog's clock for the request that this process answers: what runs is ours, not the kernel's.

    Does nothing in a process that is no worker.
    """
    pid, activity = _serving
    if activity is not None and pid == os.getpid():
        activity.touch()


def serve(pipe: Connection[Any, Any], activity: Activity, handler: str, config: Any) -> None:
    """The program of a worker's process. `handler` is ``module:function``, which makes the handler from `config`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _end_with_the_run()
    global _serving
    _serving = os.getpid(), activity
    # What a launcher prints must not end up in the one JSON value on standard output.
    os.dup2(2, 1)
    try:
        # The pipe breaks where the run ends before its worker does.
        with suppress(EOFError, ConnectionResetError, BrokenPipeError):
            _answer_requests(pipe, activity, handler, config)
    except Exception:
        traceback.print_exc()
        os._exit(OWN_FAULT)


def _answer_requests(pipe: Connection[Any, Any], activity: Activity, handler: str, config: Any) -> None:
    handle = _make_handler(handler, config)
    if isinstance(handle, HandlerFailure):
        pipe.send(handle)
        return
    base = resident(os.getpid())
    activity.end()
    pipe.send(HandlerReady())
    while True:
        request = pipe.recv()
        activity.begin(request.number)
        message = _respond(handle, request)
        activity.end()
        if not _send(pipe, message) or isinstance(message, HandlerFailure):
            return
        if isinstance(message.body, LastResponse):
            sys.stdout.flush()
            os._exit(0)
        base = _trim_heap(base)


def _make_handler(handler: str, config: Any) -> Callable[[Any], Any] | HandlerFailure:
    module, _, function = handler.partition(":")
    try:
        handle: Callable[[Any], Any] = getattr(importlib.import_module(module), function)(config)
    except Exception as error:
        return _failure(error)
    return handle


def _respond(handle: Callable[[Any], Any], request: HandlerRequest) -> HandlerResponse | HandlerFailure:
    try:
        return HandlerResponse(request.number, handle(request.body))
    except Exception as error:
        return _failure(error)


def _failure(error: Exception) -> HandlerFailure:
    """The message for an error that is being handled: a worker never swallows one."""
    if isinstance(error, UsageError):
        return HandlerFailure(one_line(error), usage=True)
    return HandlerFailure(traceback.format_exc(), usage=False)


def _send(pipe: Connection[Any, Any], message: HandlerResponse | HandlerFailure) -> bool:
    """Sends a message; where it cannot be pickled, that failure instead. Whether it was sent."""
    try:
        data = ForkingPickler.dumps(message)
    except Exception as error:
        pipe.send(_failure(error))
        return False
    pipe.send_bytes(data)
    return True


def _trim_heap(base: int) -> int:
    """Gives free memory back to the system where the process has grown beyond `base` resident bytes; the next base.

    After large tensors malloc keeps the memory that lies between small ones.
    """
    now = resident(os.getpid())
    if now > base + TRIM_BYTES:
        ctypes.CDLL(None).malloc_trim(0)
        return resident(os.getpid())
    return min(base, now)


def resident(pid: int) -> int:
    """Bytes of memory that a process holds; 0 where it has ended."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * PAGE_BYTES
    except (OSError, IndexError):
        return 0


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
