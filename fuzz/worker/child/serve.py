"""Runs in a worker's process: makes the handler, then answers requests until the run closes the channel."""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from io import TextIOWrapper
from multiprocessing import resource_tracker
from typing import Any, NoReturn

from fuzz.errors import ReferenceFailedError, UsageError, one_line
from fuzz.worker.activity import CHANNEL_LOST, INTERPRETER_CHANGED, LIMITS_LOWERED, OWN_FAULT, PROFILE_START, Activity
from fuzz.worker.channel import (
    Channel,
    ChannelClosed,
    GarbledError,
    HandlerFailure,
    HandlerReady,
    HandlerRequest,
    HandlerResponse,
    LastResponse,
)
from fuzz.worker.child.process_state import ProcessState
from fuzz.worker.profile import PROFILE
from fuzz.worker.system import resident, signal_at_parents_end

END_PROCESS = os._exit
"""The function that a kernel cannot replace: without it this process would go on where it was forked."""
TRIM_BYTES = 32 << 20
"""Bytes by which a process may grow before malloc has to give free memory back to the system."""
TRIM_SECONDS = 0.01
"""Seconds between two looks at how much a process has grown."""

_serving: tuple[int, Activity | None] = (0, None)
"""This process's number and its activity, where it is a worker; a process forked from it is none."""


def heartbeat() -> None:
    """Restarts the watchdog's clock for the request that this process answers: what runs is ours, not the kernel's.

    Does nothing in a process that is no worker.
    """
    pid, activity = _serving
    if activity is not None and pid == os.getpid():
        activity.touch()


def running(which: int) -> AbstractContextManager[None]:
    """Notes for a block what of the target's own code this process runs, FILE or REFERENCE, in case that ends it.

    Does nothing in a process that is no worker.
    """
    pid, activity = _serving
    return activity.running(which) if activity is not None and pid == os.getpid() else nullcontext()


def reordering() -> AbstractContextManager[None]:
    """Notes for a block that programs run in another order than the grid's, where one that waits for an earlier one
    waits for ever. Does nothing in a process that is no worker.
    """
    pid, activity = _serving
    return activity.reordering() if activity is not None and pid == os.getpid() else nullcontext()


def may_reorder() -> bool:
    """Whether programs may run in another order than the grid's: not where it is known that one waits."""
    activity = _serving[1]
    return activity is None or not activity.grid_order


def fork_workers() -> None:
    """Notes that other workers are forked from this worker's process from now on."""
    activity = _serving[1]
    assert activity is not None
    activity.forks = True


def serve(channel: socket.socket, activity: Activity, handler: str, config: Any, supervisor: int) -> NoReturn:
    """The program of a worker's process, which `supervisor` has forked and ends with."""
    status = 0
    try:
        _set_up(channel, activity, supervisor)
        _answer_requests(Channel(channel), activity, handler, config)
    except (ChannelClosed, GarbledError):
        activity.fault = CHANNEL_LOST
    except SystemExit as leave:
        status = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
    except Exception:
        activity.fault = OWN_FAULT
        traceback.print_exc()
    except BaseException:
        # A kernel raised it: what is an Exception is caught where a request is answered.
        status = 1
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
        END_PROCESS(status & 0xFF)


def _set_up(channel: socket.socket, activity: Activity, supervisor: int) -> None:
    """Makes this process a session of its own, which holds no file of the run's but its channel."""
    signal_at_parents_end(signal.SIGKILL)
    if os.getppid() != supervisor:
        os._exit(0)
    os.setsid()
    global _serving
    activity.pid = os.getpid()
    PROFILE.share(activity.cells, PROFILE_START)
    _serving = activity.pid, activity
    # What a launcher prints must not end up in the one JSON value on standard output.
    os.dup2(2, 1)
    if isinstance(sys.stdout, TextIOWrapper):
        # The process may be killed at any moment.
        sys.stdout.reconfigure(line_buffering=True)
    close_files_but(channel.fileno())
    _leave_resource_tracker()


def _leave_resource_tracker() -> None:
    """Forgets the process to which the run tells what it shares: what a kernel wrote to that one would end it.

    A kernel that shares something itself starts one of its own.
    """
    tracker: Any = resource_tracker._resource_tracker
    tracker._fd = tracker._pid = None


def close_files_but(*kept: int) -> None:
    """Closes every file but these and the standard streams."""
    first = 3
    for number in sorted(kept):
        os.closerange(first, number)
        first = max(first, number + 1)
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))


def _answer_requests(channel: Channel, activity: Activity, handler: str, config: Any) -> None:
    with PROFILE.measure("starting"):
        handle = _make_handler(handler, config)
    if isinstance(handle, HandlerFailure):
        channel.send(handle)
        return
    activity.end()
    channel.send(HandlerReady())
    state = ProcessState.capture()
    try:
        _answer_each(channel, activity, handle, state)
    except (ChannelClosed, GarbledError):
        raise
    except Exception:
        # A handler of the kernel's would raise here as well.
        signal.setitimer(signal.ITIMER_REAL, 0)
        if not state.is_interpreter_changed:
            raise
        activity.fault = INTERPRETER_CHANGED


def _answer_each(channel: Channel, activity: Activity, handle: Callable[[Any], Any], state: ProcessState) -> None:
    own = activity.pid
    base, trimmed = resident(own), 0.0
    while True:
        with PROFILE.measure("waiting"):
            request = channel.receive()
        activity.begin(request.number)
        message = _respond(handle, request)
        if os.getpid() != own:
            # A kernel has forked this process and returned twice: the answer is the worker's own.
            END_PROCESS(0)
        changes = state.restore()
        if isinstance(message, HandlerFailure) and changes.limits:
            activity.fault = LIMITS_LOWERED
            return
        if isinstance(message, HandlerFailure) and not message.usage:
            if changes.handlers or state.is_interpreter_changed:
                activity.fault = INTERPRETER_CHANGED
                return
        if isinstance(message, HandlerResponse) and not (changes.restored or isinstance(message.body, LastResponse)):
            message = HandlerResponse(message.number, LastResponse(message.body))
        activity.end()
        if (
            not _send(channel, message, state)
            or isinstance(message, HandlerFailure)
            or isinstance(message.body, LastResponse)
        ):
            return
        if time.monotonic() > trimmed + TRIM_SECONDS:
            base, trimmed = _trim_heap(base), time.monotonic()


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
        return HandlerFailure(one_line(error), usage=True, of_reference=isinstance(error, ReferenceFailedError))
    return HandlerFailure(traceback.format_exc(), usage=False)


def _send(channel: Channel, message: HandlerResponse | HandlerFailure, state: ProcessState) -> bool:
    """Sends a message; where it cannot be pickled, that failure instead. Whether it was sent."""
    try:
        channel.send(message)
    except ChannelClosed:
        raise
    except Exception as error:
        if state.is_interpreter_changed:
            raise
        channel.send(_failure(error))
        return False
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
