"""Runs plans in other processes shortly before their turn, so that the kernels they need are compiled by then.

Where kernels run on a GPU these processes only compile, without using it. There are more of them then, because
compiling takes ten times as long as all replicas of a plan; and a plan that one of them is compiling waits for it,
rather than be compiled twice.

Their results are not used: they only fill Triton's cache of compiled kernels on disk. The plans and their order are the
same with and without them.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from fuzz.model.case import Case
from fuzz.worker.deadline import Deadline
from fuzz.worker.pool import wait_for_response
from fuzz.worker.protocol import WorkerConfig
from fuzz.worker.watchdog import POLL_SECONDS
from fuzz.worker.worker import ForkingServer, Worker

WARM_UP = "fuzz.oracles.examine:make_warm_up_handler"
"""The handler that runs a plan's first case."""
COMPILE = "fuzz.oracles.examine:make_compile_handler"
"""The handler that only compiles what a case launches."""
MOST_AHEAD = 64
"""Plans drawn before their turn, at most: compiling a specialisation takes as long as running tens of plans."""
QUEUE_DEPTH = 8
"""Plans queued at a process, so that it goes on while the workers are busy and no plan is drawn."""
CPUS_PER_PROCESS, MOST_PROCESSES = 4, 4
"""One process for so many processors that nothing else needs, and at most so many."""
RESERVED_CPUS, MOST_COMPILERS = 1, 16
"""Processes that only compile take all of those processors but so many, and are at most so many."""
WAIT_SECONDS = 5.0
"""Seconds that a plan waits, at most, for the process that is compiling it."""


@dataclass
class Precompiler:
    """The processes that compile ahead of a run's workers; none where no processor is left for one.

    `wait_seconds` is how long a plan waits for the process that is compiling it.
    """

    workers: tuple[Worker, ...]
    wait_seconds: float = 0.0
    _yielded: int = 0
    _next: int = 0
    _ahead: deque[tuple[Case, int]] = field(default_factory=deque)

    @classmethod
    def for_run(
        cls,
        workers: int,
        config: WorkerConfig,
        memory: int,
        timeout: float,
        *,
        only_compiles: bool,
        deadline: Deadline | None = None,
        server: ForkingServer | None = None,
    ) -> Precompiler:
        """A precompiler for a run with so many workers. Its processes have these limits, in bytes and seconds."""
        spare = len(os.sched_getaffinity(0)) - workers
        handler = COMPILE if only_compiles else WARM_UP
        most = (
            min(spare - RESERVED_CPUS, MOST_COMPILERS)
            if only_compiles
            else min(spare // CPUS_PER_PROCESS, MOST_PROCESSES)
        )
        count = max(min(spare, 1), most, 0)
        limits = memory, timeout
        others: dict[str, Any] = {"deadline": deadline or Deadline(), "server": server}
        processes = tuple(Worker(handler, config, *limits, **others) for _ in range(count))
        if only_compiles:
            return cls(processes, WAIT_SECONDS)
        # A worker begins with the first plan: a process would only compile the same at the same time.
        return cls(processes, _next=1)

    def __enter__(self) -> Precompiler:
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self.workers:
            worker.stop()

    def compile_ahead(self, plans: Iterator[tuple[Case, int]]) -> Iterator[tuple[Case, int]]:
        """The same plans with their numbers of replicas; more and more are drawn ahead, so that the first come soon."""
        for plan in plans:
            self._ahead.append(plan)
            self.submit_plans()
            if len(self._ahead) > min(MOST_AHEAD, self._yielded):
                yield self._take_plan()
        while self._ahead:
            self.submit_plans()
            yield self._take_plan()

    def _take_plan(self) -> tuple[Case, int]:
        """The next plan. The first one does not wait: the worker that runs it has to start first."""
        end = time.monotonic() + self.wait_seconds * bool(self._yielded)
        plan = self._ahead[0][0]
        while time.monotonic() < end and any(worker.current is plan for worker in self.workers):
            wait_for_response([worker for worker in self.workers if worker.pending], POLL_SECONDS)
            self._discard_responses()
        self._yielded += 1
        return self._ahead.popleft()

    def _discard_responses(self) -> None:
        for worker in self.workers:
            while worker.pending and worker.receive(0) is not None:
                continue

    def submit_plans(self) -> None:
        """Sends the processes the next plans that none has compiled and whose turn has not come."""
        self._next = max(self._next, self._yielded)
        self._discard_responses()
        while self._next < self._yielded + len(self._ahead) and (worker := self._free_worker()) is not None:
            worker.submit(self._ahead[self._next - self._yielded][0])
            self._next += 1

    def _free_worker(self) -> Worker | None:
        waiting = [worker for worker in self.workers if len(worker.pending) < QUEUE_DEPTH]
        return min(waiting, key=lambda worker: len(worker.pending), default=None)
