"""Clock: what a campaign takes for the time. What is counted comes from `ticks`; `wall` is only shown to people."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Clock:
    """This machine's clocks, in seconds. Another one stands in for them where a test makes them jump."""

    def wall(self) -> float:
        """Seconds since 1970 by a clock that anyone may set, backwards too."""
        return time.time()

    def ticks(self) -> float:
        """Seconds by a clock that never jumps: the same one for all processes from a machine's start to its end."""
        return time.monotonic()


def boot() -> str:
    """What tells one start of one machine from every other; empty where nothing does."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
