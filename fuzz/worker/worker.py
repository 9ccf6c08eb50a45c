"""Runs a handler in a process of its own, so that a segfault, a hang or a full memory ends a worker, never a run.

Workers are forked from a server process that has imported what they need, so that a clean one costs milliseconds.
"""

from __future__ import annotations

import itertools
import os
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import forkserver, get_context, resource_tracker
from typing import Any, Protocol

from fuzz.errors import InternalError, ReferenceFailedError, TargetError, UsageError
from fuzz.model.case import Case
from fuzz.model.outcome import Died, Outcome, describe
from fuzz.worker.activity import STARTING, Activity
from fuzz.worker.channel import (
    Channel,
    ChannelClosed,
    GarbledError,
    HandlerFailure,
    HandlerReady,
    HandlerRequest,
    HandlerResponse,
    LastResponse,
)
from fuzz.worker.child.output_relay import StandardError
from fuzz.worker.child.supervisor import supervise
from fuzz.worker.deadline import Deadline
from fuzz.worker.profile import add_seconds
from fuzz.worker.protocol import EvaluateReference, Report, report_of_outcome
from fuzz.worker.system import (
    blocked_interrupts,
    environment,
    kill_server,
    restore_server_folder,
    resume_if_stopped,
    without_main,
)
from fuzz.worker.watchdog import POLL_SECONDS, WATCHDOG
from fuzz.worker.worker_process import GARBLED, REFERENCE_FAILED, ProgramOrders, WorkerProcess, raise_own_fault
from fuzz.worker.worker_server import CONTEXT, SAFE_PATH, STARTS

SERVER_SECONDS = 300.0
"""Seconds after which the server that workers are forked from is replaced, where it has not started one by then."""
KILLED_STARTS = 3
"""Processes one after the other that may be killed as they start, by whomever, before that is the target's doing."""


@dataclass(frozen=True)
class WorkerCrash:
    """What `Worker` returns in place of a response where the process ended instead; `outcome` says how.

    `targets_code` is what of the target's own code it ran then, empty where that was the launcher or this package.
    """

    outcome: Outcome
    targets_code: str = ""


class ForkingServer(Protocol):
    """A server that workers are forked from in place of the one that is forked from the command."""

    def connect(self) -> forkserver.ForkServer | None:
        """Where it takes requests to fork; None where it does not."""

    def give_up(self) -> None:
        """Forks no worker any more."""


