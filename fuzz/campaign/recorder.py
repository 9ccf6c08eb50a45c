"""Writes what a campaign knows into its store, later where the store does not answer now.

Findings are in the corpus before they come here, so that a store that is gone loses nothing. Of writes that replace
each other, such as heartbeats, only the last is kept while it waits. A write that the store refuses for its content is
left out with a warning, so that no other waits behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial

from fuzz.campaign.store import Campaign, Coverage, Heartbeat, Job, Statistic, Store
from fuzz.clock import Clock
from fuzz.errors import RefusedWrite, StoreError

LONGEST_PAUSE = 30.0
"""Seconds between two tries, at most."""
LONGEST_QUEUE = 100_000
"""Writes that wait, at most; beyond that the oldest statistics are dropped."""


@dataclass
class Recorder:
    """Writes to a store in the order of the calls; `pause` is the time between two tries, in seconds.

    `say` gets a line when the store is lost, and when it is back.
    """

    store: Store
    clock: Clock
    say: Callable[[str], None]
    waiting: dict[Hashable, Callable[[], None]] = field(default_factory=dict)
    refused: set[Hashable] = field(default_factory=set)
    pause: float = 0.0
    _next: float = 0.0

    def save(self, record: Campaign | Job | Heartbeat | Statistic | Coverage) -> None:
        """Writes a record as soon as it can, in the place of one with the same key that waits."""
        self.put((type(record).__name__.lower(), *record.identity), partial(self.store.save, record))

    def put(self, key: Hashable, write: Callable[[], None]) -> None:
        """Writes as soon as it can. What waits under the same key is not written any more."""
        self.waiting.pop(key, None)
        self.waiting[key] = write
        self.flush()

    def flush(self, *, now: bool = False) -> bool:
        """Writes what waits, unless the store failed a short time ago; whether nothing waits any more."""
        if self.pause and not now and self.clock.monotonic() < self._next:
            return self._drop()
        while self.waiting:
            key = next(iter(self.waiting))
            try:
                self.waiting[key]()
            except RefusedWrite as error:
                if key not in self.refused:
                    self.say(f"{error}; what cannot be stored is left out: {key}")
                self.refused.add(key)
            except StoreError as error:
                if not self.pause:
                    self.say(f"{error}; going on, what is to be written waits")
                self.pause = min(max(2 * self.pause, 1.0), LONGEST_PAUSE)
                self._next = self.clock.monotonic() + self.pause
                return self._drop()
            del self.waiting[key]
        if self.pause:
            self.say(f"store {self.store.name} is back")
        self.pause = 0.0
        return True

    def _drop(self) -> bool:
        while len(self.waiting) > LONGEST_QUEUE:
            oldest = next((key for key in self.waiting if isinstance(key, tuple) and key[0] == "statistic"), None)
            if oldest is None:
                break
            del self.waiting[oldest]
        return not self.waiting
