"""Calls a function in a process of its own for each number: one that ends its process or hangs costs no more."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TypeVar

Result = TypeVar("Result")
FORK = get_context("fork")


def map_in_forks(function: Callable[[int], Result], count: int, jobs: int, seconds: float) -> list[Result | None]:
    """The results for all numbers below `count`, by so many processes at once.

    None where a process ended without one or had none after so many seconds, which is printed.
    """
    results: list[Result | None] = [None] * count
    running: dict[Connection, tuple[BaseProcess, int, float]] = {}
    numbers = iter(range(count))
    while True:
        while len(running) < jobs and (number := next(numbers, None)) is not None:
            receiver, sender = FORK.Pipe(duplex=False)
            process = FORK.Process(target=_send, args=(function, number, sender))
            process.start()
            sender.close()
            running[receiver] = process, number, time.monotonic() + seconds
        if not running:
            return results
        first = min(end for _, _, end in running.values())
        ready = wait(list(running), max(first - time.monotonic(), 0.0))
        late = [one for one, (_, _, end) in running.items() if end <= time.monotonic()]
        for receiver in dict.fromkeys([*ready, *late]):
            assert isinstance(receiver, Connection)
            process, number, _ = running.pop(receiver)
            results[number] = _receive(receiver, process, number)


def _send(function: Callable[[int], Result], number: int, sender: Connection) -> None:
    sender.send(function(number))


def _receive(receiver: Connection, process: BaseProcess, number: int) -> Result | None:
    """What a process has sent; it is killed if it has sent nothing."""
    try:
        result: Result = receiver.recv() if receiver.poll() else None
    except EOFError:
        process.join()
        print(f"{number}: its process ended with status {process.exitcode}", file=sys.stderr)
        return None
    finally:
        receiver.close()
    if result is None:
        print(f"{number}: its process was killed", file=sys.stderr)
        process.kill()
    process.join()
    return result