@dataclass
class Worker:
    """One process that answers requests in order. `handler` is ``module:function``, called once with `config`.

    The function returns the handler, request -> response. `memory` limits resident bytes; address space is unlimited.
    `timeout` limits the seconds of one request. With an `environment` the process is not forked from the server but
    started anew with those variables, for what must be set before anything is imported. With a `server` it is forked
    from that one, where it can be. A start has a limit of its own: a process that fails before it has made its handler
    raises, and is never the crash of a request. What is called after the `deadline`, or goes on then, raises OutOfTime.
    A request in which programs wait for ever in another order is answered anew without other orders; `orders` tells so
    the workers that share it.
    """

    handler: str
    config: Any
    memory: int
    timeout: float
    environment: Mapping[str, str] = field(default_factory=dict)
    deadline: Deadline = field(default_factory=Deadline)
    server: ForkingServer | None = None
    orders: ProgramOrders = field(default_factory=ProgramOrders)
    pending: dict[int, Any] = field(default_factory=dict)
    _child: WorkerProcess | None = None
    _from_server: bool = False
    _killed_starts: int = 0
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _ended: dict[str, float] = field(default_factory=dict)

    def start(self) -> None:
        """Starts the process; `submit` does so where there is none."""
        self.deadline.check()
        context: Any = get_context("spawn") if self.environment else CONTEXT
        activity = Activity()
        activity.begin(STARTING)
        activity.grid_order = self.orders.grid_only
        ours, theirs = socket.socketpair()
        try:
            supervisor = self._launch_again(context, theirs, activity)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._child = WorkerProcess(supervisor, Channel(ours), activity, may_reorder=not activity.grid_order)
        WATCHDOG.add(self._enforce_limits)

    def _launch_again(self, context: Any, channel: socket.socket, activity: Activity) -> Any:
        """Launches the supervisor; again where the server of workers was killed, which takes a moment to be seen.

        Where a kernel has deleted the folder of temporary files, and in it the server's socket, there is a new one. A
        `server` of this worker's own is asked once.
        """
        own = self.server.connect() if self.server is not None and not self.environment else None
        self._from_server = own is not None
        if self.server is not None and own is not None:
            try:
                return self._launch(context, channel, activity, own)
            except (EOFError, OSError):
                self._give_up_server()
        for pause in (0.1, 0.5, 2.0):
            try:
                return self._launch(context, channel, activity)
            except (EOFError, ConnectionError):
                time.sleep(pause)
            except (FileNotFoundError, NotADirectoryError):
                kill_server()
                time.sleep(pause)
                # Last, as kernels of other workers may delete it meanwhile.
                restore_server_folder()
        try:
            return self._launch(context, channel, activity)
        except (FileNotFoundError, NotADirectoryError):
            raise UsageError("no worker can start: kernels delete the folder of temporary files each time") from None

    def _give_up_server(self) -> None:
        assert self.server is not None
        self.server.give_up()
        self._from_server = False

    def _launch(
        self, context: Any, channel: socket.socket, activity: Activity, own: forkserver.ForkServer | None = None
    ) -> Any:
        arguments = channel, activity, self.handler, self.config, StandardError()
        process = context.Process(target=supervise, args=arguments, daemon=True)
        variables = {**SAFE_PATH, **self.environment}
        # Starting it would allow interrupts again.
        resource_tracker.ensure_running()
        with STARTS, without_main(), environment(variables), _forking_from(own), blocked_interrupts():
            process.start()
        return process

    def _enforce_limits(self) -> None:
        child = self._child
        if child is not None and self.deadline.has_passed:
            # All workers of a run end at the same moment: to give back gigabytes takes seconds, which would add up.
            child.channel.shut_down()
        elif child is not None:
            child.activity.grid_order = self.orders.grid_only
            child.kill_if_over(self.timeout, self.memory, awaited=bool(self.pending))

    def submit(self, request: Any) -> None:
        """Queues a request; `receive` fetches the responses in the order of requests."""
        self.deadline.check()
        self._send(next(self._numbers), request)

    def _send(self, number: int, request: Any) -> None:
        if self._child is None:
            self.start()
        assert self._child is not None
        self.pending[number] = request
        # The end of a process is noticed and reported where its response is fetched.
        with suppress(ChannelClosed):
            self._child.channel.send(HandlerRequest(number, request))

    def call(self, request: Any) -> Any:
        """The response to one request, or a WorkerCrash."""
        self.submit(request)
        while (answered := self.receive(POLL_SECONDS)) is None:
            continue
        return answered[1]

    def receive(self, seconds: float) -> tuple[Any, Any] | None:
        """(request, response or WorkerCrash) of the oldest pending request, None where it has not come by then.

        Raises UsageError or InternalError where the worker's own code raised it, and ReferenceFailedError where the
        target's reference does by itself.
        """
        self.deadline.check()
        child = self._child
        assert child is not None
        try:
            message = child.channel.receive(seconds)
            if message is None and child.has_ended:
                # What it sent before its end; what it forked may keep the channel open.
                message = child.channel.receive(0)
                if message is None:
                    return self._replace(child)
        except ChannelClosed:
            return self._replace(child)
        except GarbledError:
            child.kill(None, GARBLED)
            return self._replace(child)
        if isinstance(message, HandlerFailure):
            if message.of_reference and not isinstance(self.current, EvaluateReference):
                child.kill(None, REFERENCE_FAILED)
                return self._replace(child)
            self.stop()
            if message.of_reference:
                raise ReferenceFailedError(message.text)
            raise UsageError(message.text) if message.usage else InternalError(message.text)
        if isinstance(message, HandlerResponse) and message.number in self.pending:
            return self._complete(message)
        if isinstance(message, HandlerReady):
            child.ready, self._killed_starts = True, 0
        return None

    def _complete(self, response: HandlerResponse) -> tuple[Any, Any]:
        request = self.pending.pop(response.number)
        if isinstance(response.body, LastResponse):
            self.restart()
            return request, response.body.response
        return request, response.body

    def _replace(self, child: WorkerProcess) -> tuple[Any, Any] | None:
        """Starts a new process for one that ended; the request that it ended in, if any, with the crash."""
        # After the deadline its end is the run's doing.
        self.deadline.check()
        if child.waited:
            self.orders.grid_only = True
            self.restart()
            return None
        number, outcome = child.killed or (None, child.exit_outcome())
        if not child.ready and self._from_server:
            self._give_up_server()
            self.restart()
            return None
        if not child.ready and outcome == Died(signal.SIGKILL.name):
            self._killed_starts += 1
            if self._killed_starts < KILLED_STARTS:
                self.restart()
                return None
        targets_code = child.activity.targets_code
        if outcome is None or not child.ready:
            self.stop()
            raise_own_fault(outcome, targets_code)
        oldest = next(iter(self.pending), None)
        # A process may be killed just after it has sent the response.
        answered = number is not None and oldest is not None and number < oldest
        request = None if answered or oldest is None else self.pending.pop(number if number in self.pending else oldest)
        self.restart()
        return None if answered or oldest is None else (request, WorkerCrash(outcome, targets_code))

    def clone(self, timeout: float | None = None) -> Worker:
        """A worker with the same configuration, and the same timeout unless another is given, without a process."""
        limits = self.memory, self.timeout if timeout is None else timeout
        return Worker(self.handler, self.config, *limits, self.environment, self.deadline, self.server, self.orders)

    def restart(self) -> None:
        """Replaces the process by a clean one and sends it the requests that are pending."""
        again = self.pending
        self.stop()
        for number, request in again.items():
            self._send(number, request)

    def stop(self) -> None:
        """Ends the process at once and drops the requests that are pending."""
        self.pending = {}
        if self._child is None:
            return
        # A Ctrl-C may end this anywhere, and whoever catches it calls it again.
        try:
            WATCHDOG.remove(self._enforce_limits)
        finally:
            self._child.end()
        self._ended = add_seconds((self._ended, self._child.activity.profile))
        self._child = None

    @property
    def current(self) -> Any:
        """The oldest pending request; None where there is none."""
        return next(iter(self.pending.values()), None)

    @property
    def profile(self) -> dict[str, float]:
        """The seconds that its processes have spent on each activity."""
        return add_seconds((self._ended, self._child.activity.profile if self._child is not None else {}))

    @property
    def process(self) -> WorkerProcess | None:
        """What answers requests now; another one where a process was replaced, None where there is none."""
        return self._child

    @property
    def pid(self) -> int | None:
        """The process's number; None where none runs."""
        return self._child.activity.pid if self._child is not None and not self._child.has_ended else None

    @property
    def ends(self) -> tuple[Channel | WorkerProcess, ...]:
        """What to wait for: the channel, and the process's end; nothing where no process runs."""
        return (self._child.channel, self._child) if self._child is not None else ()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


