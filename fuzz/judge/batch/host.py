"""Runs a process that judges tasks one after another, and replaces it where it ends or takes too long."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Protocol

from fuzz.judge.batch.task import JudgeTask, encode_task, failure
from fuzz.judge.result.score import CRASHED, OUT_OF_TIME
from fuzz.worker.command import module_command

COMMAND = module_command("fuzz.judge.batch.host_process")
FURTHER_SECONDS = 600.0
"""Seconds that a judgement may take beside those for odd inputs."""
POLL_SECONDS = 0.2
TRIES = 2
"""Processes that a task may end before it is given up."""
SECRETS = ("FUZZ_TOKEN",)
"""Variables that a solution has no business reading."""


class Stopped(Exception):
    """The judgement was ended because nobody wants it any more."""


class Judge(Protocol):
    """Judges one task after another, until it is closed."""

    def judge(self, task: JudgeTask, is_stopped: Callable[[], bool] = ...) -> Mapping[str, Any]: ...

    def close(self) -> None: ...


@dataclass
class JudgeHost:
    """One process that judges, and a folder for its temporary files, which ends with it.

    It ends with the thread that started it, and everything that it started ends with it.
    """

    command: tuple[str, ...] = COMMAND
    further_seconds: float = FURTHER_SECONDS
    _process: subprocess.Popen[bytes] | None = None
    _pipe: Connection[Any, Any] | None = None
    _folder: str = ""

    def judge(self, task: JudgeTask, is_stopped: Callable[[], bool] = lambda: False) -> Mapping[str, Any]:
        """The judgement as JSON. Raises Stopped where `is_stopped` says so."""
        for _ in range(TRIES):
            self._start()
            end = time.monotonic() + task.options.seconds + self.further_seconds
            try:
                self._send(encode_task(task))
                while not self._connection.poll(POLL_SECONDS):
                    if is_stopped():
                        self.close()
                        raise Stopped
                    if time.monotonic() > end:
                        self.close()
                        limit = task.options.seconds + self.further_seconds
                        return failure(task, f"it takes more than {limit:g} s to judge", OUT_OF_TIME)
                found: Mapping[str, Any] = json.loads(self._connection.recv_bytes())
                return found
            except (EOFError, OSError):
                self.close()
        return failure(task, "the process that judges it ended", CRASHED)

    @property
    def _connection(self) -> Connection[Any, Any]:
        assert self._pipe is not None
        return self._pipe

    def _send(self, data: bytes) -> None:
        self._connection.send_bytes(data)

    def _start(self) -> None:
        """Starts the process where none runs."""
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        self._folder = tempfile.mkdtemp(prefix="fuzz-judge-host-")
        self._pipe, theirs = Pipe()
        variables = {name: value for name, value in os.environ.items() if name not in SECRETS}
        with theirs:
            self._process = subprocess.Popen(
                (*self.command, str(theirs.fileno())), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, pass_fds=[theirs.fileno()], start_new_session=True,
                env={**variables, "TMPDIR": self._folder},
            )  # fmt: skip

    def close(self) -> None:
        """Ends the process at once, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._pipe is not None:
            self._pipe.close()
        if self._folder:
            with suppress(OSError):
                shutil.rmtree(self._folder)
        self._process, self._pipe, self._folder = None, None, ""
