"""ForkPool: processes that share out work which one processor is too slow for, forked before a GPU is touched.

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

MOST = 12
"""ForkPool at most."""

Ends = list["Connection[Any, Any]"]


class ForkPool:
    """Processes that compute work(request). What raises there is raised by `map`."""

    def __init__(self, work: Callable[[Any], Any], count: int) -> None:
        self.ends: Ends = []
        self.ids: list[int] = []
        for _ in range(count):
            ours, theirs = Pipe()
            with warnings.catch_warnings():
                # Other threads hold nothing that the copy needs: it computes on one thread, and never on the GPU.
                warnings.simplefilter("ignore", DeprecationWarning)
                found = os.fork()
            if found == 0:
                _serve(theirs, [ours, *self.ends], work)
            theirs.close()
            self.ends.append(ours)
            self.ids.append(found)

    def map(self, requests: Iterable[Any]) -> list[Any]:
        """work(request) of each, in their order. A request is made when a hand is free for it."""
        answers, left, busy = dict[int, tuple[bool, Any]](), enumerate(requests), dict[Any, int]()
        free: list[Any] = list(self.ends)
        while free:
            for end, (index, request) in zip(free, islice(left, len(free)), strict=False):
                end.send(request)
                busy[end] = index
            free = list[Any](wait(list(busy)) if busy else [])
            for end in free:
                answers[busy.pop(end)] = end.recv()
        return [_received(answers[index]) for index in sorted(answers)]

    def stop(self) -> None:
        """Ends them. Closing their pipes may not do: processes that were forked later hold copies of these ends."""
        for end in self.ends:
            end.close()
        for process in self.ids:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
        self.ends, self.ids = [], []


def spare() -> int:
    """How many pool there is room for, beside the process itself."""
    return min(MOST, len(os.sched_getaffinity(0)) - 1)


def _received(answer: tuple[bool, Any]) -> Any:
    good, value = answer
    if not good:
        raise value
    return value


def _serve(pipe: Connection[Any, Any], others: Ends, work: Callable[[Any], Any]) -> None:
    """A hand's process: answers until the pipe closes. It never returns."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        for end in others:
            end.close()
        while True:
            request = pipe.recv()
            try:
                answer = True, work(request)
            except Exception as error:
                answer = False, error
            pipe.send(answer)
    except (EOFError, OSError):
        pass
    finally:
        os._exit(0)