def report_of_crash(crash: WorkerCrash, case: Case, worker: Worker) -> Report:
    """The report on a case in which a worker has ended. TargetError where the target's reference ends or fails any.

    A clean one is asked for that alone, as what a kernel has written astray, or has changed, may do so as well.
    """
    if crash.targets_code and isinstance(crash.outcome, Died) or crash.outcome == REFERENCE_FAILED:
        with worker.clone() as clean:
            again = clean.call(EvaluateReference(case))
        if isinstance(again, WorkerCrash) and again.targets_code and isinstance(again.outcome, Died):
            where = f"ends the process that calls it at {dict(case.last.dims)}"
            raise TargetError(f"{again.targets_code} {where}: {describe(again.outcome)}")
    return report_of_outcome(crash.outcome)


@contextmanager
def _forking_from(server: forkserver.ForkServer | None) -> Iterator[None]:
    """Inside, workers are forked from that server, None for that of all; it goes on where it was stopped, and is
    killed where it hangs."""
    start, module = time.monotonic(), vars(forkserver)
    connect = module["connect_to_new_process"]
    if server is not None:
        module["connect_to_new_process"] = server.connect_to_new_process

    def check() -> None:
        pid = getattr(server or module["_forkserver"], "_forkserver_pid", None)
        if pid is not None:
            resume_if_stopped(pid)
            if time.monotonic() - start > SERVER_SECONDS:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    WATCHDOG.add(check)
    try:
        yield
    finally:
        WATCHDOG.remove(check)
        module["connect_to_new_process"] = connect
