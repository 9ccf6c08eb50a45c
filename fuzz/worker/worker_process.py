"""Watches the process of a worker from the run: ends it where it exceeds a limit, and says how it ended."""

from __future__ import annotations

import os
import select
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

from fuzz.errors import InternalError, TargetError, WorkerStartError
from fuzz.model.outcome import Died, Hung, NotRun, Outcome, OutOfMemory, describe
from fuzz.worker.activity import CHANNEL_LOST, INTERPRETER_CHANGED, LIMITS_LOWERED, OWN_FAULT, STARTING, Activity
from fuzz.worker.channel import Channel
from fuzz.worker.system import describe_exit, oom_kills, resident, resume_if_stopped, total_memory

START_SECONDS = 120.0
"""Seconds that a worker may take to import everything and load its target."""
STALL_SECONDS = 60.0
"""Seconds in which a worker that is at no request must begin with the next one, or send what it has begun to send."""
END_SECONDS = 5.0
"""Seconds that a supervisor may take to end its worker, before it is killed itself."""
REORDERED_SECONDS = 5.0
"""Seconds that programs may take in another order, beside REORDERED_FACTOR times what the request has taken before."""
REORDERED_FACTOR = 4
GARBLED = Died("bytes that its kernel wrote into its channel")
"""The outcome of a worker whose channel holds something else than its messages."""
REFERENCE_FAILED = Died("an error of the reference, which does not fail in a clean process")
"""The outcome of a worker whose kernel changed what the reference needs."""
CHANNEL_FAULTS = {
    CHANNEL_LOST: "a channel that its kernel closed or read from",
    LIMITS_LOWERED: "limits of resources that its kernel lowered",
    INTERPRETER_CHANGED: "changes that its kernel made to the interpreter",
}
"""What a worker died of that ended by itself because of what a kernel had done to its process."""


@dataclass
class ProgramOrders:
    """What the workers of a run know of the orders in which a kernel's programs may run.

    `grid_only`: a rerun in another order did not return. CUDA promises no order, but every GPU starts programs in that
    of the grid, and kernels rely on it that wait for an earlier program (a scan by decoupled look-back). That is no
    finding, and no other order is tried any more.
    """

    grid_only: bool = False


