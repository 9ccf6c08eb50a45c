"""Runs hosts, the processes of slices, on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import IO, Any

from fuzz.campaign.protocol import HostDied, HostEvent, Message, Request, decode, encode
from fuzz.worker.command import module_command

HOST_COMMAND = module_command("fuzz.campaign.hosts.worker_host")
CHUNK = 1 << 16
"""Bytes of output that are read at once: what a pipe holds."""
EXIT_SECONDS = 5.0
"""Seconds that a host has to end by itself."""
LARGEST = 4 << 20
"""Bytes after which a log is full; the one before it has a name that ends with ``.1``."""


@dataclass
class HostLog:
    """A file that is begun anew when it is full; the full one replaces the one before it.

    What the disk does not take is lost: neither the host nor the campaign fails for it.
    """

    path: Path

    def begin(self) -> None:
        """Empties the log, as a host starts."""
        with suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_bytes(b"")

    def append(self, data: bytes) -> None:
        with suppress(OSError):
            if self.path.stat().st_size > LARGEST:
                os.replace(self.path, self.path.with_suffix(".log.1"))
            with self.path.open("ab") as file:
                file.write(data)

    def take(self) -> bytes:
        """What the log holds, which it then holds no more."""
        try:
            data = self.path.read_bytes()
            self.path.write_bytes(b"")
        except OSError:
            return b""
        return data


class Hosts(ABC):
    """Hosts by number. One that ends is reported as HostDied; what is done to it then does nothing.

    A host that has started sends Ready once it can take a request. `interrupt` asks it to end its slice in an orderly
    way; `kill` ends it at once. `pid` is its process on its machine, or 0. What a host prints goes to a log in
    `folder`, begun at each start.
    """

    folder: Path

    @abstractmethod
    def start(self, number: int) -> None: ...
    @abstractmethod
    def write(self, number: int, *messages: Message) -> None: ...
    @abstractmethod
    def receive(self, seconds: float) -> Iterator[tuple[int, HostEvent]]:
        """(host, event) for all that have come; waits for the first one at most so long."""

    @abstractmethod
    def interrupt(self, number: int) -> None: ...
    @abstractmethod
    def kill(self, number: int) -> None: ...
    @abstractmethod
    def pid(self, number: int) -> int: ...
    @abstractmethod
    def close(self) -> None: ...

    def log(self, number: int) -> HostLog:
        return HostLog(self.folder / f"host-{number}.log")

    def send(self, number: int, request: Request) -> None:
        self.write(number, request)

    def collect(self, seconds: float) -> Iterator[tuple[int, HostEvent]]:
        """(host, event) for all that the campaign is to know of; waits as `receive` does."""
        return self.receive(seconds)


@dataclass
class LocalHosts(Hosts):
    """Processes of this machine, with `arguments` after the number of their end of a pipe.

    What they print comes by a pipe, so that a kernel that prints neither fills the disk nor fails where the disk is
    full.
    """

    folder: Path
    arguments: tuple[str, ...] = ()
    _processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    _pipes: dict[int, Connection[Any, Any]] = field(default_factory=dict)
    _output: dict[int, IO[bytes]] = field(default_factory=dict)
    """What a host prints, until it has closed it."""

    def start(self, number: int) -> None:
        self._pipes[number], theirs = Pipe()
        self.log(number).begin()
        with theirs:
            # A session of its own: Ctrl-C is for the campaign, which ends its hosts in an orderly way.
            process = self._processes[number] = subprocess.Popen(
                (*HOST_COMMAND, str(theirs.fileno()), *self.arguments), stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, pass_fds=[theirs.fileno()], start_new_session=True,
            )  # fmt: skip
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._output[number] = process.stdout

    def write(self, number: int, *messages: Message) -> None:
        # The end of a host is noticed and reported where its events are received.
        with suppress(OSError):
            for message in messages:
                self._pipes[number].send_bytes(encode(message))

    def receive(self, seconds: float) -> Iterator[tuple[int, HostEvent]]:
        outputs = {number: output.fileno() for number, output in self._output.items()}
        ready = wait([*self._pipes.values(), *outputs.values()], seconds)
        for number in [number for number, output in outputs.items() if output in ready]:
            self._keep_log(number)
        for number, pipe in [(number, pipe) for number, pipe in self._pipes.items() if pipe in ready]:
            try:
                while pipe.poll():
                    yield number, decode(pipe.recv_bytes())
            except (EOFError, OSError):
                yield number, HostDied(self._reap(number))

    def _keep_log(self, number: int) -> None:
        """Moves what a host printed into its log, as much of it as is read at once."""
        try:
            data = os.read(self._output[number].fileno(), CHUNK)
        except BlockingIOError:
            return
        self.log(number).append(data)
        if not data:
            del self._output[number]

    def _reap(self, number: int) -> str:
        """Forgets a host that has ended; says how it ended."""
        process = self._processes.pop(number)
        self._pipes.pop(number).close()
        try:
            process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if number in self._output:
            # What is left; a process that the host has left behind may go on printing.
            self._keep_log(number)
            self._output.pop(number, None)
        assert process.stdout is not None
        process.stdout.close()
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
