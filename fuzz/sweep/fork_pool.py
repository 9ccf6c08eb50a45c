"""Shares out work among forked copies of the process, before it touches a GPU.

A worker is a daemon, to which multiprocessing gives no processes of its own. These are its copies: they hold what it
holds, so that nothing is loaded again, and end with it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import warnings
from collections.abc import Callable, Iterable
from itertools import islice
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

from fuzz.worker.serve import PR_SET_PDEATHSIG

MAX_PROCESSES = 12

Pipes = list["Connection[Any, Any]"]


class ForkPool:
    """Processes that compute function(request). What raises there is raised by `map`."""

    def __init__(self, function: Callable[[Any], Any], count: int) -> None:
        self.pipes: Pipes = []
        self.ids: list[int] = []
        for _ in range(count):
            ours, theirs = Pipe()
            with warnings.catch_warnings():
                # Other threads hold nothing that the copy needs: it computes on one thread, and never on the GPU.
                warnings.simplefilter("ignore", DeprecationWarning)
                process = os.fork()
            if process == 0:
                _serve(theirs, [ours, *self.pipes], function)
            theirs.close()
            self.pipes.append(ours)
            self.ids.append(process)

    def map(self, requests: Iterable[Any]) -> list[Any]:
        """function(request) of each, in their order. A request is made when a process is free for it."""
        answers, left, busy = dict[int, tuple[bool, Any]](), enumerate(requests), dict[Any, int]()
        free: list[Any] = list(self.pipes)
        while free:
            for pipe, (index, request) in zip(free, islice(left, len(free)), strict=False):
                pipe.send(request)
                busy[pipe] = index
            free = list[Any](wait(list(busy)) if busy else [])
            for pipe in free:
                answers[busy.pop(pipe)] = pipe.recv()
        return [_result(answers[index]) for index in sorted(answers)]

    def stop(self) -> None:
        """Kills them. Closing their pipes may not do: processes that were forked later hold copies of these."""
        for pipe in self.pipes:
            pipe.close()
        for process in self.ids:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
        self.pipes, self.ids = [], []


def spare_processes() -> int:
    """How many processes there is room for, beside this one."""
    return min(MAX_PROCESSES, len(os.sched_getaffinity(0)) - 1)


def _result(answer: tuple[bool, Any]) -> Any:
    ok, value = answer
    if not ok:
        raise value
    return value


def _serve(pipe: Connection[Any, Any], others: Pipes, function: Callable[[Any], Any]) -> None:
    """A forked process: answers until the pipe closes. It never returns."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        for other in others:
            other.close()
        while True:
            request = pipe.recv()
            try:
                answer = True, function(request)
            except Exception as error:
                answer = False, error
            pipe.send(answer)
    except (EOFError, OSError):
        pass
    finally:
        os._exit(0)