@dataclass
class WorkerProcess:
    """A worker's process and its supervisor, which is the one that was started.

    `killed` is the request in which the worker exceeded a limit, None where that is the oldest one, and the outcome.
    `may_reorder` says that it was started to try other orders of programs, `waited` that one of these did not return.
    """

    supervisor: Any
    channel: Channel
    activity: Activity
    may_reorder: bool = True
    ready: bool = False
    waited: bool = False
    killed: tuple[int | None, Outcome] | None = None
    _end: int = -1
    _most_resident: int = 0
    _idle_since: float | None = None
    _killed_since: float = 0.0
    _oom_kills: int = field(default_factory=oom_kills)

    def __post_init__(self) -> None:
        # The supervisor has ended already where it could not start the worker.
        with suppress(ProcessLookupError):
            self._end = os.pidfd_open(self.supervisor.pid)

    def fileno(self) -> int:
        """A descriptor that is readable where the supervisor has ended, and with it the worker."""
        return self._end

    @property
    def has_ended(self) -> bool:
        """Whether it has ended; or was killed, and the system does not let it end."""
        return self._wait(0) or (self.killed is not None and time.monotonic() - self._killed_since > END_SECONDS)

    def _wait(self, seconds: float) -> bool:
        if self._end < 0:
            return True
        poll = select.poll()
        poll.register(self._end, select.POLLIN)
        return bool(poll.poll(1000 * seconds))

    def kill_if_over(self, timeout: float, memory: int, *, awaited: bool) -> None:
        """Ends it where its request exceeds `timeout` seconds, or the process `memory` resident bytes.

        Also where a message is `awaited` from it, and it neither works nor sends one. Programs in another order have a
        limit of their own.
        """
        # A kernel may have stopped the parent of its process.
        resume_if_stopped(self.supervisor.pid)
        if self.killed:
            return
        number = self.activity.number
        limit = START_SECONDS if number == STARTING else timeout
        size = resident(self.activity.pid)
        self._most_resident = max(self._most_resident, size)
        reordered, before = self.activity.seconds_reordered
        if reordered > min(limit, REORDERED_SECONDS + REORDERED_FACTOR * before):
            self.waited = self.may_reorder
            self.kill(number, Hung(limit))
        elif reordered < 0 and not self.activity.seconds <= limit:
            self.kill(number, Hung(limit))
        elif size > memory:
            self.kill(number, OutOfMemory(f"over {memory >> 20} MiB resident"))
        elif self._is_stalled(awaited):
            self.kill(None, Hung(STALL_SECONDS))

    def _is_stalled(self, awaited: bool) -> bool:
        """Whether it has been at no request for long, sent nothing, and a message is awaited from it."""
        now = time.monotonic()
        if not awaited or self.activity.seconds >= 0 or self.channel.unread:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        return self._idle_since is not None and now - self._idle_since > STALL_SECONDS

    def kill(self, number: int | None, outcome: Outcome) -> None:
        """Has the supervisor end the worker, for what it did in the request of that number."""
        self.killed, self._killed_since = (number, outcome), time.monotonic()
        self.channel.shut_down()

    def exit_outcome(self) -> Outcome | None:
        """How it ended by itself; None where its own code failed."""
        self._wait(END_SECONDS)
        if self.activity.fault == OWN_FAULT:
            return None
        if self.activity.fault in CHANNEL_FAULTS:
            return Died(CHANNEL_FAULTS[self.activity.fault])
        if self.activity.status is None:
            return Died(signal.SIGKILL.name)
        code = os.waitstatus_to_exitcode(self.activity.status)
        if code == -signal.SIGKILL and oom_kills() > self._oom_kills:
            return self._oom_outcome()
        return Died(describe_exit(code))

    def _oom_outcome(self) -> Outcome:
        """Of a process that the system killed for want of memory: it is its fault where it held most of it."""
        held, total = self._most_resident, total_memory()
        if 2 * held > total:
            return OutOfMemory(f"the system ended it at {held >> 20} of {total >> 20} MiB")
        return NotRun(f"no memory is left here: of {total >> 20} MiB it held {held >> 20} when the system ended it")

    def end(self) -> None:
        """Ends it at once, with everything that it started."""
        self.channel.shut_down()
        resume_if_stopped(self.supervisor.pid)
        if not self._wait(END_SECONDS):
            self.supervisor.kill()
            self._wait(END_SECONDS)
        if self.activity.status is None and self.activity.pid:
            # A supervisor that was killed has left what the worker's own session holds.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.activity.pid, signal.SIGKILL)
        self.supervisor.join(0)
        self.channel.close()
        if self._end >= 0:
            os.close(self._end)
            self._end = -1


def raise_own_fault(outcome: Outcome | None, targets_code: str) -> NoReturn:
    """Raises the error of a worker that ended in its own code, or in its target's before its first request.

    Where that takes longer than it may, or more memory, the machine or the limit is at fault.
    """
    if outcome is None:
        raise InternalError("a worker's own code failed; its traceback is on standard error")
    if isinstance(outcome, NotRun):
        raise WorkerStartError(f"a worker could not start: {describe(outcome)}")
    if targets_code:
        raise TargetError(f"{targets_code} ended a worker before its first case: {describe(outcome)}")
    if isinstance(outcome, Hung):
        limit = f"{outcome.seconds:g} s"
        raise WorkerStartError(f"no worker was ready within {limit}: this machine is too busy to start one")
    if isinstance(outcome, OutOfMemory):
        raise WorkerStartError(f"a worker could not start within its memory: {describe(outcome)}")
    raise InternalError(f"a worker ended before its first request: {describe(outcome)}")
