"""Runs processes on the nodes of a Ray cluster, each beside an actor, which passes on what it reads and writes.

Ray chooses the node, gives the actor its share of a GPU, and starts it elsewhere when it or its node dies on the way.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import wait
from typing import Any

from fuzz.errors import UsageError, one_line
from fuzz.escaping import clean_text
from fuzz.files import own_folder
from fuzz.worker.python_process import EXIT_SECONDS, PipeProcess, Received, isolated_environment, module_command

READ_SECONDS = 1.0
"""Seconds that an actor waits for something of its process."""
CALLS_AT_ONCE = {"read": 1, "write": 1}
"""Calls of these methods of an actor run one after another, beside those of the other methods."""
NODE_SECONDS = 30.0
"""Seconds between two signs of life of a process that waits for a node."""
LONGEST_REASON = 300
"""Characters of what Ray says of an actor that ended."""
FOLDER_PREFIX = "fuzz-away-"


class NodeActor:
    """Runs one process on its node, in a folder of its own, which it gets as its last argument."""

    def __init__(self) -> None:
        self.folder, self.lock = own_folder(FOLDER_PREFIX)

    def start(self, module: str) -> int:
        """Starts a module of this package; its process's number."""
        # The process ends with the thread that started it, and Ray's threads stay as long as the actor.
        self.process = PipeProcess.start(
            module_command(module), self.folder, folder=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=isolated_environment(self.folder),
        )  # fmt: skip
        return self.process.pid

    def read(self) -> Received:
        return self.process.receive(READ_SECONDS)

    def write(self, message: bytes) -> None:
        self.process.send(message)

    def interrupt(self) -> None:
        self.process.interrupt()


class RayProcess:
    """A process that runs a module on a node of the connected cluster, and takes so many GPUs and CPUs, or shares.

    While it waits for a node something of it that is empty is received now and then.
    """

    def __init__(self, module: str, gpus: float = 0.0, cpus: float = 1.0) -> None:
        import ray

        self._ray: Any = ray
        self.pid, self._is_killed = 0, False
        self._unsent: list[bytes] = []
        self._sending = threading.Lock()
        self._actor = ray.remote(
            num_gpus=gpus, num_cpus=cpus, max_restarts=-1, scheduling_strategy="SPREAD",
            concurrency_groups=CALLS_AT_ONCE,
        )(NodeActor).remote()  # fmt: skip
        self._pipe, self._end = Pipe(duplex=False)
        self._relay = threading.Thread(target=self._run_relay, args=(module,), daemon=True)
        self._relay.start()

    def _run_relay(self, module: str) -> None:
        """Passes on what the actor reads until the process ends, or the actor does."""
        received: Received = [], b"", ""
        with contextlib.suppress(OSError):
            try:
                # Waits for an actor that is being started again.
                started = self._actor.start.options(max_task_retries=-1).remote(module)
                while not self._ray.wait([started], timeout=NODE_SECONDS)[0]:
                    self._end.send(received)
                pid = self._ray.get(started)
                with self._sending:
                    self.pid = pid
                    for message in self._unsent:
                        self._write(message)
                while not received[2]:
                    received = self._ray.get(self._actor.read.options(concurrency_group="read").remote())
                    self._end.send(received)
            except self._ray.exceptions.RayError as error:
                reason = "killed" if self._is_killed else clean_text(one_line(error), LONGEST_REASON)
                self._end.send(([], b"", reason))

    @property
    def sources(self) -> list[int]:
        return [self._pipe.fileno()]

    def send(self, message: bytes) -> None:
        with self._sending:
            if self.pid:
                self._write(message)
            else:
                self._unsent.append(message)

    def _write(self, message: bytes) -> None:
        self._actor.write.options(concurrency_group="write").remote(message)

    def receive(self, seconds: float) -> Received:
        found: Received = self._pipe.recv() if wait([self._pipe], seconds) else ([], b"", "")
        return found

    def interrupt(self) -> None:
        self._actor.interrupt.remote()

    def kill(self) -> None:
        """Ends the actor for good; its process ends with it."""
        self._is_killed = True
        self._ray.kill(self._actor)

    def close(self) -> None:
        self.kill()
        self._pipe.close()
        # Nothing may be asked of Ray once the cluster is left.
        self._relay.join(EXIT_SECONDS)


@contextlib.contextmanager
def ray_connection(address: str | None, gpus: float) -> Iterator[None]:
    """Connects Ray for a `with`. UsageError says what is missing: the extra, the cluster, or a GPU.

    Ray's own threads print, which must not end up in the one JSON value on standard output.
    """
    # Ray reports its use to its makers otherwise.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ModuleNotFoundError as error:
        raise UsageError(f"{error.name} is not installed; cluster: ray needs the extra [ray]") from None
    with contextlib.redirect_stdout(sys.stderr), contextlib.ExitStack() as stack:
        if not ray.is_initialized():
            _connect(ray, address)
            stack.callback(ray.shutdown)
        if gpus and not ray.cluster_resources().get("GPU"):
            raise UsageError(f"cluster: no node has a GPU, and gpus_per_worker is {gpus:g}")
        yield


def _connect(ray: Any, address: str | None) -> None:
    # Ray itself would look for a cluster that was once started here, for minutes where that is gone.
    where = address or os.environ.get("RAY_ADDRESS") or "local"
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=where, log_to_driver=False, logging_level="ERROR", include_dashboard=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UsageError(f"cluster: cannot reach Ray at {where}: {one_line(error)}") from None
    finally:
        signal.signal(signal.SIGTERM, handler)
