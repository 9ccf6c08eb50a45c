"""Runs hosts on the nodes of a Ray cluster, each beside an actor, which passes on what it reads and writes.

Ray chooses the node, gives the actor its share of a GPU, and starts it again elsewhere when it or its node dies.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzz.campaign.hosts.local_hosts import LocalHosts
from fuzz.campaign.hosts.remote_hosts import RemoteHosts
from fuzz.campaign.protocol import Beat, HostDied, HostEvent, Message, Waiting
from fuzz.errors import UsageError, one_line
from fuzz.files import lock_folder
from fuzz.text import clean_text

READ_SECONDS = 1.0
"""Seconds that an actor waits for events of its host."""
CALLS_AT_ONCE = {"read": 1, "write": 1}
"""Calls of these methods of an actor run one after another, beside those of the other methods."""
BEAT_SECONDS = 5.0
"""Seconds between two signs of life of a host that waits for a node."""
NODE_SECONDS = 30.0
"""Seconds after which a host without a node is reported to wait."""
LONGEST_REASON = 300
"""Characters of what Ray says of an actor that ended."""
FOLDER_PREFIX = "fuzz-away-"


class HostActor:
    """Runs one host at a time, in a folder of its own on its node."""

    def __init__(self) -> None:
        folder, self.lock = own_folder()
        self.hosts = LocalHosts(Path(folder), arguments=(folder,))

    def start(self) -> int:
        """Starts the host, in the place of the one before it; its process's number."""
        self.hosts.close()
        # Ray's threads stay as long as the actor: the host, which ends with the thread that started it, ends with it.
        self.hosts.start(0)
        return self.hosts.pid(0)

    def read(self) -> tuple[list[HostEvent], bytes]:
        """Events of the host, as soon as there is one, and what it has written to standard error."""
        events = [event for _, event in self.hosts.receive(READ_SECONDS)]
        return events, self.hosts.log(0).take()

    def write(self, *messages: Message) -> None:
        if self.hosts.pid(0):
            self.hosts.write(0, *messages)

    def interrupt(self) -> None:
        self.hosts.interrupt(0)


def own_folder() -> tuple[str, contextlib.ExitStack]:
    """(a folder of this process's own, what holds its lock); those of processes that have ended are removed."""
    for path in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*"):
        with contextlib.suppress(OSError), lock_folder(path, wait=False):
            # Links of others are left alone.
            shutil.rmtree(path, ignore_errors=True)
    folder, held = tempfile.mkdtemp(prefix=FOLDER_PREFIX), contextlib.ExitStack()
    held.enter_context(lock_folder(Path(folder)))
    return folder, held


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


@dataclass
class RayHosts(RemoteHosts):
    """Hosts on nodes of the cluster that is connected. Each takes so many GPUs and CPUs, or shares of them."""

    folder: Path = Path()
    gpus: float = 0.0
    cpus: float = 1.0
    _actors: dict[int, Any] = field(default_factory=dict)
    _pids: dict[int, int] = field(default_factory=dict)
    _pending: dict[Any, tuple[int, str]] = field(default_factory=dict)
    """Result of a call that runs -> (host, method)."""
    _events: deque[tuple[int, HostEvent]] = field(default_factory=deque)
    _started: dict[int, float] = field(default_factory=dict)
    _last_beat: float = 0.0

    def __post_init__(self) -> None:
        import ray

        super().__post_init__()
        self._ray: Any = ray

    def start(self, number: int) -> None:
        """Starts a host where its actor is, which may have to find a node first."""
        if number not in self._actors:
            actor = self._ray.remote(
                num_gpus=self.gpus, num_cpus=self.cpus, max_restarts=-1, scheduling_strategy="SPREAD",
                concurrency_groups=CALLS_AT_ONCE,
            )(HostActor)  # fmt: skip
            self._actors[number] = actor.remote()
        self.log(number).begin()
        self._started[number] = time.monotonic()
        # Waits for an actor that is being started again.
        self._call(number, "start", max_task_retries=-1)

    def _call(self, number: int, method: str, **options: Any) -> None:
        result = getattr(self._actors[number], method).options(**options).remote()
        self._pending[result] = number, method

    def write(self, number: int, *messages: Message) -> None:
        if number in self._actors:
            self._actors[number].write.options(concurrency_group="write").remote(*messages)

    def receive(self, seconds: float) -> Iterator[tuple[int, HostEvent]]:
        """As of all hosts; a host that waits for a node shows a sign of life."""
        if not self._events:
            self._wait(seconds)
        while self._events:
            yield self._events.popleft()

    def _wait(self, seconds: float) -> None:
        if not self._pending:
            time.sleep(seconds)
            return
        self._ray.wait(list(self._pending), num_returns=1, timeout=seconds)
        ready, _ = self._ray.wait(list(self._pending), num_returns=len(self._pending), timeout=0)
        for result in ready:
            self._take_result(result)
        now = time.monotonic()
        if now - self._last_beat > BEAT_SECONDS:
            self._last_beat = now
            for number in [number for number, method in self._pending.values() if method == "start"]:
                self._events.append((number, Waiting() if now - self._started[number] > NODE_SECONDS else Beat()))

    def _take_result(self, result: Any) -> None:
        number, method = self._pending.pop(result)
        try:
            value = self._ray.get(result)
        except self._ray.exceptions.RayError as error:
            if method == "start":
                self._drop(number)
            self._events.append((number, HostDied(clean_text(one_line(error), LONGEST_REASON))))
            return
        if method == "start":
            self._pids[number] = value
            self._call(number, "read", concurrency_group="read")
            return
        events, log = value
        self.log(number).append(log)
        self._events += [(number, event) for event in events]
        if not any(isinstance(event, HostDied) for event in events):
            self._call(number, "read", concurrency_group="read")

    def _drop(self, number: int) -> None:
        """Ends an actor for good; its host ends with it."""
        self._pids.pop(number, None)
        self._pending = {result: call for result, call in self._pending.items() if call[0] != number}
        actor = self._actors.pop(number, None)
        if actor is not None:
            self._ray.kill(actor)

    def interrupt(self, number: int) -> None:
        if number in self._actors:
            self._actors[number].interrupt.remote()

    def kill(self, number: int) -> None:
        if number in self._actors:
            self._drop(number)
            self._events.append((number, HostDied("killed")))

    def pid(self, number: int) -> int:
        return self._pids.get(number, 0)

    def close(self) -> None:
        for number in list(self._actors):
            self._drop(number)
        super().close()
