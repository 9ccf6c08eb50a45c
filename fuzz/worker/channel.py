"""Defines the messages between a run and a worker's process, and the channel that carries them in checked frames.

A kernel can write into the channel of its worker, as into any file that its process holds. A frame begins with a mark,
its length and checksums, so that such bytes are noticed and never taken for a message.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import select
import socket
import struct
import termios
import zlib
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

MARK = b"\xf5fz\n"
"""The first bytes of a frame."""
HEADER = struct.Struct("<4sIII")
"""The head of a frame: the mark, the bytes of the message, their checksum, and the checksum of the head before it."""
MAX_BYTES = 1 << 30
"""The longest message."""
CHUNK = 1 << 20
"""Bytes that are read at once."""


@dataclass(frozen=True)
class HandlerRequest:
    """What the run sends: a request with a number that no other one has."""

    number: int
    body: Any


@dataclass(frozen=True)
class HandlerReady:
    """The first message of a process: its handler is made."""


@dataclass(frozen=True)
class HandlerResponse:
    """The response to the request of that number."""

    number: int
    body: Any


@dataclass(frozen=True)
class HandlerFailure:
    """The last message of a process whose own code raised: a usage error's line, or a traceback.

    `of_reference` says that the target's reference raised, for which the launcher may be to blame.
    """

    text: str
    usage: bool
    of_reference: bool = False


@dataclass(frozen=True)
class LastResponse:
    """A handler returns this around a response after which its process cannot go on."""

    response: Any


class GarbledError(Exception):
    """Something else than frames was written into the channel."""


class ChannelClosed(Exception):
    """The other end of the channel, or this one, is closed."""


class Channel:
    """One end of a channel. Each frame is read alone, so that its socket is readable where another one has come."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._frame = bytearray()
        self._poll = select.poll()
        self._poll.register(end, select.POLLIN)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Any) -> None:
        """Sends a message. Raises ChannelClosed, or what pickling it raises."""
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        if len(data) > MAX_BYTES:
            raise ValueError(f"a message of {len(data)} bytes is longer than {MAX_BYTES}")
        head = struct.pack("<4sII", MARK, len(data), zlib.crc32(data))
        try:
            # A kernel may have set all files of its process to return instead of waiting.
            os.set_blocking(self.fileno(), True)
            self._socket.sendall(b"".join((head, zlib.crc32(head).to_bytes(4, "little"), data)))
        except OSError as error:
            raise ChannelClosed from error

    def receive(self, seconds: float | None = None) -> Any:
        """The next message; None where it has not arrived whole within so many seconds, which None does not limit.

        Raises GarbledError, ChannelClosed, or what unpickling the message raises.
        """
        flags = 0 if seconds is None else socket.MSG_DONTWAIT
        if seconds and not self._poll.poll(1000 * seconds):
            return None
        while missing := self._missing():
            try:
                data = self._socket.recv(min(missing, CHUNK), flags)
            except BlockingIOError:
                if seconds is not None:
                    return None
                os.set_blocking(self.fileno(), True)
                continue
            except OSError as error:
                raise ChannelClosed from error
            if not data:
                raise ChannelClosed
            self._frame += data
        frame, self._frame = self._frame, bytearray()
        return pickle.loads(memoryview(frame)[HEADER.size :])

    def _missing(self) -> int:
        """How many bytes of the frame are still to come."""
        size = len(self._frame)
        if size < HEADER.size:
            if not MARK.startswith(self._frame[: len(MARK)]):
                raise GarbledError
            return HEADER.size - size
        _, length, message_sum, head_sum = HEADER.unpack_from(self._frame)
        if size == HEADER.size and (length > MAX_BYTES or zlib.crc32(self._frame[:-4]) != head_sum):
            raise GarbledError
        missing: int = HEADER.size + length - size
        if not missing and zlib.crc32(memoryview(self._frame)[HEADER.size :]) != message_sum:
            raise GarbledError
        return missing

    @property
    def unread(self) -> int:
        """Bytes that have arrived and that nobody has read."""
        return int.from_bytes(fcntl.ioctl(self._socket, termios.FIONREAD, bytes(4)), "little")

    def shut_down(self) -> None:
        """Tells the other end that there is nothing more to send, and ends a `send` that waits in another thread."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()
