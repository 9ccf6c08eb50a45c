"""Shares out work among forked copies of the process, before it touches a GPU.

They hold what it holds, so that nothing is loaded again, and end with it.
"""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import current_process, get_context
from typing import Any

from fuzz.worker.system import signal_at_parents_end

MAX_PROCESSES = 12

_function: Callable[[Any], Any]
"""What this process computes, where it is one of a pool."""


class ForkPool(ProcessPoolExecutor):
    """Processes that compute function(request). What raises there is raised by `compute`.

    They end by a message and never by a signal, since they have the signal handlers of the process that made them.
    """

    def __init__(self, function: Callable[[Any], Any], count: int) -> None:
        # A worker is a daemon, to which multiprocessing would give no processes of its own.
        vars(current_process())["_config"]["daemon"] = False
        super().__init__(count, get_context("fork"), _start, (function,))
        with warnings.catch_warnings():
            # Other threads hold nothing that the copies need: they compute on one thread, and never on the GPU.
            warnings.simplefilter("ignore", DeprecationWarning)
            # The first request forks all of them.
            self.submit(os.getpid).result()

    def compute(self, requests: Iterable[Any]) -> list[Any]:
        """function(request) of each, in their order. BrokenProcessPool where one of the processes ended."""
        return list(self.map(_compute, requests))


def spare_processes() -> int:
    """How many processes there is room for, beside this one."""
    return min(MAX_PROCESSES, len(os.sched_getaffinity(0)) - 1)


def _start(function: Callable[[Any], Any]) -> None:
    global _function
    _function = function
    signal_at_parents_end(signal.SIGKILL)


def _compute(request: Any) -> Any:
    return _function(request)
