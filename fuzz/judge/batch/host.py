"""Runs a process that judges tasks one after another, and replaces it where it ends or takes too long."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from fuzz.judge.batch.task import JudgeTask, encode_task, failure
from fuzz.judge.result.score import CRASHED, OUT_OF_TIME
from fuzz.worker.python_process import HostProcess, module_command, start_isolated

HOST_MODULE = "fuzz.judge.batch.host_process"
FURTHER_SECONDS = 600.0
"""Seconds that a judgement may take beside those for odd inputs."""
POLL_SECONDS = 0.2
TRIES = 2
"""Processes that a task may end before it is given up."""


class Stopped(Exception):
    """The judgement was ended because nobody wants it any more."""


class TakesTooLong(Exception):
    """A judgement takes more time than it has."""


@dataclass
class JudgeHost:
    """One process that judges, which `launch` starts; where it is `remote` it sees no file, so that all are sent.

    It ends with the thread that started it, and everything that it started ends with it.
    """

    launch: Callable[[], HostProcess] = partial(start_isolated, module_command(HOST_MODULE))
    remote: bool = False
    further_seconds: float = FURTHER_SECONDS
    _process: HostProcess | None = None

    def judge(self, task: JudgeTask, is_stopped: Callable[[], bool] = lambda: False) -> Mapping[str, Any]:
        """The judgement as JSON. Raises Stopped where `is_stopped` says so."""
        sent = task.locate() if self.remote else task
        data = encode_task(sent, {str(path): content for path, content in sent.files()} if self.remote else {})
        limit = task.options.seconds + self.further_seconds
        for _ in range(TRIES):
            try:
                message = self._ask(data, limit, is_stopped)
            except TakesTooLong:
                self.close()
                return failure(task, f"it takes more than {limit:g} s to judge", OUT_OF_TIME)
            except BaseException:
                # It still works on this task: the next one would take its message for an answer.
                self.close()
                raise
            if message:
                found: Mapping[str, Any] = json.loads(message)
                return found
            self.close()
        return failure(task, "the process that judges it ended", CRASHED)

    def _ask(self, data: bytes, limit: float, is_stopped: Callable[[], bool]) -> bytes:
        """What the process answers to a task, nothing where it ends. Raises Stopped, and TakesTooLong after `limit`."""
        process, end = self._start(), 0.0
        process.send(data)
        messages, ended = list[bytes](), ""
        while not messages and not ended:
            if is_stopped():
                raise Stopped
            # One that waits for a node has not begun.
            end = end or (time.monotonic() + limit if process.pid else 0.0)
            if end and time.monotonic() > end:
                raise TakesTooLong
            messages, _, ended = process.receive(POLL_SECONDS)
        return messages[0] if messages else b""

    def _start(self) -> HostProcess:
        """The process, a new one where none runs."""
        if self._process is not None and self._process.receive(0)[2]:
            self.close()
        self._process = self._process or self.launch()
        return self._process

    def close(self) -> None:
        """Ends the process at once, if there is one."""
        if self._process is not None:
            self._process.close()
        self._process = None
