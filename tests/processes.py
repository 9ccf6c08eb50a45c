"""What becomes of processes."""

from __future__ import annotations

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
