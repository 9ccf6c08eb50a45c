"""Starts Python processes that import this very package, installed or not."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Protocol

import fuzz
from fuzz.files import own_folder
from fuzz.worker.system import describe_exit, signal_at_parents_end, use_server_folder

PRELUDE = """
import sys
from importlib.util import find_spec
found = find_spec("fuzz")
if found is None or found.origin != {origin!r}:
    sys.path.insert(0, {folder!r})
"""
"""A checkout that is not installed is on the path of `python -m fuzz` alone; elsewhere another `fuzz` may be."""
CHUNK = 1 << 16
"""Bytes of output that are read at once: what a pipe holds."""
EXIT_SECONDS = 5.0
"""Seconds that a process which has closed its pipe has to end."""
SECRETS = ("FUZZ_TOKEN",)
"""Variables that the code of others has no business reading."""
FOLDER_VARIABLE = "FUZZ_PROCESS_FOLDER"
"""Names the folder of a process that `PipeProcess` starts."""
FOLDER_PREFIX, ISOLATED_PREFIX = "fuzz-host-", "fuzz-isolated-"
Received = tuple[list[bytes], bytes, str]
"""(messages of a process, what it has printed, how it has ended or nothing)."""
MODULE = "import runpy\nrunpy.run_module({module!r}, run_name='__main__', alter_sys=True)\n"


def importing_this(program: str) -> str:
    """A program that does the same in a Python that may not find this package."""
    origin = fuzz.__file__
    return PRELUDE.format(origin=origin, folder=str(Path(origin).parents[1])) + program


def program_command(program: str) -> tuple[str, ...]:
    """The command that runs a program; its arguments follow.

    The folder that it is started in is not on its path: a person's own may hold a `fuzz` too.
    """
    return sys.executable, "-P", "-c", importing_this(program)


def module_command(module: str) -> tuple[str, ...]:
    """The command that runs a module of this package, as `python -m` does; its arguments follow."""
    return program_command(MODULE.format(module=module))


class HostProcess(Protocol):
    """A process, here or elsewhere, that gets messages and sends some."""

    @property
    def pid(self) -> int:
        """Its number on its machine; 0 before it has started."""

    @property
    def sources(self) -> list[int]:
        """Descriptors of which one is readable where something of it has come."""

    def send(self, message: bytes) -> None:
        """Sends a message. Where the process has ended nothing happens: `receive` reports it."""

    def receive(self, seconds: float) -> Received:
        """What has come; waits for something at most so long."""

    def interrupt(self) -> None: ...

    def kill(self) -> None: ...

    def close(self) -> None:
        """Ends it at once, and lets go of all that it holds."""


@dataclass
class PipeProcess:
    """A process of this machine, in a session of its own, and a pipe to it.

    A program that calls `connect_to_parent` ends with the thread that started it.
    """

    process: subprocess.Popen[bytes]
    pipe: Connection[Any, Any]
    folder: str = ""
    """Where the server of its workers has its sockets, if any; removed when this is closed, however that ended."""
    lock: ExitStack = field(default_factory=ExitStack)
    """Held while the folder may not be removed by others."""

    @classmethod
    def start(
        cls, command: tuple[str, ...], *arguments: str, folder: str = "", lock: ExitStack | None = None, **options: Any
    ) -> PipeProcess:
        """Starts a command with the number of its end of the pipe, then `arguments`; `options` are Popen's.

        What holds a `lock` of a `folder` goes to the process's object.
        """
        with suppress(OSError):
            # Where the disk takes none the process says so, as it cannot make its own.
            if not folder:
                folder, lock = own_folder(FOLDER_PREFIX)
        options["env"] = {**options.get("env", os.environ), FOLDER_VARIABLE: folder}
        lock = lock or ExitStack()
        with ExitStack() as failed:
            failed.callback(lock.close)
            failed.callback(shutil.rmtree, folder, ignore_errors=True)
            ours, theirs = Pipe()
            failed.callback(ours.close)
            with theirs:
                process = subprocess.Popen(
                    (*command, str(theirs.fileno()), *arguments), stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()], start_new_session=True, **options,
                )  # fmt: skip
            failed.pop_all()
        if process.stdout is not None:
            os.set_blocking(process.stdout.fileno(), False)
        return cls(process, ours, folder, lock)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def sources(self) -> list[int]:
        output = self.process.stdout
        return [self.pipe.fileno(), *([output.fileno()] if output is not None and not output.closed else [])]

    def send(self, message: bytes) -> None:
        with suppress(OSError):
            self.pipe.send_bytes(message)

    def receive(self, seconds: float) -> Received:
        messages, ended = [], ""
        wait(self.sources, seconds)
        try:
            while self.pipe.poll():
                messages.append(self.pipe.recv_bytes())
        except (EOFError, OSError):
            ended = self._describe_end()
        return messages, self._read_output(), ended

    def _describe_end(self) -> str:
        """Waits until it has ended; how it did."""
        try:
            code = self.process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            code = self.process.wait()
        return describe_exit(code)

    def _read_output(self) -> bytes:
        """What it has printed, as much as is read at once."""
        output = self.process.stdout
        if output is None or output.closed:
            return b""
        try:
            data = os.read(output.fileno(), CHUNK)
        except BlockingIOError:
            return b""
        if not data:
            output.close()
        return data

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        self.process.kill()

    def close(self) -> None:
        self.kill()
        self.process.wait()
        self.pipe.close()
        if self.process.stdout is not None:
            self.process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.lock.close()


def start_isolated(command: tuple[str, ...]) -> PipeProcess:
    """Starts a process that runs the code of others: silent, with a folder for its temporary files."""
    folder, lock = own_folder(ISOLATED_PREFIX)
    quiet = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return PipeProcess.start(command, folder=folder, lock=lock, env=isolated_environment(folder), **quiet)


def isolated_environment(folder: str) -> dict[str, str]:
    """The variables of a process whose temporary files are in a folder, without secrets."""
    return {name: value for name, value in os.environ.items() if name not in SECRETS} | {"TMPDIR": folder}


def connect_to_parent(number: str) -> Connection[Any, Any]:
    """The end of the pipe that a PipeProcess gets, which now ends with the thread that started it."""
    signal_at_parents_end(signal.SIGKILL)
    os.set_inheritable(int(number), False)
    if folder := os.environ.pop(FOLDER_VARIABLE, ""):
        use_server_folder(folder)
    return Connection(int(number))
