"""Starts the server that workers are forked from: a new Python, or a fork of this process and what it has imported."""

from __future__ import annotations

import os
import threading
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from multiprocessing import forkserver, get_context, resource_tracker, util
from typing import Any

from fuzz.errors import UsageError, one_line
from fuzz.worker.child.serve import close_files_but
from fuzz.worker.python_process import importing_this
from fuzz.worker.system import blocked_interrupts, environment

CONTEXT = get_context("forkserver")
SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""Keeps a process that is started from running a file of the working folder that is named as one of its modules is."""
COUNT_FORKS = "fuzz.worker.child.count_forks"
"""The module that the server imports after all others."""
START_PYTHON: Callable[[bytes, Sequence[Any], Sequence[int]], int] = vars(util)["spawnv_passfds"]
"""Starts a new Python for the server."""
IGNORE_INTERRUPTS = """
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
"""
"""What a server does first, which cannot import this package yet; else it would once all its modules are imported."""
STARTS = threading.Lock()
"""Held while a process starts, which changes this process's variables for a moment."""


def preload(*modules: str) -> None:
    """Starts the server that workers are forked from, with modules imported, while the caller does other things."""
    CONTEXT.set_forkserver_preload([*modules, COUNT_FORKS])
    _start_server(_run_in_python)


def fork_server(*modules: str) -> None:
    """Starts the same server as a fork of this process, which imports the modules first: that is done once for both.

    Only for a program that has imported modules so far and no more: a lock that another thread holds stays locked.
    """
    for module in modules:
        import_module(module)
    CONTEXT.set_forkserver_preload([*modules, COUNT_FORKS])
    _start_server(_run_in_fork)


def fork_another_server() -> forkserver.ForkServer:
    """Starts another such server as a fork of this process, with all that it has loaded since the first one was forked.

    Only where this process has no other thread.
    """
    server = forkserver.ForkServer()
    server.set_forkserver_preload([COUNT_FORKS])
    _start_server(_run_in_fork, server)
    return server


def _start_server(
    run: Callable[[bytes, Sequence[Any], Sequence[int]], int], server: forkserver.ForkServer | None = None
) -> None:
    """Starts a server, None for that of all workers, with `run` in place of the function that starts a new Python."""
    processes: Any = util
    with STARTS, environment(SAFE_PATH):
        # It is started by the function that is replaced below, and not meant.
        resource_tracker.ensure_running()
        processes.spawnv_passfds = run
        try:
            (server or forkserver).ensure_running()
        except OSError as error:
            raise UsageError(f"no worker can start from {util.get_temp_dir()}: {one_line(error)}") from None
        finally:
            processes.spawnv_passfds = START_PYTHON


def _run_in_python(path: bytes, arguments: Sequence[Any], passed: Sequence[int]) -> int:
    """Starts a new Python, which would import nothing where it does not find this package; its number."""
    with blocked_interrupts():
        return START_PYTHON(path, [*arguments[:-1], importing_this(IGNORE_INTERRUPTS + arguments[-1])], passed)


def _run_in_fork(path: bytes, arguments: Sequence[Any], passed: Sequence[int]) -> int:
    """Does in a fork of this process what a new Python would do: its number. Half a request ends it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        number = os.fork()
    if number:
        return number
    try:
        close_files_but(*passed)
        with suppress(EOFError):
            exec(arguments[-1], {})
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(1)
