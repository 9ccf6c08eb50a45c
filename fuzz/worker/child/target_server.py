"""Runs in the process that workers of one target are forked from: it loads the target, and then only forks.

Where the command has loaded the target before and may be forked, the process is a fork of it, and has nothing to load.

A worker that is forked from it must be like one that has loaded the target itself. So a target is refused which leaves
something that a fork loses, such as threads, or that forks would share, such as open files.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

from fuzz.errors import UsageError
from fuzz.worker.child.process_state import ProcessState
from fuzz.worker.child.serve import fork_workers
from fuzz.worker.system import MANY_FORKS, children, use_huge_pages_after

FILES, SERVE = "files", "serve"
"""The requests: for the files of what was loaded, and to fork workers from then on, which gets no response."""


ALLOCATORS_THREADS = frozenset({"jemalloc_bg_thd"})
"""Names of threads that an allocator ends where its process forks, and without which it goes on in the new one."""


@dataclass(frozen=True)
class ServerConfig:
    """How the process is set up: `load`, as ``module:function``, is called with `config`, and the address of a socket
    is where it takes requests to fork."""

    load: str
    config: Any
    address: str


@dataclass(frozen=True)
class Imports:
    """Where a process imports from, and its arguments: one that is forked from it is given those of the run."""

    path: list[str]
    arguments: list[str]

    @classmethod
    def capture(cls) -> Imports:
        """Those of this process."""
        return cls(list(sys.path), list(sys.argv))

    def restore(self) -> None:
        """Sets them in this process."""
        sys.path[:], sys.argv[:] = self.path, self.arguments


_modules: frozenset[str] | None = None
"""What this process had imported before it loaded a target, where it did so before it was forked."""
_loaded: Imports | None = None
"""Those of this process once it has loaded the target; None where it is no such process."""


def restore_imports() -> None:
    """Restores what loading the target has changed of the import path. Does nothing where none was loaded before."""
    if _loaded is not None:
        _loaded.restore()


def begin_loading() -> Traits:
    """Notes, for processes that are forked from this one, that it loads a target next; what it is like before."""
    global _modules
    _modules = frozenset(sys.modules)
    return Traits.capture()


def make_handler(config: ServerConfig) -> Callable[[str], object]:
    """Makes the handler. Raises UsageError where workers cannot be forked from this process, or what loading raises."""
    global _loaded
    modules, before = _modules or frozenset(sys.modules), Traits.capture()
    load, _, function = config.load.partition(":")
    getattr(import_module(load), function)(config.config)
    if reason := before.difference(Traits.capture()) or _fork_reason():
        raise UsageError(f"a process that has loaded it cannot be forked: {reason}")
    _loaded = Imports.capture()
    # As what the server of workers has imported: it is never garbage, and to look through it copies shared memory.
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(config.address)
    os.chmod(config.address, 0o600)
    listener.listen()
    files = sorted(_files(sys.modules.keys() - modules))

    def handle(request: str) -> object:
        if request == FILES:
            return files
        fork_workers()
        use_huge_pages_after(MANY_FORKS)
        # The supervisor ends this process: one end of the pipe that would do so is never closed.
        never, _ = os.pipe()
        forkserver.main(listener.detach(), never, [])
        return None

    return handle


@dataclass(frozen=True)
class Traits:
    """What of a process a fork loses, or what forks of it would share or be given another one of."""

    threads: int
    children: tuple[int, ...]
    files: frozenset[tuple[str, str]]
    shared_memory: frozenset[str]
    timers: tuple[Any, ...]
    state: ProcessState
    random: object

    @classmethod
    def capture(cls) -> Traits:
        """Those of this process."""
        timers = tuple(map(signal.getitimer, (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)))
        below = *children(), *children(os.getppid())
        state, threads = ProcessState.capture(), sum(name not in ALLOCATORS_THREADS for name in _threads())
        return cls(
            threads, below, frozenset(_open_files()), frozenset(_shared_memory()), timers, state, random.getstate()
        )

    def difference(self, after: Traits) -> str:
        """What keeps workers from being forked after the target was loaded, in a few words; empty for nothing."""
        reasons = {
            "it has threads": after.threads > self.threads,
            "it has started processes": self.children != after.children,
            "it holds files": not after.files <= self.files,
            "it shares memory": not after.shared_memory <= self.shared_memory,
            "it has set a timer": self.timers != after.timers,
            "it has another folder": self.state.folder != after.state.folder,
            "it handles signals": self.state.handlers != after.state.handlers,
            "it has limited its resources": self.state.limits != after.state.limits,
            # A fork seeds this generator anew.
            "it has seeded or used random": self.random != after.random,
        }
        return ", ".join(reason for reason, holds in reasons.items() if holds)


def _threads() -> Iterator[str]:
    """The names of this process's threads."""
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            yield (thread / "comm").read_text("utf-8", "replace").strip()


def _open_files() -> Iterator[tuple[str, str]]:
    for number in os.listdir("/proc/self/fd"):
        try:
            yield number, os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue  # The folder itself, while it was listed.


def _shared_memory() -> Iterator[str]:
    """The places of writable memory that a fork would share."""
    for line in Path("/proc/self/maps").read_text("utf-8", "replace").splitlines():
        place, access = line.split()[:2]
        if access.startswith("rw") and access.endswith("s"):
            yield place


def _fork_reason() -> str:
    """Why no process can be forked that forks another one; empty where it can. What was loaded may be told of forks."""
    status = 1
    process = os.fork()
    if process == 0:
        try:
            grandchild = os.fork()
            status = os.waitpid(grandchild, 0)[1] if grandchild else 0
        finally:
            os._exit(bool(status))
    return "a fork of it ends" if os.waitpid(process, 0)[1] else ""


def _files(modules: Iterable[str]) -> Iterator[str]:
    """The files of modules."""
    for name in modules:
        file = getattr(sys.modules.get(name), "__file__", None)
        if isinstance(file, str):
            yield file
