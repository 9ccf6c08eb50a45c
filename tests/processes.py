"""What becomes of processes."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HANDLED = "import os, signal, sys; signal.signal(signal.SIGINT, signal.{}); os.execv(sys.argv[1], sys.argv[1:])"


def heeding_ctrl_c(*command: str) -> list[str]:
    """A command that heeds SIGINT, also where these tests were started in the background of a shell."""
    return [sys.executable, "-c", HANDLED.format("SIG_DFL"), *command]


def in_background(*command: str) -> list[str]:
    """A command that ignores SIGINT, as a shell has what it starts in the background do, and all that this starts."""
    return [sys.executable, "-c", HANDLED.format("SIG_IGN"), *command]


def has_ended(pid: int, seconds: float = 60.0) -> bool:
    """Whether a process ends within a time; one that waits to be collected has ended."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """Files have no room for more bytes, as on a full disk: a write takes a part, and the next one fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
