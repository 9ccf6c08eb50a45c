"""Notes what of a target's own code this process executes, for another process to read in case that ends this one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

FILE, REFERENCE = 1, 2
"""A target's file, with all that it imports, and its reference."""
Write = Callable[[int, str], None]

_prepare: Callable[[], None] | None = None
_note: tuple[int, Write | None] = (0, None)
"""The process that notes what it executes, and how; one that is forked from it notes nothing."""
_executed: tuple[int, str] = (0, "")


def prepare_with(function: Callable[[], None]) -> None:
    """Has `prepare` call a function, once."""
    global _prepare
    _prepare = function


def prepare() -> None:
    """Is called before this process executes the code of a target, or starts processes or threads for that."""
    global _prepare
    function, _prepare = _prepare, None
    if function is not None:
        function()


def note_with(write: Write) -> None:
    """Has this process call `write` with FILE or REFERENCE and a name where it begins to execute it; with 0 after."""
    global _note
    _note = os.getpid(), write


@contextmanager
def executing(which: int, name: str = "") -> Iterator[None]:
    """Notes for a block that this process executes a target's FILE or REFERENCE of that name."""
    global _executed
    process, write = _note
    if write is None or process != os.getpid():
        yield
        return
    before, _executed = _executed, (which, name)
    write(which, name)
    try:
        yield
    finally:
        _executed = before
        if process == os.getpid():
            write(*before)
