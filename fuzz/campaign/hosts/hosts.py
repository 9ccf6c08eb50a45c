"""Runs hosts, the processes of slices, wherever they are."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import wait
from pathlib import Path

from fuzz.campaign.protocol import HostDied, HostEvent, Message, Request, Waiting, decode, encode
from fuzz.worker.python_process import HostProcess, PipeProcess, module_command

HOST_MODULE = "fuzz.campaign.hosts.host_process"
HOST_COMMAND = module_command(HOST_MODULE)
LARGEST_LOG = 4 << 20
"""Bytes after which a log is full; the one before it has a name that ends with ``.1``."""


def write_log(path: Path, data: bytes, mode: str = "ab") -> None:
    """Writes to a log, which is begun anew when it is full; the full one replaces the one before it.

    What the disk does not take is lost: neither the host nor the campaign fails for it.
    """
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size > LARGEST_LOG:
            os.replace(path, path.with_suffix(".log.1"))
        with path.open(mode) as file:
            file.write(data)


def start_here(*arguments: str) -> PipeProcess:
    """Starts a host on this machine.

    What it prints comes by a pipe, so that a kernel that prints neither fills the disk nor fails where that is full.
    """
    return PipeProcess.start(HOST_COMMAND, *arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


class Hosts:
    """Hosts by number, which `launch` starts. One that ends is reported as HostDied; what is done to it does nothing.

    A host that has started sends Ready once it can take a request. What it prints goes to a log in `folder`, begun at
    each start.
    """

    def __init__(self, folder: Path, launch: Callable[[], HostProcess] = start_here) -> None:
        self.folder, self.launch = folder, launch
        self._processes: dict[int, HostProcess] = {}

    def start(self, number: int) -> None:
        write_log(self.log(number), b"", "wb")
        self._processes[number] = self.launch()

    def log(self, number: int) -> Path:
        return self.folder / f"host-{number}.log"

    def send(self, number: int, request: Request) -> None:
        self.write(number, request)

    def write(self, number: int, *messages: Message) -> None:
        for message in messages if number in self._processes else ():
            self._processes[number].send(encode(message))

    def receive(self, seconds: float) -> Iterator[tuple[int, HostEvent]]:
        """(host, event) for all that the campaign is to know of; waits for the first one at most so long."""
        numbers = {source: number for number, process in self._processes.items() for source in process.sources}
        ready = wait(list(numbers), seconds)
        for number in sorted({numbers[source] for source in numbers if source in ready}):
            process = self._processes[number]
            messages, output, ended = process.receive(0)
            write_log(self.log(number), output)
            for message in messages:
                yield number, decode(message)
            if ended:
                self._processes.pop(number).close()
                yield number, HostDied(ended)
            elif not process.pid:
                yield number, Waiting()

    def interrupt(self, number: int) -> None:
        """Asks a host to end its slice in an orderly way."""
        if number in self._processes:
            self._processes[number].interrupt()

    def kill(self, number: int) -> None:
        """Ends a host at once."""
        if number in self._processes:
            self._processes[number].kill()

    def pid(self, number: int) -> int:
        """The process of a host on its machine, or 0."""
        return self._processes[number].pid if number in self._processes else 0

    def close(self) -> None:
        for number, process in self._processes.items():
            process.kill()
            write_log(self.log(number), process.receive(0)[1])
            process.close()
        self._processes.clear()
