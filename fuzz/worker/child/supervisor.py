"""Runs in a process between the server and a worker: forks the worker, and ends it with everything that it started.

What a kernel forks becomes a child of this process when its own parent ends, also where it has a session of its own.
So nothing outlives a worker, however the worker ends, and the worker's death is noticed by its process alone: what a
kernel has forked may hold its channel.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import warnings
from contextlib import suppress
from multiprocessing import forkserver
from typing import Any, NoReturn

from fuzz.worker.activity import CHANNEL_LOST, Activity
from fuzz.worker.child.output_relay import OutputRelay
from fuzz.worker.child.serve import serve
from fuzz.worker.child.target_server import restore_imports
from fuzz.worker.system import adopt_orphans, children, end_children, ignore_interrupts, signal_at_parents_end

REAP_MILLISECONDS = 1000
"""How often processes are collected that have ended and that nobody waits for."""


def supervise(channel: socket.socket, activity: Activity, handler: str, config: Any, destination: int) -> NoReturn:
    """The program of a supervisor's process. `handler` is ``module:function``, which makes the handler from `config`.

    What the worker prints goes to the file `destination`.

    It ends with its worker, and ends the worker where the run closes its end of the channel or has ended.
    """
    ignore_interrupts()
    _leave_the_server()
    restore_imports()
    adopt_orphans()
    # Where a kernel has stopped this process, it goes on at the end of the run, and ends what is below it.
    signal_at_parents_end(signal.SIGCONT)
    own, output = os.getpid(), OutputRelay(destination)
    with warnings.catch_warnings():
        # No other thread of the server holds anything that the worker needs.
        warnings.simplefilter("ignore", DeprecationWarning)
        worker = os.fork()
    if worker == 0:
        output.use()
        serve(channel, activity, handler, config, own)
    output.read_only()
    try:
        _wait_for_end(worker, channel, activity, output)
        activity.status = _end_worker(worker)
        output.drain()
    finally:
        os._exit(0)


def _leave_the_server() -> None:
    """The server lives as long as anyone holds one end of a pipe, which every worker would otherwise inherit."""
    server = getattr(forkserver, "_forkserver", None)
    alive = getattr(server, "_forkserver_alive_fd", None)
    if server is not None and alive is not None:
        os.close(alive)
        server._forkserver_alive_fd = None


def _wait_for_end(worker: int, channel: socket.socket, activity: Activity, output: OutputRelay) -> None:
    """Waits for the worker's end, or for the run to close its end of the channel; passes on what the worker prints.

    Where others were forked from the worker, for the latter alone: what is below this process then are they.
    """
    poll, end = select.poll(), os.pidfd_open(worker)
    poll.register(end, select.POLLIN)
    poll.register(channel, select.POLLRDHUP)
    while True:
        output.register(poll)
        ready = [number for number, _ in poll.poll(REAP_MILLISECONDS)]
        if channel.fileno() in ready and end not in ready:
            # The run does not ask why, where it has closed its end: else the worker has shut it down.
            activity.fault = activity.fault or CHANNEL_LOST
        if channel.fileno() in ready or (end in ready and not activity.forks):
            return
        if end in ready:
            poll.unregister(end)
        if not {end, channel.fileno()} & {*ready} and ready:
            output.forward()
        for orphan in children():
            if orphan != worker:
                with suppress(ChildProcessError):
                    os.waitpid(orphan, os.WNOHANG)


def _end_worker(worker: int) -> int:
    """Kills the worker and every other process below this one; the worker's status."""
    os.kill(worker, signal.SIGKILL)
    _, status = os.waitpid(worker, 0)
    end_children()
    return status
