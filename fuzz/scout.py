"""Scout: processes that run plans shortly before their turn, so that what they need is compiled by then.

Nothing that they see is used; what they leave behind is Triton's cache of compiled kernels on disk. The plans and their
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
"""What the processes run."""
AHEAD = 64
"""Plans drawn before their turn, at most: compiling a specialisation takes as long as running tens of plans."""
QUEUED = 8
"""Plans waiting at a process, so that it goes on while the workers are busy and no plan is drawn."""
SPARE, MOST = 4, 4
"""One process for so many processors that nothing else needs, and at most so many."""


@dataclass
class Scout:
    """The processes beside the workers; none where no processor is left for one."""

    workers: tuple[Worker, ...]
    _given: int = 0
    _next: int = 0
    _ahead: deque[tuple[Case, int]] = field(default_factory=deque)

    @classmethod
    def beside(cls, workers: int, setting: Setting, memory: int, timeout: float) -> Scout:
        """A scout for a run with so many workers."""
        spare = len(os.sched_getaffinity(0)) - workers
        count = max(min(spare, 1), min(spare // SPARE, MOST), 0)
        return cls(tuple(Worker(ENTRY, setting, memory, timeout) for _ in range(count)))

    def __enter__(self) -> Scout:
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self.workers:
            worker.stop()

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
        """Gives the processes the next plans that none has run and whose turn has not come."""
        self._next = max(self._next, self._given)
        for worker in self.workers:
            while worker.pending and worker.answer(0) is not None:
                continue
        while self._next < self._given + len(self._ahead) and (free := self._free()) is not None:
            free.submit(self._ahead[self._next - self._given][0])
            self._next += 1

    def _free(self) -> Worker | None:
        waiting = [worker for worker in self.workers if len(worker.pending) < QUEUED]
        return min(waiting, key=lambda worker: len(worker.pending), default=None)
