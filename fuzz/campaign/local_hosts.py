"""Hosts: the processes in which slices run, on this machine. Another pool of the same shape may have them elsewhere."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from fuzz.campaign.protocol import Event, Request, line_of

HOST = (sys.executable, "-P", "-m", "fuzz.campaign.worker_host")
"""Without the folder that it is started in on the path: a person's own may hold a `fuzz` too."""
CHUNK = 1 << 16
GRACE = 5.0
"""Seconds that a host has to end by itself."""


class Carrier(Protocol):
    """Reaches some hosts by number. `collect` waits for events at most so long; one that ends is told as ``died``."""

    name: str

    def start(self, number: int) -> None: ...
    def write(self, number: int, data: bytes) -> None: ...
    def collect(self, seconds: float) -> Iterator[tuple[int, Event]]: ...
    def interrupt(self, number: int) -> None: ...
    def kill(self, number: int) -> None: ...
    def pid(self, number: int) -> int: ...
    def close(self) -> None: ...


class Hosts(Carrier, Protocol):
    """Hosts that take requests."""

    def send(self, number: int, request: Request) -> None: ...


@dataclass
class LocalHosts:
    """Processes of this machine, with `arguments`.

    What they write to standard error goes to files of `folder`, begun at each start.
    """

    folder: Path
    name: str = "local"
    arguments: tuple[str, ...] = ()
    _running: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    _partial: dict[int, bytes] = field(default_factory=dict)
    _selector: selectors.DefaultSelector = field(default_factory=selectors.DefaultSelector)

    def log(self, number: int) -> Path:
        return self.folder / f"host-{number}.log"

    def start(self, number: int) -> None:
        """Starts a host; it says ``ready`` once it can take a request."""
        with self.log(number).open("wb") as log:
            # A session of its own: Ctrl-C is for the campaign, which ends its hosts in an orderly way.
            made = subprocess.Popen(
                (*HOST, *self.arguments),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert made.stdout is not None
        os.set_blocking(made.stdout.fileno(), False)
        self._running[number], self._partial[number] = made, b""
        self._selector.register(made.stdout, selectors.EVENT_READ, number)

    def send(self, number: int, request: Request) -> None:
        self.write(number, line_of(request))

    def write(self, number: int, data: bytes) -> None:
        """Lines for a host; where it has ended, `collect` tells."""
        made = self._running[number]
        assert made.stdin is not None
        with suppress(OSError):
            made.stdin.write(data)
            made.stdin.flush()

    def collect(self, seconds: float) -> Iterator[tuple[int, Event]]:
        """(host, event) for all that have come."""
        for key, _ in self._selector.select(seconds):
            number: int = key.data
            data = self._read(key.fd)
            if data == b"":
                yield number, {"kind": "died", "why": self._bury(number)}
                continue
            *lines, self._partial[number] = (self._partial[number] + (data or b"")).split(b"\n")
            for line in lines:
                event: dict[str, Any] = json.loads(line)
                yield number, event

    def _read(self, handle: int) -> bytes | None:
        try:
            return os.read(handle, CHUNK)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def _bury(self, number: int) -> str:
        """Forgets a host that has ended; says how it ended."""
        made = self._running.pop(number)
        assert made.stdout is not None and made.stdin is not None
        self._selector.unregister(made.stdout)
        try:
            made.wait(GRACE)
        except subprocess.TimeoutExpired:
            made.kill()
            made.wait()
        made.stdout.close()
        with suppress(OSError):
            made.stdin.close()
        code = made.returncode
        return signal.Signals(-code).name if code < 0 else f"exit status {code}"

    def interrupt(self, number: int) -> None:
        """Asks a host to end its slice in an orderly way."""
        if number in self._running:
            self._running[number].send_signal(signal.SIGINT)

    def kill(self, number: int) -> None:
        """Ends a host at once; `collect` tells of it."""
        if number in self._running:
            self._running[number].kill()

    def pid(self, number: int) -> int:
        return self._running[number].pid if number in self._running else 0

    def close(self) -> None:
        """Ends every host."""
        for number in list(self._running):
            self._running[number].kill()
            self._bury(number)
        self._selector.close()
