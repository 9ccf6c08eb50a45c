"""Makes the backend active for a whole program, and for the processes that it spawns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import spawn
from typing import Any

from fuzz.backends.cpu.runtime.activation import active
from fuzz.backends.triton_host.patching import Patch, patched
from fuzz.backends.triton_host.pretence.operators import replaceable

real_spawn_main: Any = spawn.spawn_main
real_command_line: Any = spawn.get_command_line


@contextmanager
def own_program() -> Iterator[None]:
    """Inside, the backend is active, and in each process that multiprocessing starts anew."""
    with active(), replaceable(), patched([Patch(spawn, "get_command_line", command_line)]):
        yield


def command_line(**values: Any) -> list[Any]:
    """How multiprocessing starts a process: with the `spawn_main` of this module in place of its own."""
    *start, program, mark = real_command_line(**values)
    return [*start, program.replace(spawn.__name__, __name__), mark]


def spawn_main(**values: Any) -> None:
    """The program of such a process."""
    with own_program():
        real_spawn_main(**values)
