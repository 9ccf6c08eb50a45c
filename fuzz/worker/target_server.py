"""The server that the workers of one target are forked from: a process that has loaded the target for all of them.

It is forked from the server of all workers, and is watched as a worker is while it loads the target; where the command
has loaded the target, from a fork of that.
"""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import connection, forkserver
from typing import Any

from fuzz.errors import InternalError, UsageError
from fuzz.model.outcome import describe
from fuzz.worker.child.target_server import FILES, SERVE, ServerConfig
from fuzz.worker.deadline import Deadline
from fuzz.worker.worker import ForkingServer, Worker, WorkerCrash

HANDLER = "fuzz.worker.child.target_server:make_handler"
FileVersions = tuple[tuple[int, int, int] | None, ...]
"""Of each file its number, its size and when it was changed; None where it is not there."""


class Address(forkserver.ForkServer):
    """Where the process `pid` takes requests to fork, which is no child of this one."""

    def __init__(self, address: str, pid: int | None) -> None:
        super().__init__()
        self._forkserver_address, self._forkserver_pid = address, pid

    def ensure_running(self) -> None:
        """Sees to the server of all workers, which lives as long as one of them does."""
        forkserver.ensure_running()
        server: Any = forkserver
        self._forkserver_alive_fd = server._forkserver._forkserver_alive_fd


@dataclass
class LoadedServer:
    """Forks processes from a fork of this one, which has loaded a target before."""

    server: forkserver.ForkServer | None

    def connect(self) -> forkserver.ForkServer | None:
        return self.server

    def give_up(self) -> None:
        self.server = None


@dataclass
class TargetServer:
    """Forks workers from a process in which `load`, given as ``module:function``, was called with `config`.

    It starts with its first worker, from `origin` where that is given. Where the target cannot be loaded within a
    worker's limits, or leaves what a fork does not keep, where the process has ended, or a file that it has loaded
    changed, workers are forked as without it: `given_up` says why.
    """

    load: str
    config: Any
    memory: int
    deadline: Deadline = field(default_factory=Deadline)
    origin: ForkingServer | None = None
    given_up: str = ""
    _process: Worker | None = None
    _address: Address | None = None
    _path: list[str] = field(default_factory=list)
    _files: Sequence[str] = ()
    _versions: FileVersions = ()
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> TargetServer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process, and with it the workers that were forked from it."""
        self.give_up("it has ended")
        with self._lock:
            if self._process is not None:
                self._process.stop()
            if self._address is not None:
                with suppress(OSError):
                    os.unlink(str(self._address._forkserver_address))

    @property
    def seconds_loading(self) -> float:
        """The seconds that loading the target took, or has taken up to now."""
        return self._process.profile["starting"] if self._process is not None else 0.0

    def give_up(self, why: str = "no worker could be forked") -> None:
        """Forks no worker any more. Those that were forked go on, and so does the process, until the end."""
        self.given_up = self.given_up or why

    def connect(self) -> forkserver.ForkServer | None:
        """Where workers are forked, once the target is loaded; None where they cannot be. Raises OutOfTime."""
        with self._lock:
            if self._address is None and not self.given_up:
                self._start()
            if not self.given_up and not self._is_current():
                self.give_up("what was loaded has changed")
            return None if self.given_up else self._address

    def _start(self) -> None:
        sockets: Any = connection
        address = sockets.arbitrary_address("AF_UNIX")
        self._path = list(sys.path)
        config = ServerConfig(self.load, self.config, address)
        self._process = Worker(HANDLER, config, self.memory, math.inf, deadline=self.deadline, server=self.origin)
        try:
            files = self._process.call(FILES)
            if isinstance(files, WorkerCrash):
                self.give_up(describe(files.outcome))
                return
            self._files, self._versions = files, _versions(files)
            self._address = Address(address, self._process.pid)
            self._process.submit(SERVE)
        except (UsageError, InternalError) as error:
            self.give_up(str(error))
        finally:
            if self._address is None:
                self._process.stop()

    def _is_current(self) -> bool:
        """Whether a worker that loads the target now would load the same: others may be found after what was before."""
        return sys.path[: len(self._path)] == self._path and _versions(self._files) == self._versions


def _versions(files: Sequence[str]) -> FileVersions:
    return tuple(map(_version, files))


def _version(file: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
