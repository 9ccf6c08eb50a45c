"""Runs hosts, the processes of slices, on this machine."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from fuzz.campaign.protocol import Event, HostDied, Request, decode, encode

HOST_COMMAND = (sys.executable, "-P", "-m", "fuzz.campaign.hosts.worker_host")
"""Without the folder that it is started in on the path: a person's own may hold a `fuzz` too."""
CHUNK = 1 << 16
"""Bytes that are read at once."""
EXIT_SECONDS = 5.0
"""Seconds that a host has to end by itself."""


class Hosts(ABC):
    """Hosts by number. One that ends, for whatever reason, is reported as Died; what is done to it then does nothing.

    A host that has started sends Ready once it can take a request. `interrupt` asks it to end its slice in an orderly
    way; `kill` ends it at once. `pid` is its process on its machine, or 0.
    """

    name: str

    @abstractmethod
    def start(self, number: int) -> None: ...
    @abstractmethod
    def write(self, number: int, data: bytes) -> None: ...
    @abstractmethod
    def receive(self, seconds: float) -> Iterator[tuple[int, Event]]:
        """(host, event) for all that have come; waits for the first one at most so long."""

    @abstractmethod
    def interrupt(self, number: int) -> None: ...
    @abstractmethod
    def kill(self, number: int) -> None: ...
    @abstractmethod
    def pid(self, number: int) -> int: ...
    @abstractmethod
    def close(self) -> None: ...

    def send(self, number: int, request: Request) -> None:
        self.write(number, encode(request))

    def collect(self, seconds: float) -> Iterator[tuple[int, Event]]:
        """(host, event) for all that the campaign is to know of; waits as `receive` does."""
        return self.receive(seconds)


@dataclass
class LocalHosts(Hosts):
    """Processes of this machine, with `arguments`.

    What they write to standard error goes to files of `folder`, begun at each start.
    """

    folder: Path
    name: str = "local"
    arguments: tuple[str, ...] = ()
    _processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    _partial: dict[int, bytes] = field(default_factory=dict)
    _selector: selectors.DefaultSelector = field(default_factory=selectors.DefaultSelector)

    def log(self, number: int) -> Path:
        return self.folder / f"host-{number}.log"

    def start(self, number: int) -> None:
        with self.log(number).open("wb") as log:
            # A session of its own: Ctrl-C is for the campaign, which ends its hosts in an orderly way.
            process = subprocess.Popen(
                (*HOST_COMMAND, *self.arguments),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._processes[number], self._partial[number] = process, b""
        self._selector.register(process.stdout, selectors.EVENT_READ, number)

    def write(self, number: int, data: bytes) -> None:
        stdin = self._processes[number].stdin
        assert stdin is not None
        with suppress(OSError):
            stdin.write(data)
            stdin.flush()

    def receive(self, seconds: float) -> Iterator[tuple[int, Event]]:
        for key, _ in self._selector.select(seconds):
            number: int = key.data
            data = _read(key.fd)
            if data == b"":
                yield number, HostDied(self._reap(number))
                continue
            *lines, self._partial[number] = (self._partial[number] + (data or b"")).split(b"\n")
            for line in lines:
                yield number, decode(line)

    def _reap(self, number: int) -> str:
        """Forgets a host that has ended; says how it ended."""
        process = self._processes.pop(number)
        assert process.stdout is not None and process.stdin is not None
        self._selector.unregister(process.stdout)
        try:
            process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        with suppress(OSError):
            process.stdin.close()
        code = process.returncode
        return signal.Signals(-code).name if code < 0 else f"exit status {code}"

    def interrupt(self, number: int) -> None:
        if number in self._processes:
            self._processes[number].send_signal(signal.SIGINT)

    def kill(self, number: int) -> None:
        if number in self._processes:
            self._processes[number].kill()

    def pid(self, number: int) -> int:
        return self._processes[number].pid if number in self._processes else 0

    def close(self) -> None:
        for number in list(self._processes):
            self._processes[number].kill()
            self._reap(number)
        self._selector.close()


def _read(handle: int) -> bytes | None:
    """What a pipe holds: None where it holds nothing now, nothing where it has ended."""
    try:
        return os.read(handle, CHUNK)
    except BlockingIOError:
        return None
    except OSError:
        return b""
