"""Scout: a process that runs plans shortly before their turn, so that what they need is compiled by then.

Nothing that it sees is used; what it leaves behind is Triton's cache of compiled kernels on disk. The plans and their
order are the same with it and without it.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from fuzz.case import Case
from fuzz.question import Setting
from fuzz.worker import Worker

ENTRY = "fuzz.examine:rehearsal"
"""What the process runs."""
AHEAD = 64
"""Plans drawn before their turn, at most: compiling a specialisation takes as long as running tens of plans."""
QUEUED = 8
"""Plans waiting at the process, so that it goes on while the workers are busy and no plan is drawn."""


@dataclass
class Scout:
    """One process beside the workers; none where no processor is left for it."""

    worker: Worker | None
    _given: int = 0
    _next: int = 0
    _ahead: deque[tuple[Case, int]] = field(default_factory=deque)

    @classmethod
    def beside(cls, workers: int, setting: Setting, memory: int, timeout: float) -> Scout:
        """A scout for a run with so many workers."""
        spare = len(os.sched_getaffinity(0)) > workers
        return cls(Worker(ENTRY, setting, memory, timeout) if spare else None)

    def __enter__(self) -> Scout:
        return self

    def __exit__(self, *error: object) -> None:
        if self.worker is not None:
            self.worker.stop()

    def before(self, plans: Iterator[tuple[Case, int]]) -> Iterator[tuple[Case, int]]:
        """The same plans with their numbers of replicas; more and more are drawn ahead, so that the first come soon."""
        for plan in plans:
            self._ahead.append(plan)
            self._send()
            if len(self._ahead) > min(AHEAD, self._given):
                self._given += 1
                yield self._ahead.popleft()
        while self._ahead:
            self._send()
            self._given += 1
            yield self._ahead.popleft()

    def _send(self) -> None:
        """Gives the process the next plan that it has not run and whose turn has not come."""
        if self.worker is None:
            return
        while self.worker.pending and self.worker.answer(0) is not None:
            continue
        self._next = max(self._next, self._given)
        while len(self.worker.pending) < QUEUED and self._next < self._given + len(self._ahead):
            self.worker.submit(self._ahead[self._next - self._given][0])
            self._next += 1
