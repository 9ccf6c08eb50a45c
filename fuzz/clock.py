"""Reads this machine's clocks: one that never jumps for durations, one that shows the time of day to people."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Clock:
    """This machine's clocks, in seconds. Tests replace it by one that they can make jump."""

    def wall(self) -> float:
        """Seconds since 1970 by a clock that anyone may set, backwards too."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds by a clock that never jumps: the same one for all processes from a machine's start to its end."""
        return time.monotonic()


def boot_id() -> str:
    """An identifier of the machine's present boot; empty where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
