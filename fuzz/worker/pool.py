"""Has several workers answer at the same time; responses come in the order of the requests."""

from __future__ import annotations

import math
import select
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fuzz.worker.deadline import Deadline
from fuzz.worker.profile import add_seconds
from fuzz.worker.protocol import ReplicaGroup, Report
from fuzz.worker.retry_backoff import RetryBackoff
from fuzz.worker.watchdog import POLL_SECONDS
from fuzz.worker.worker import ForkingServer, Worker, WorkerCrash, report_of_crash
from fuzz.worker.worker_process import ProgramOrders

QUEUE_DEPTH = 4
"""Groups queued at each worker, so that it never waits for the next."""
ALONE_SECONDS = 3.0
"""Seconds for which the first worker is alone, at most: it may be compiling, or hang."""
MOST_AHEAD = 1024
"""Groups that may be sent beyond the one whose reports are awaited: what is learnt from it is needed then."""


@dataclass
class Pool:
    """Examines a stream of replica groups; reports come in the order of the groups.

    Its workers, of one handler and configuration, are started when the first groups come, all but one after the first
    reports, or a few seconds: beside it they would compile the same. A group of which a replica could not run is
    examined again, as `backoff` says. `reporter` is the identity of the worker that has sent what was reported last.
    """

    handler: str
    config: Any
    memory: int
    timeout: float
    count: int
    deadline: Deadline = field(default_factory=Deadline)
    server: ForkingServer | None = None
    orders: ProgramOrders = field(default_factory=ProgramOrders)
    workers: list[Worker] = field(default_factory=list)
    backoff: RetryBackoff = field(default_factory=RetryBackoff)
    reporter: int = 0
    _alone_until: float = math.inf
    _sent: dict[int, list[int]] = field(default_factory=dict)
    _tries: Counter[int] = field(default_factory=Counter)
    _reported: dict[int, tuple[int, ReplicaGroup, tuple[Report, ...]]] = field(default_factory=dict)

    def __enter__(self) -> Pool:
        self.workers = [self._worker() for _ in range(self.count)]
        self._sent = {id(worker): [] for worker in self.workers}
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self.workers:
            worker.stop()

    def start(self) -> None:
        """Starts the workers before the first group has come."""
        self._alone_until = 0.0
        for worker in self.workers:
            if worker.process is None:
                worker.start()

    def _worker(self) -> Worker:
        limits = self.memory, self.timeout
        return Worker(
            self.handler, self.config, *limits, deadline=self.deadline, server=self.server, orders=self.orders
        )

    def examine(self, groups: Iterator[ReplicaGroup | None]) -> Iterator[tuple[ReplicaGroup, tuple[Report, ...]]]:
        """(group, its reports) for each group, in their order; new groups are drawn as workers get free.

        None says that there is no group at the moment. Raises OutOfTime after the deadline.
        """
        self._tries.clear()  # The numbers of an earlier stream's groups are given again.
        sent = upcoming = 0
        more = True
        while True:
            self.deadline.check()
            while more and sent - upcoming < MOST_AHEAD and (worker := self._free_worker()) is not None:
                try:
                    group = next(groups)
                except StopIteration:
                    more = False
                    break
                if group is None:
                    break
                self._sent[id(worker)].append(sent)
                worker.submit(group)
                sent += 1
                if self._alone_until == math.inf:
                    self._alone_until = time.monotonic() + ALONE_SECONDS
            if upcoming in self._reported:
                self.reporter, examined, reports = self._reported.pop(upcoming)
                yield examined, reports
                upcoming += 1
            elif any(worker.pending for worker in self.workers):
                self._collect()
            elif not more:
                return

    @property
    def running(self) -> list[ReplicaGroup]:
        """The groups that workers are at."""
        return [worker.current for worker in self.workers if isinstance(worker.current, ReplicaGroup)]

    @property
    def profile(self) -> dict[str, float]:
        """The seconds that the workers have spent on each activity."""
        return add_seconds(worker.profile for worker in self.workers)

    def _free_worker(self) -> Worker | None:
        usable = self.workers[:1] if time.monotonic() < self._alone_until else self.workers
        least = min(usable, key=lambda worker: len(worker.pending))
        return least if len(least.pending) < QUEUE_DEPTH else None

    def _collect(self) -> None:
        """Waits a moment for a response, and takes it."""
        worker = wait_for_response([worker for worker in self.workers if worker.pending], POLL_SECONDS)
        answered = worker.receive(0) if worker is not None else None
        if worker is not None and answered is not None:
            group, response = answered
            reports = self._rerun_alone(group, response) if isinstance(response, WorkerCrash) else response
            number = self._sent[id(worker)].pop(0)
            lacks = [report.lack for report in reports if report.not_run]
            if lacks and self._tries_again(number, lacks[-1]):
                self._sent[id(worker)].append(number)
                worker.submit(group)
            else:
                self._reported[number] = (id(worker), group, reports)
                self._alone_until = 0.0

    def _tries_again(self, number: int, lack: str) -> bool:
        self._tries[number] += 1
        return self.backoff.wait(lack, self._tries[number], self.deadline)

    def _rerun_alone(self, group: ReplicaGroup, crash: WorkerCrash) -> tuple[Report, ...]:
        """The reports of a group whose worker crashed: its replicas run one by one, up to the one that crashes, or that
        could not run."""
        requests = group.requests()
        if len(requests) == 1:
            with self._worker() as worker:
                return (report_of_crash(crash, requests[0].case, worker),)
        reports: list[Report] = []
        with self._worker() as worker:
            for request in requests:
                response = worker.call(request)
                if isinstance(response, WorkerCrash):
                    return (*reports, report_of_crash(response, request.case, worker))
                reports.append(response)
                if response.not_run:
                    break
        return tuple(reports)


