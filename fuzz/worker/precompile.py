"""Runs plans in other processes shortly before their turn, so that the kernels they need are compiled by then.

Where kernels run on a GPU these processes only compile, without using it. There are more of them then, because
compiling takes ten times as long as all replicas of a plan; and a plan that one of them is compiling waits for it,
rather than be compiled twice.

They fill Triton's cache of compiled kernels on disk. The plans and their order are the same with and without them; but
where time ends a run on a GPU, which no other run repeats anyway, what is compiled does not wait for what is not.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from fuzz.model.case import Case
from fuzz.worker.deadline import Deadline
from fuzz.worker.pool import wait_for_response
from fuzz.worker.protocol import Precompile, WorkerConfig
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
IN_PROCESS = 2
"""Plans that a process has at a time where those that are compiled come first: one more than it compiles."""
READY_POLL = POLL_SECONDS / 5
"""Seconds for which these processes are waited for, while the workers of the run wait as well."""
Planned = tuple[Case, int]
"""A plan, and how many replicas of it are to run."""


@dataclass
class Precompiler:
    """The processes that compile ahead of a run's workers; none where no processor is left for one.

    `wait_seconds` is how long a plan waits for the process that is compiling it.
    """

    workers: tuple[Worker, ...]
    wait_seconds: float = 0.0
    _yielded: int = 0
    _next: int = 0
    _ahead: deque[Planned] = field(default_factory=deque)

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

    def compile_ahead(self, plans: Iterator[Planned]) -> Iterator[Planned]:
        """The same plans with their numbers of replicas; more and more are drawn ahead, so that the first come soon."""
        for plan in plans:
            self._ahead.append(plan)
            self.submit_plans()
            if len(self._ahead) > min(MOST_AHEAD, self._yielded):
                yield self._take_plan()
        while self._ahead:
            self.submit_plans()
            yield self._take_plan()

    def _take_plan(self) -> Planned:
        """The next plan. The first one does not wait: the worker that runs it has to start first."""
        end = time.monotonic() + self.wait_seconds * bool(self._yielded)
        plan = self._ahead[0][0]
        while time.monotonic() < end and any(is_at(worker, plan) for worker in self.workers):
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
        while (
            self._next < self._yielded + len(self._ahead)
            and (worker := free_worker(self.workers, QUEUE_DEPTH)) is not None
        ):
            worker.submit(Precompile(self._ahead[self._next - self._yielded][0]))
            self._next += 1


class PlanSource(Protocol):
    """Where plans come from, which learns what becomes of them."""

    def plans(self) -> Iterator[Planned]:
        """Plans for ever."""

    def is_compiled(self, plan: Case) -> bool:
        """Whether a plan needs nothing compiled."""

    def next_compiled(self) -> Planned | None:
        """A plan of that kind; None where none is due."""

    @property
    def may_leave_out(self) -> bool:
        """Whether any plan is left out."""

    def leaves_out(self, plan: Case, why: str) -> bool:
        """Whether a plan is not to run that does not compile, and why."""


@dataclass
class ReadyFirst:
    """Gives each plan when a process has compiled it, without those that `source` leaves out as they do not compile.

    For what only compiles, where a plan may take a minute and its replicas a second. `workers` are the processes, at
    least one; `on_left_out` is called for each plan that is left out.
    """

    workers: Sequence[Worker]
    source: PlanSource
    on_left_out: Callable[[], None]
    _held: deque[Planned] = field(default_factory=deque)
    """Drawn, and with no process yet."""
    _compiling: dict[int, tuple[Planned, bool]] = field(default_factory=dict)
    """By the identity of a request, which its worker keeps until it has responded: the plan, and whether it runs also
    where it does not compile."""
    _ready: deque[Planned] = field(default_factory=deque)
    _sent: int = 0
    _given: int = 0
    _idle_since: float | None = None
    _may_fail: bool = False

    def compile_ahead(self) -> Iterator[Planned | None]:
        """The plans with their numbers of replicas; None where none is compiled at the moment."""
        plans = self.source.plans()
        while True:
            self._collect()
            self._draw(plans)
            if self._ready:
                self._given += 1
                self._idle_since = None
                yield self._ready.popleft()
            else:
                self._wait()
                yield None

    def _draw(self, plans: Iterator[Planned]) -> None:
        """Draws plans for the processes, few while none has run: what is learnt of some makes the next ones better."""
        window = min(IN_PROCESS * len(self.workers) + 1 + self._given, MOST_AHEAD)
        while len(self._held) + len(self._compiling) + len(self._ready) < window:
            planned = next(plans)
            (self._ready if self.source.is_compiled(planned[0]) else self._held).append(planned)
        if not self._ready and (compiled := self.source.next_compiled()) is not None:
            self._ready.append(compiled)
        while self._held and (worker := free_worker(self.workers, IN_PROCESS)) is not None:
            self._send(worker, self._held.popleft())

    def _send(self, worker: Worker, planned: Planned, *, runs_anyway: bool = False) -> None:
        # The front end is a third of what compiles fast, and nearly all where everything is in the cache.
        may_fail = self.source.may_leave_out and (self._may_fail or self._sent < len(self.workers))
        check_first = may_fail and not runs_anyway
        request = Precompile(planned[0], check_first)
        self._compiling[id(request)] = planned, runs_anyway
        self._sent += 1
        worker.submit(request)

    def _collect(self) -> None:
        """Takes the responses that have come."""
        for worker in self.workers:
            while worker.pending and (answered := worker.receive(0)) is not None:
                request, response = answered
                # How a process has ended says nothing of the plan.
                why = response if isinstance(response, str) else ""
                self._take_response(worker, request, why)

    def _take_response(self, worker: Worker, request: Precompile, why: str) -> None:
        planned, runs_anyway = self._compiling.pop(id(request))
        self._may_fail |= bool(why)
        if why and not runs_anyway and self.source.leaves_out(planned[0], why):
            self.on_left_out()
        elif why and request.check_first:
            # What its launcher launches before is not compiled yet.
            self._send(worker, planned, runs_anyway=True)
        else:
            self._ready.append(planned)

    def _wait(self) -> None:
        """Waits a moment for a process. Where none has been ready for long what runs plans compiles one, too.

        The more processes there are the less that helps, and the sooner one of them ends.
        """
        wait_for_response([worker for worker in self.workers if worker.pending], READY_POLL)
        now = time.monotonic()
        self._idle_since = self._idle_since or now
        if self._held and now > self._idle_since + WAIT_SECONDS * len(self.workers):
            self._ready.append(self._held.popleft())


def is_at(worker: Worker, plan: Case) -> bool:
    """Whether a process is compiling a plan."""
    return worker.current is not None and worker.current.plan is plan


def free_worker(workers: Sequence[Worker], depth: int) -> Worker | None:
    """The process with the fewest plans queued, None where all have so many."""
    waiting = [worker for worker in workers if len(worker.pending) < depth]
    return min(waiting, key=lambda worker: len(worker.pending), default=None)
