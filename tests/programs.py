"""Python programs, each in a fork of the server of workers: it has imported what a new Python would import for seconds.

It finds what it would in a new Python, but for modules that are imported already.
"""

from __future__ import annotations

import atexit
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from multiprocessing import util
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType

from fuzz.worker import worker_server
from fuzz.worker.system import environment, without_main
from fuzz.worker.worker_server import CONTEXT, SAFE_PATH, STARTS

MODULE = "-m"
STANDARD_FILES = ("stdout", "stderr")
STRICT = """
import runpy, sys, warnings
import torch
warnings.simplefilter("error")
torch.use_deterministic_algorithms(True, warn_only=True)
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs a file of which no warning is to come."""


@dataclass(frozen=True)
class ForkedProgram:
    """As much of a Popen as tests need."""

    process: BaseProcess
    folder: Path

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def poll(self) -> int | None:
        return self.process.exitcode

    def wait(self, seconds: float) -> int:
        self.process.join(seconds)
        code = self.poll()
        assert code is not None, "it goes on"
        return code

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def first_line(self, stream: str) -> str:
        """The first line that it prints, which is waited for."""
        while "\n" not in (text := self.printed(stream)):
            assert self.poll() is None or "\n" in self.printed(stream), "it has ended"
            time.sleep(0.01)
        return text.partition("\n")[0]

    def printed(self, stream: str) -> str:
        """What it has printed until now."""
        return (self.folder / stream).read_text(encoding="utf-8", errors="surrogateescape")


@dataclass(frozen=True)
class Ended:
    """Exit code and standard output of a program."""

    code: int
    out: str


def run_programs(folder: Path, texts: Iterable[str]) -> list[Ended]:
    """How each program ends, run in a folder; nothing but a program's own exit code may go wrong."""
    ended = []
    for number, text in enumerate(texts):
        path = folder / f"alone-{number}.py"
        path.write_text(text, encoding="utf-8")
        done = run_program("-c", STRICT, str(path), cwd=folder)
        assert not done.stderr, done.stderr
        ended.append(Ended(done.returncode, done.stdout))
    return ended


def start_program(
    *command: str, cwd: Path | None = None, env: Mapping[str, str] = os.environ, folder: Path
) -> ForkedProgram:
    """Starts what `python COMMAND`, which begins with -c or -m, would run; what it prints goes into the folder."""
    for name in STANDARD_FILES:
        (folder / name).touch()
    process = CONTEXT.Process(target=_execute, args=(command, str(cwd or os.getcwd()), dict(env), folder))
    with STARTS, without_main(), environment(SAFE_PATH):
        process.start()
    return ForkedProgram(process, folder)


def run_program(
    *command: str, cwd: Path | None = None, env: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    """Runs what `python COMMAND`, which begins with -c or -m, would run."""
    with tempfile.TemporaryDirectory() as folder:
        program = start_program(*command, cwd=cwd, env=env, folder=Path(folder))
        code = program.wait(300)
        return subprocess.CompletedProcess(command, code, *map(program.printed, STANDARD_FILES))


def _execute(command: tuple[str, ...], working_folder: str, variables: dict[str, str], folder: Path) -> None:
    """Runs a program in this process, which a server has just forked."""
    kind, text, *arguments = command
    for name, stream in zip(STANDARD_FILES, (sys.stdout, sys.stderr), strict=True):
        # As others read it meanwhile: the program and what it starts write at the end.
        number = os.open(folder / name, os.O_WRONLY | os.O_APPEND)
        os.dup2(number, stream.fileno())
        os.close(number)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # A server that a worker has started anew blocks it, as that worker does meanwhile.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    os.chdir(working_folder)
    os.environ.clear()
    os.environ.update(variables)
    found = [path for path in variables.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:0] = ["", *found]
    sys.argv = [kind, *arguments]
    # What the server has registered is its own.
    atexit._clear()
    atexit.register(util._exit_function)
    # Nothing has used yet what this process has imported, so that it may be forked.
    worker_server.preload = worker_server.fork_server
    try:
        if kind == MODULE:
            runpy.run_module(text, run_name="__main__", alter_sys=True)
        else:
            main = sys.modules["__main__"] = ModuleType("__main__")
            exec(compile(text, "<string>", "exec"), main.__dict__)
    except Exception:
        # A program may have put its own in its place.
        sys.excepthook(*sys.exc_info())
        sys.exit(1)
    finally:
        atexit._run_exitfuncs()
