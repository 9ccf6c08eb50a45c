"""Waits before a case runs again that could not run because the machine lacked memory or room."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from fuzz.worker.deadline import Deadline

PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds between the tries of one case."""
REST = 4.0
"""After a wait in vain the cases that follow are not waited for, until so many times its seconds have passed."""


@dataclass
class RetryBackoff:
    """Decides whether what could not run is tried again, and waits before; `seconds` counts the waits.

    `on_lack` is called each time with what the machine lacked.

    So what stays unavailable, such as address space beyond a limit, costs no more than a bounded share of a run's time.
    """

    seconds: float = 0.0
    on_lack: Callable[[str], None] | None = None
    _lost_until: float = 0.0

    def wait(self, lack: str, tries: int, deadline: Deadline) -> bool:
        """Whether to run again what could not run in so many tries, for this `lack`; waits before it returns true.

        Raises OutOfTime where the deadline passes meanwhile.
        """
        if self.on_lack is not None:
            self.on_lack(lack)
        now = deadline.clock.monotonic()
        if tries > len(PAUSES):
            self._lost_until = now + REST * sum(PAUSES)
        if tries > len(PAUSES) or now < self._lost_until:
            return False
        time.sleep(min(PAUSES[tries - 1], max(deadline.seconds_left, 0.0)))
        self.seconds += deadline.clock.monotonic() - now
        deadline.check()
        return True
