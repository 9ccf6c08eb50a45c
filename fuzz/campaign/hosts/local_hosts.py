"""Runs hosts, the processes of slices, on this machine."""

from __future__ import annotations

import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from fuzz.campaign.protocol import Event, HostDied, Message, Request, decode, encode

HOST_COMMAND = (sys.executable, "-P", "-m", "fuzz.campaign.hosts.worker_host")
"""Without the folder that it is started in on the path: a person's own may hold a `fuzz` too."""
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
    def write(self, number: int, *messages: Message) -> None: ...
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
        self.write(number, request)

    def collect(self, seconds: float) -> Iterator[tuple[int, Event]]:
        """(host, event) for all that the campaign is to know of; waits as `receive` does."""
        return self.receive(seconds)


@dataclass
class LocalHosts(Hosts):
    """Processes of this machine, with `arguments` after the number of their end of a pipe.

    What they print goes to files of `folder`, begun at each start.
    """

    folder: Path
    name: str = "local"
    arguments: tuple[str, ...] = ()
    _processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    _pipes: dict[int, Connection[Any, Any]] = field(default_factory=dict)

    def log(self, number: int) -> Path:
        return self.folder / f"host-{number}.log"

    def start(self, number: int) -> None:
        self._pipes[number], theirs = Pipe()
        with theirs, self.log(number).open("wb") as log:
            # A session of its own: Ctrl-C is for the campaign, which ends its hosts in an orderly way.
            self._processes[number] = subprocess.Popen(
                (*HOST_COMMAND, str(theirs.fileno()), *self.arguments), stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, pass_fds=[theirs.fileno()], start_new_session=True,
            )  # fmt: skip

    def write(self, number: int, *messages: Message) -> None:
        # The end of a host is noticed and reported where its events are received.
        with suppress(OSError):
            for message in messages:
                self._pipes[number].send_bytes(encode(message))

    def receive(self, seconds: float) -> Iterator[tuple[int, Event]]:
        ready = wait(list(self._pipes.values()), seconds)
        for number, pipe in [(number, pipe) for number, pipe in self._pipes.items() if pipe in ready]:
            try:
                while pipe.poll():
                    yield number, decode(pipe.recv_bytes())
            except (EOFError, OSError):
                yield number, HostDied(self._reap(number))

    def _reap(self, number: int) -> str:
        """Forgets a host that has ended; says how it ended."""
        process = self._processes.pop(number)
        self._pipes.pop(number).close()
        try:
            process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
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