def always() -> bool:
    return True


@dataclass
class WorkerTeam:
    """Workers of one configuration, each started with the first request that it gets; there may be none.

    They count only while `is_usable`. A call may begin while another one goes on. What a caller does not wait for any
    more is dropped when it has come: its worker is busy until then.
    """

    workers: tuple[Worker, ...] = ()
    is_usable: Callable[[], bool] = always
    _awaited: dict[int, tuple[dict[int, Any], int]] = field(default_factory=dict)
    """By worker, the responses of the call whose request it is at, and that request's number there."""

    @property
    def size(self) -> int:
        """How many workers may be asked."""
        return len(self.workers) if self.is_usable() else 0

    def call(self, requests: Sequence[Any], timeout: float) -> Iterator[Any]:
        """The response to each request, or a WorkerCrash, in their order; `timeout` limits the seconds of each.

        Raises OutOfTime after the deadline.
        """
        assert self.workers or not requests
        waiting, responses = deque(enumerate(requests)), dict[int, Any]()
        for number in range(len(requests)):
            while number not in responses:
                for worker in self.workers:
                    if waiting and not worker.pending:
                        index, request = waiting.popleft()
                        self._awaited[id(worker)] = responses, index
                        worker.timeout = timeout
                        worker.submit(request)
                self._collect()
            yield responses.pop(number)

    def _collect(self) -> None:
        """Waits a moment for a response, and gives it to the call that has asked for it."""
        busy = [worker for worker in self.workers if worker.pending]
        ready = wait_for_response(busy, POLL_SECONDS)
        # Where none is ready each is asked: it looks at its deadline, and at a process that does not end.
        for worker in [ready] if ready is not None else busy:
            if (answered := worker.receive(0)) is not None:
                responses, number = self._awaited.pop(id(worker))
                responses[number] = answered[1]

    def stop(self) -> None:
        """Ends their processes, and drops what they were at."""
        for worker in self.workers:
            worker.stop()


def wait_for_response(workers: list[Worker], seconds: float) -> Worker | None:
    """A worker that has sent a response or has ended; None where none does so within so many seconds."""
    owners = {end.fileno(): worker for worker in workers for end in worker.ends if end.fileno() >= 0}
    poll = select.poll()
    for number in owners:
        poll.register(number, select.POLLIN)
    ready = poll.poll(1000 * seconds)
    return owners[ready[0][0]] if ready else None
