"""Ends the processes of workers that exceed a limit, from a thread, however busy the rest of the run is."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

POLL_SECONDS = 0.05
"""Seconds between two looks at every process's clock and memory."""


class Watchdog:
    """Calls every check that it holds again and again from one thread, which lives as long as there is a check."""

    def __init__(self) -> None:
        self._checks: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, check: Callable[[], None]) -> None:
        """Calls a check from now on."""
        with self._lock:
            self._checks.append(check)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
                self._thread.start()

    def remove(self, check: Callable[[], None]) -> None:
        """Calls a check no more, if it did; it does not run any longer when this returns."""
        with self._lock, suppress(ValueError):
            self._checks.remove(check)

    def _run(self) -> None:
        while True:
            with self._lock:
                for check in self._checks:
                    check()
                if not self._checks:
                    self._thread = None
                    return
            time.sleep(POLL_SECONDS)


WATCHDOG = Watchdog()
"""The watchdog of all workers of this process."""
