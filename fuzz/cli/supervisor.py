"""Lets a command go on in a fork of its process, which only waits for it then and says what has ended it.

The command itself executes the file of a target, which may do what every program can: leave, crash, fill the memory, or
never come to an end. Then its supervisor says so in one line. No process that the command leaves behind outlives it.
What the file prints goes through the supervisor, which escapes what a terminal would obey.
"""

from __future__ import annotations

import ctypes
import gc
import math
import mmap
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from fuzz import target_code
from fuzz.errors import USAGE
from fuzz.worker.child.output_relay import STANDARD_ERROR, OutputRelay
from fuzz.worker.system import adopt_orphans, describe_exit, end_children, resident, signal_at_parents_end, total_memory

FILE_SECONDS = 120.0
"""Seconds that the file of a target may take, as in a worker."""
END_SECONDS = 10.0
"""Seconds that a command may take to end after it has its code; threads and exit functions of targets run then."""
POLL_SECONDS = 0.1
"""Seconds between two looks at the limits of a file that is executed."""
FORWARDED = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
"""Signals that others send to the command by the number of this process."""
STANDARD = 1, STANDARD_ERROR
"""The streams that a command writes."""
NO_CODE = -1
NAME_BYTES = mmap.PAGESIZE - 3 * 8
NAMES = {target_code.FILE: "the file", target_code.REFERENCE: "the reference of"}


class Fields(ctypes.Structure):
    """The exit code, what of a target is executed, since when and of which name; each number is written at once."""

    code: int
    which: int
    since: float
    name: bytes
    _fields_ = (
        ("code", ctypes.c_int64),
        ("which", ctypes.c_int64),
        ("since", ctypes.c_double),
        ("name", ctypes.c_char * NAME_BYTES),
    )


class Note:
    """What a command tells its supervisor, by memory that both share."""

    def __init__(self) -> None:
        self._fields = Fields.from_buffer(mmap.mmap(-1, mmap.PAGESIZE))
        self._fields.code = NO_CODE

    def write(self, which: int, name: str) -> None:
        """Notes what of a target the command executes from now on; 0 for nothing."""
        # Whoever reads meanwhile must find no target with the time of another.
        self._fields.which = 0
        self._fields.since = time.monotonic()
        self._fields.name = name.encode("utf-8", "surrogateescape")[: NAME_BYTES - 1]
        self._fields.which = which

    def end(self, code: int) -> None:
        """Notes the exit code of the command, whatever else happens to it."""
        self._fields.code = code

    def read(self) -> tuple[int, int, float, str]:
        """The fields, as the other process has written them last."""
        fields = self._fields
        return fields.code, fields.which, fields.since, fields.name.decode("utf-8", "surrogateescape")


NOTE: Note | None = None
"""What this process shares with its supervisor, where it has one."""


def note_end(code: int) -> None:
    """Notes the exit code of this command."""
    if NOTE is not None:
        NOTE.end(code)


def first_process() -> int:
    """The process that this command was started in: its supervisor, where it has one."""
    return os.getpid() if NOTE is None else os.getppid()


def supervise(complain: Callable[[str], None]) -> None:
    """Goes on in a fork of this process, as whose supervisor this one exits; `complain` gets a line where it is ended.

    No thread may run yet: it would not go on.
    """
    global NOTE
    note, this = Note(), os.getpid()
    output = OutputRelay(os.dup(STANDARD_ERROR))
    # To look for garbage would copy what both processes share.
    gc.freeze()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED | {signal.SIGCHLD})
    process = os.fork()
    if process == 0:
        signal_at_parents_end(signal.SIGKILL)
        if os.getppid() != this:
            os._exit(USAGE)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        NOTE = note
        target_code.note_with(Diversion(note, output).write)
        return
    adopt_orphans()
    output.read_only()
    killed, status = _wait(process, note, output)
    output.drain()
    code, which, _, name = note.read()
    end_children()
    if code == NO_CODE:
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        code = _explain(killed or _ending(status), which, name, number, complain)
    os._exit(code)


class Diversion:
    """Has a command print into a relay while it executes a target's code, whatever of that prints."""

    def __init__(self, note: Note, output: OutputRelay) -> None:
        self._note, self._output = note, output
        self._kept = [os.dup(number) for number in STANDARD]
        self._streams = sys.stdout, sys.stderr

    def write(self, which: int, name: str) -> None:
        """Notes what of a target the command executes from now on, and where it prints."""
        self._flush()
        if which:
            self._streams = sys.stdout, sys.stderr
            self._output.use(*STANDARD)
        else:
            for number, kept in zip(STANDARD, self._kept, strict=True):
                os.dup2(kept, number)
            sys.stdout, sys.stderr = self._streams
        self._note.write(which, name)

    def _flush(self) -> None:
        for stream in (*self._streams, sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()


def _wait(process: int, note: Note, output: OutputRelay) -> tuple[str, int]:
    """Waits for the end of a command, and ends it where a file exceeds a limit: (that limit if any, its status)."""
    killed, limit, ending_since = "", max(total_memory() // 2, 1 << 30), math.inf
    while True:
        received: Any = signal.sigtimedwait(FORWARDED | {signal.SIGCHLD}, 0 if output.forward() else POLL_SECONDS)
        # What the terminal sends goes to the command as well.
        if received is not None and received.si_signo in FORWARDED and received.si_code <= 0:
            os.kill(process, received.si_signo)
        while (ended := _collect()) is not None:
            if ended[0] == process:
                return killed, ended[1]
        code, which, since, _ = note.read()
        ending_since = min(ending_since, time.monotonic()) if code != NO_CODE else math.inf
        if time.monotonic() - ending_since > END_SECONDS:
            os.kill(process, signal.SIGKILL)
        if code == NO_CODE and which == target_code.FILE and not killed:
            if time.monotonic() - since > FILE_SECONDS:
                killed = f"it takes more than {FILE_SECONDS:.0f} s"
            elif resident(process) > limit:
                killed = f"it holds more than {limit >> 20} MiB of memory"
            if killed:
                os.kill(process, signal.SIGKILL)


def _collect() -> tuple[int, int] | None:
    """The number and the status of a process that has ended, if any has."""
    with suppress(ChildProcessError):
        number, status = os.waitpid(-1, os.WNOHANG)
        return (number, status) if number else None
    return None


def _ending(status: int) -> str:
    return describe_exit(os.waitstatus_to_exitcode(status))


def _explain(how: str, which: int, name: str, number: int, complain: Callable[[str], None]) -> int:
    """Says what ended a command that has no exit code of its own, and which code this is; ends as others ended it."""
    if which:
        complain(f"{NAMES[which]} {name} ended the command that executed it: {how}")
    elif number in {*FORWARDED, signal.SIGKILL}:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    else:
        complain(f"what the command executed has ended it: {how}")
    return USAGE
