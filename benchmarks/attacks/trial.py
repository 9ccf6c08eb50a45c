"""Where one attack is made: a folder, an environment, the command that is attacked, and what holds of every answer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from benchmarks.attacks.attack import FellError
from fuzz.escaping import printable_output

FUZZ = str(Path(sys.executable).with_name("fuzz"))
MARKER = "FUZZ_ATTACK"
"""The variable by which the processes of an attack are known."""
LONGEST = 400.0
"""Seconds that one command may take: many times what it needs, as this machine may do much else."""
MOST_OUTPUT = 64 << 20


@dataclass(frozen=True)
class Answer:
    """What a command has answered: its exit code, negative for a signal, standard output and standard error."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as one JSON value. FellError where it is none."""
        try:
            return json.loads(self.out)
        except ValueError:
            raise FellError(f"standard output is no JSON value: {self.out[-200:]!a}") from None

    @property
    def complaints(self) -> list[str]:
        """The lines with which the command has refused something."""
        return [line for line in self.err.splitlines() if line.startswith("fuzz: ")]


def check_answer(answer: Answer) -> None:
    """What holds of every answer. FellError for an internal error, a traceback or what a terminal would obey."""
    text = answer.out + answer.err
    for sign in ("Traceback (most recent call last)", "internal error"):
        if sign in text:
            raise FellError(f"{sign}: {text[-600:]!a}")
    if answer.code not in (0, 1, 2, 130):
        raise FellError(f"exit code {answer.code}: {text[-300:]!a}")
    if printable_output(text) != text:
        raise FellError(f"a terminal would obey {first_difference(text, printable_output(text))!a}")


def first_difference(text: str, other: str) -> str:
    """The place of a text at which another one differs first."""
    place = len(os.path.commonprefix([text, other]))
    return text[max(place - 60, 0) : place + 60]


@dataclass
class Trial:
    """One attack's folder and environment, and the processes that it has started."""

    folder: Path
    marker: str
    environment: dict[str, str] = field(default_factory=dict)
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("home", "tmp", "cache", "work"):
            (self.folder / name).mkdir()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("FUZZ_", "TRITON_"))}
        places = {"HOME": self.folder / "home", "TMPDIR": self.folder / "tmp", "FUZZ_CACHE": self.folder / "cache"}
        own = {**{name: str(path) for name, path in places.items()}, MARKER: self.marker, "COLUMNS": "120"}
        self.environment = {**kept, **own, "FUZZ_ATTACK_NOTE": str(self.note)}

    @property
    def work(self) -> Path:
        """The working folder of its commands."""
        return self.folder / "work"

    @property
    def note(self) -> Path:
        """The file that a hostile launcher makes before it attacks."""
        return self.folder / "attacked"

    def write(self, name: str, text: str | bytes) -> Path:
        """A file below the working folder."""
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
        return path

    def start(
        self, *command: object, environment: Mapping[str, str] | None = None, cwd: Path | None = None, **options: Any
    ) -> subprocess.Popen[bytes]:
        """Starts a program in a session of its own."""
        process: subprocess.Popen[bytes] = subprocess.Popen(
            [os.fsencode(str(part)) for part in command],
            cwd=cwd or self.work,
            env={**self.environment, **(environment or {})},
            start_new_session=True,
            **{"stdin": subprocess.DEVNULL, **options},
        )
        self.started.append(process)
        return process

    def run(self, *command: object, seconds: float = LONGEST, **options: Any) -> Answer:
        """Runs a program to its end. FellError where it takes longer than `seconds`."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = self.start(*command, **{"stdout": out, "stderr": err, **options})
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                end_group(process)
                raise FellError(f"no answer within {seconds:.0f} s: {read_text(err)[-300:]!a}") from None
            return Answer(code, read_text(out), read_text(err))

    def fuzz(self, *arguments: object, via: Sequence[str] = (), **options: Any) -> Answer:
        """Runs `fuzz`, by the program `via` if one is given, and checks what holds of every answer."""
        answer = self.run(*via, FUZZ, *arguments, **options)
        check_answer(answer)
        return answer

    def refused(self, *arguments: object, says: str = "", **options: Any) -> Answer:
        """Runs `fuzz`, which is to refuse what it is asked for in one line with exit code 2."""
        answer = self.fuzz(*arguments, **options)
        if answer.code != 2 or len(answer.complaints) != 1 or says not in answer.complaints[0]:
            raise FellError(f"exit code {answer.code} and not one line that says {says!r}: {answer.err[-400:]!a}")
        return answer

    def end(self) -> None:
        """Ends what the attack has started and not waited for."""
        for process in self.started:
            if process.poll() is None:
                end_group(process)


def require(fact: object, otherwise: str) -> None:
    """FellError where a fact that makes an attack hold is none."""
    if not fact:
        raise FellError(otherwise)


def read_text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(MOST_OUTPUT).decode("utf-8", "replace")


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Ends a process and its group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
