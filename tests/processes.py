"""What becomes of processes and threads."""

from __future__ import annotations

import threading
import time
from pathlib import Path


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


def join_threads() -> None:
    """Waits for all threads that a command would wait for at its end: those that notify, for example."""
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join()
