"""Recorder: writes what a campaign knows into its store, later where the store does not answer now.

Findings are in the corpus before they come here, so that a store that is gone loses nothing. Of what replaces itself,
such as a heartbeat, only the last is kept while it waits.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from fuzz.campaign.store import Store
from fuzz.errors import StoreError
from fuzz.worker.clock import Clock

LONGEST_WAIT = 30.0
"""Seconds between two tries, at most."""
MOST = 100_000
"""Writes that wait, at most; older ones of what is only counted are dropped then."""


@dataclass
class Recorder:
    """Writes to a store in the order given. `complain` is told when the store is lost, and when it is back."""

    store: Store
    clock: Clock
    complain: Callable[[str], None]
    waiting: dict[Hashable, Callable[[], None]] = field(default_factory=dict)
    dropped: int = 0
    _pause: float = 0.0
    _next: float = 0.0

    def put(self, key: Hashable, write: Callable[[], None]) -> None:
        """Writes as soon as it can. What waits under the same key is not written any more."""
        self.waiting.pop(key, None)
        self.waiting[key] = write
        self.flush()

    def flush(self, *, now: bool = False) -> bool:
        """Writes what waits, unless the store failed a short time ago; whether nothing waits any more."""
        if self._pause and not now and self.clock.monotonic() < self._next:
            return self._drop()
        while self.waiting:
            key = next(iter(self.waiting))
            try:
                self.waiting[key]()
            except StoreError as error:
                if not self._pause:
                    self.complain(f"{error}; going on, what is to be written waits")
                self._pause = min(max(2 * self._pause, 1.0), LONGEST_WAIT)
                self._next = self.clock.monotonic() + self._pause
                return self._drop()
            del self.waiting[key]
        if self._pause:
            self.complain(f"store {self.store.name} is back")
        self._pause = 0.0
        return True

    def _drop(self) -> bool:
        while len(self.waiting) > MOST:
            counted = next((key for key in self.waiting if isinstance(key, tuple) and key[0] == "statistic"), None)
            if counted is None:
                break
            del self.waiting[counted]
            self.dropped += 1
        return not self.waiting
