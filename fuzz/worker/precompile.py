"""Scout: processes that run plans shortly before their turn, so that what they need is compiled by then.

Where kernels run on a GPU they only compile, without it: there are more of them, because compiling takes ten times as
long as all replicas of a plan, and a plan at which one of them is waits for it, rather than be compiled twice.

Nothing that they see is used; what they leave behind is Triton's cache of compiled kernels on disk. The plans and their
order are the same with it and without it.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from fuzz.model.case import Case
from fuzz.worker.process import SLICE, Worker, any_answer
from fuzz.worker.protocol import Setting

ENTRY = "fuzz.oracles.examine:rehearsal"
"""What the processes run."""
COMPILERS = {"cuda": "fuzz.oracles.examine:compilation"}
"""The same for backends for which they only compile."""
AHEAD = 64
"""Plans drawn before their turn, at most: compiling a specialisation takes as long as running tens of plans."""
QUEUED = 8
"""Plans waiting at a process, so that it goes on while the workers are busy and no plan is drawn."""
SPARE, MOST = 4, 4
"""One process for so many processors that nothing else needs, and at most so many."""
HOST, CROWD = 1, 16
"""Where they only compile, all of those processors but so many have one, and at most so many."""
PATIENCE = 5.0
"""Seconds that a plan waits for the process that is at it, where they only compile."""


@dataclass
class Scout:
    """The processes beside the workers; none where no processor is left for one."""

    workers: tuple[Worker, ...]
    patience: float = 0.0
    _given: int = 0
    _next: int = 0
    _ahead: deque[tuple[Case, int]] = field(default_factory=deque)

    @classmethod
    def beside(cls, workers: int, setting: Setting, memory: int, timeout: float) -> Scout:
        """A scout for a run with so many workers."""
        spare = len(os.sched_getaffinity(0)) - workers
        compiles = setting.backend in COMPILERS
        entry = COMPILERS.get(setting.backend, ENTRY)
        most = min(spare - HOST, CROWD) if compiles else min(spare // SPARE, MOST)
        made = tuple(Worker(entry, setting, memory, timeout) for _ in range(max(min(spare, 1), most, 0)))
        if compiles:
            return cls(made, PATIENCE)
        # A worker begins with the first plan: a process would only compile the same at the same time.
        return cls(made, _next=1)

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
                yield self._give()
        while self._ahead:
            self._send()
            yield self._give()

    def _give(self) -> tuple[Case, int]:
        """The plan whose turn it is. The first one is given at once: the worker that takes it has to start first."""
        end = time.monotonic() + self.patience * bool(self._given)
        plan = self._ahead[0][0]
        while time.monotonic() < end and any(worker.pending and worker.pending[0] is plan for worker in self.workers):
            any_answer([worker for worker in self.workers if worker.pending], SLICE)
            self._collect()
        self._given += 1
        return self._ahead.popleft()

    def _collect(self) -> None:
        for worker in self.workers:
            while worker.pending and worker.answer(0) is not None:
                continue

    def _send(self) -> None:
        """Gives the processes the next plans that none has run and whose turn has not come."""
        self._next = max(self._next, self._given)
        self._collect()
        while self._next < self._given + len(self._ahead) and (free := self._free()) is not None:
            free.submit(self._ahead[self._next - self._given][0])
            self._next += 1

    def _free(self) -> Worker | None:
        waiting = [worker for worker in self.workers if len(worker.pending) < QUEUED]
        return min(waiting, key=lambda worker: len(worker.pending), default=None)
