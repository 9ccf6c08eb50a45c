"""Hosts of campaigns, forked from the server of workers: it has imported what a new Python would import for seconds."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, BinaryIO

from fuzz.worker.python_process import PipeProcess
from fuzz.worker.system import environment, without_main
from fuzz.worker.worker_server import CONTEXT, SAFE_PATH, STARTS, fork_server


@dataclass
class ForkedProcess:
    """As much of a Popen as a PipeProcess needs."""

    process: Any
    stdout: BinaryIO

    @property
    def pid(self) -> int:
        return int(self.process.pid)

    def wait(self, timeout: float | None = None) -> int:
        self.process.join(timeout)
        if self.process.exitcode is None:
            raise subprocess.TimeoutExpired("a host", timeout or 0.0)
        return int(self.process.exitcode)

    def send_signal(self, number: int) -> None:
        if self.process.is_alive():
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.process.kill()


class ForkedHost(PipeProcess):
    """A host of this machine in a process that is forked, whatever the command that would start it."""

    @classmethod
    def start(cls, command: tuple[str, ...], *arguments: str, **options: Any) -> PipeProcess:
        (ours, theirs), (reads, writes) = Pipe(), Pipe(duplex=False)
        process = CONTEXT.Process(target=run_host, args=(theirs, writes, dict(os.environ), arguments))
        with theirs, writes, STARTS, without_main(), environment(SAFE_PATH):
            process.start()
        with reads:
            output = open(os.dup(reads.fileno()), "rb", buffering=0)
        os.set_blocking(output.fileno(), False)
        return cls(ForkedProcess(process, output), ours)  # type: ignore[arg-type]


def run_host(
    pipe: Connection[Any, Any], output: Connection[Any, Any], variables: dict[str, str], arguments: tuple[str, ...]
) -> None:
    """Runs a host in this process, without cross-checks; its workers are forked from a fork of it."""
    os.setsid()
    os.environ.clear()
    os.environ.update(variables)
    with pipe, output:
        number = os.dup(pipe.fileno())
        for stream in (sys.stdout, sys.stderr):
            os.dup2(output.fileno(), stream.fileno())
    from fuzz.campaign.hosts import host_process
    from fuzz.run.findings import bug_postprocessor

    bug_postprocessor.cross_check = lambda *_: {}
    host_process.preload = fork_server
    sys.argv = [host_process.__name__, str(number), *arguments]
    host_process.main()
