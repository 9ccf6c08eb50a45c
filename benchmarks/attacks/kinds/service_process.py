"""A service that attacks are made on, and what it answers."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from typing import Any

from benchmarks.attacks.attack import FellError
from benchmarks.attacks.kinds.campaign_files import GOOD
from benchmarks.attacks.kinds.entry_texts import BASE
from benchmarks.attacks.kinds.target_files import TARGET
from benchmarks.attacks.trial import FUZZ, Answer, Trial, check_answer, end_group, require

HOST = "127.0.0.1"
OK, REFUSED = (200,), (303, 400, 401, 403, 404, 405, 408, 409, 411, 413, 414, 415, 421, 422, 429, 431, 501, 505)
KEY = "dx-sign-b5936751"
STARTS = 90.0
"""Seconds that a service may take to start."""


class Service:
    """A service over an entry, a campaign file and a store; after an attack it must still answer, and end in order."""

    def __init__(self, trial: Trial, *options: object, token: str = "") -> None:
        self.trial, self.token = trial, token
        trial.write("targets.py", TARGET)
        trial.write("configs/small.yaml", GOOD)
        trial.write(f"corpus/gelu_bw/{KEY}.yaml", BASE)
        command = [
            "serve",
            "--port",
            0,
            "--store",
            "sqlite:///store.sqlite",
            "--configs",
            "configs",
            "--corpus",
            "corpus",
        ]
        self.command = [*command, *options]
        self.port = 0

    def __enter__(self) -> Service:
        environment = {"FUZZ_TOKEN": self.token} if self.token else {}
        self.log = (self.trial.work / "service.log").open("w+b")
        self.process = self.trial.start(FUZZ, *self.command, environment=environment, stdout=self.log, stderr=self.log)
        until = time.monotonic() + STARTS
        while time.monotonic() < until and self.process.poll() is None and not self.port:
            line = next((line for line in self.read_log().splitlines() if line.startswith("serving http://")), "")
            self.port = int(line.rstrip("/").rpartition(":")[2]) if line else 0
            time.sleep(0.05)
        require(self.port, f"the service does not start: {self.read_log()[-300:]!a}")
        while time.monotonic() < until and not self.answers():
            time.sleep(0.1)
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        try:
            if kind is None:
                self.check()
        finally:
            end_group(self.process)
            self.log.close()

    def check(self) -> None:
        """The service answers, ends by Ctrl-C, and has written no traceback."""
        until = time.monotonic() + 30.0
        while not self.answers():
            require(time.monotonic() < until, "the service does not answer any more")
            time.sleep(0.2)
        self.process.send_signal(signal.SIGINT)
        try:
            code = self.process.wait(30)
        except subprocess.TimeoutExpired:
            raise FellError("the service does not end within 30 s") from None
        check_answer(Answer(max(code, 0), "", self.read_log()))

    def read_log(self) -> str:
        return (self.trial.work / "service.log").read_text(encoding="utf-8", errors="replace")

    def answers(self) -> bool:
        with suppress(OSError, HTTPException):
            return self.send("GET", "/api/corpus", self.authority())[0] == 200
        return False

    def authority(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        host: str | None = "",
    ) -> tuple[int, str]:
        """The status and the text of an answer; `host` None sends none."""
        connection = HTTPConnection(HOST, self.port, timeout=40)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            if host is not None:
                connection.putheader("Host", host or f"{HOST}:{self.port}")
            for name, value in (headers or {}).items():
                connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, answer.read().decode("utf-8", "replace")
        finally:
            connection.close()

    def ask(
        self, method: str, path: str, *arguments: Any, allowed: Sequence[int] = (*OK, *REFUSED), **more: Any
    ) -> str:
        """Sends a request. FellError for a status that is not allowed, as an error of the service is not."""
        try:
            status, text = self.send(method, path, *arguments, **more)
        except (OSError, HTTPException) as error:
            raise FellError(f"{method} {path[:80]!a}: {type(error).__name__}: {error}") from None
        require(status in allowed, f"{method} {path[:80]!a} {arguments!a:.80}: status {status}: {text[:200]!a}")
        return text

    def raw(self, data: bytes, *, seconds: float = 40.0) -> bytes:
        """What comes back for these bytes until the service closes the connection, or so long."""
        answer = b""
        with socket.create_connection((HOST, self.port), timeout=seconds) as connection, suppress(OSError):
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(1 << 16):
                answer += part
        return answer
