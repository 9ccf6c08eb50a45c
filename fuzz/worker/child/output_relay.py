"""Passes on what a worker prints, in which everything that a terminal would obey is escaped."""

from __future__ import annotations

import codecs
import fcntl
import os
import select
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.reduction import DupFd
from typing import Any

from fuzz.escaping import printable_output

STANDARD_ERROR = 2
CHUNK = 1 << 20
"""Bytes that are read at once: what the worker's pipe holds, so that it seldom waits."""
PIECE = select.PIPE_BUF
"""Bytes that a pipe takes at once where it takes any, so that nothing waits for who reads them."""
DRAIN_SECONDS = 1.0
"""Seconds in which what a worker has printed last is taken from this process."""


class StandardError:
    """Where a run prints, as an argument of the process that it starts: there it is the descriptor of that file.

    The server that forks the process prints elsewhere, if it is a worker itself, which would pass all on once more.
    """

    def __reduce__(self) -> tuple[Callable[[Any], int], tuple[Any]]:
        return _detach, (DupFd(STANDARD_ERROR),)


def _detach(descriptor: Any) -> int:
    number: int = descriptor.detach()
    return number


class OutputRelay:
    """Reads what a worker prints and writes it to standard error, as fast as that is read. Never waits for either."""

    def __init__(self, destination: int) -> None:
        os.dup2(destination, STANDARD_ERROR)
        os.close(destination)
        self._source, self._end = os.pipe()
        os.set_blocking(self._source, False)
        with suppress(OSError):
            fcntl.fcntl(self._source, fcntl.F_SETPIPE_SZ, CHUNK)
        self._room = select.poll()
        self._room.register(STANDARD_ERROR, select.POLLOUT)
        encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
        # What is read at once may end within a character.
        self._decoder = codecs.getincrementaldecoder(encoding)("backslashreplace")
        self._encoder = codecs.getincrementalencoder(encoding)("backslashreplace")
        self._waiting, self._is_over = b"", False

    def use(self, *streams: int) -> None:
        """Has this process print into it, what it writes to its standard error or to those streams."""
        for number in streams or (STANDARD_ERROR,):
            os.dup2(self._end, number)

    def read_only(self) -> None:
        """Lets go of the end that the worker has."""
        os.close(self._end)

    def register(self, poll: select.poll) -> None:
        """Has a poll wait for what is to be done next."""
        reads = not (self._waiting or self._is_over)
        for number, event, is_next in (
            (self._source, select.POLLIN, reads), (STANDARD_ERROR, select.POLLOUT, bool(self._waiting)),
        ):  # fmt: skip
            if is_next:
                poll.register(number, event)
            else:
                with suppress(KeyError):
                    poll.unregister(number)

    def forward(self) -> bool:
        """Writes what standard error takes of what waits, or reads more; whether anything was done."""
        if not self._waiting:
            return self._read()
        before = len(self._waiting)
        with memoryview(self._waiting) as view:
            written = 0
            while written < before and self._room.poll(0):
                try:
                    written += os.write(STANDARD_ERROR, view[written : written + PIECE])
                except BlockingIOError:
                    break
                except OSError:
                    # Nobody reads it any more, or its disk is full.
                    written = before
        self._waiting = self._waiting[written:]
        return bool(written)

    def _read(self) -> bool:
        try:
            data = os.read(self._source, CHUNK)
        except BlockingIOError:
            return False
        self._is_over = not data
        self._waiting = self._encoder.encode(printable_output(self._decoder.decode(data, self._is_over)))
        return bool(data)

    def drain(self) -> None:
        """Passes on what is left once the worker has ended."""
        end = time.monotonic() + DRAIN_SECONDS
        while time.monotonic() < end:
            if self._waiting:
                self._room.poll(1000 * DRAIN_SECONDS)
            if not self.forward() and not self._waiting:
                return
