"""Counts the wrong tokens of each client, so that no token is found by trying."""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass, field

MAX_WRONG, WINDOW = 30, 60.0
"""Wrong tokens of one client within so many seconds, at most."""
MAX_CLIENTS = 4096
"""Clients that are counted; the one whose count began first is forgotten first."""


@dataclass
class WrongTokens:
    """Wrong tokens by the client's address. Until its seconds have passed, not even the right one is looked at."""

    counts: OrderedDict[str, tuple[float, int]] = field(default_factory=OrderedDict)
    """Address -> (when its first wrong token came, how many have come since)."""

    def add(self, address: str) -> None:
        began, count = self._count(address)
        self.counts[address] = began, count + 1
        while len(self.counts) > MAX_CLIENTS:
            self.counts.popitem(last=False)

    def seconds_left(self, address: str) -> float:
        """Seconds for which no token of this client is looked at; 0 where the next one is."""
        began, count = self._count(address)
        return max(began + WINDOW - time.monotonic(), 0.0) if count >= MAX_WRONG else 0.0

    def _count(self, address: str) -> tuple[float, int]:
        now = time.monotonic()
        began, count = self.counts.get(address, (now, 0))
        if now - began < WINDOW:
            return began, count
        self.counts.pop(address, None)
        return now, 0
