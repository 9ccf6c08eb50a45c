"""Cluster: hosts on the nodes of a Ray cluster. Each is a process beside an actor, which passes lines on, both ways.

Ray chooses the node, gives the actor its share of a GPU, and starts it again elsewhere when it or its node dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fuzz.campaign.local_hosts import HOST
from fuzz.campaign.protocol import Event
from fuzz.errors import UsageError, one_line

LONGEST_LINE = 1 << 30
"""Bytes of a line that a host writes, at most."""
MOST = 1000
"""Lines that travel together."""
BEAT = 5.0
"""Seconds between two signs of life that are given for a host that waits for its place."""
PATIENCE = 30.0
"""Seconds after which it is told that a host waits."""
LONGEST_REASON = 300
"""Characters of what Ray says of an actor that ended."""
FOLDER = "fuzz-away-"


class Place:
    """An actor: has one host at a time, in a folder of its own on its node."""

    def __init__(self) -> None:
        self.process: Process | None = None
        self.lines: asyncio.Queue[bytes] = asyncio.Queue()
        self.folder, self.lock = own_folder()

    async def begin(self) -> int:
        """Starts the host; its process's number."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        # Ray's threads stay as long as the actor: the host, which ends with the thread that started it, ends with it.
        self.process = await asyncio.create_subprocess_exec(
            *HOST, self.folder, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=LONGEST_LINE, start_new_session=True
        )
        self.lines = asyncio.Queue()
        asyncio.get_running_loop().create_task(self._pass_on(self.process))
        return self.process.pid

    async def _pass_on(self, process: Process) -> None:
        """Passes on what the host says, then how it ended."""
        lines = self.lines
        assert process.stdout is not None and process.stderr is not None
        log = asyncio.get_running_loop().create_task(_log(process.stderr, lines))
        async for line in process.stdout:
            lines.put_nowait(line)
        code = await process.wait()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(log, 1)
        why = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        lines.put_nowait(json.dumps({"kind": "died", "why": why}).encode())

    async def events(self) -> list[bytes]:
        """Lines of the host, as soon as there is one."""
        found = [await self.lines.get()]
        while not self.lines.empty() and len(found) < MOST:
            found.append(self.lines.get_nowait())
        return found

    async def write(self, data: bytes) -> None:
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.write(data)

    async def interrupt(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(signal.SIGINT)


async def _log(errors: asyncio.StreamReader, lines: asyncio.Queue[bytes]) -> None:
    while data := await errors.read(1 << 16):
        lines.put_nowait(json.dumps({"kind": "log", "text": data.decode(errors="replace")}).encode())


def own_folder() -> tuple[str, int]:
    """(a folder of this process's own, its lock); those of processes that have ended are removed."""
    for path in Path(tempfile.gettempdir()).glob(f"{FOLDER}*"):
        with contextlib.suppress(OSError):
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(handle)
    made = tempfile.mkdtemp(prefix=FOLDER)
    handle = os.open(made, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    return made, handle


@contextlib.contextmanager
def connected(address: str | None, gpus: float) -> Iterator[None]:
    """With Ray. UsageError says what is missing: the extra, the cluster, or a GPU.

    Ray's own threads print what it has to say, which must not end up in the one JSON value on standard output.
    """
    # Ray tells its makers of its use unless it is told not to.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ModuleNotFoundError as error:
        raise UsageError(f"{error.name} is not installed; cluster: ray needs the extra [ray]") from None
    with contextlib.redirect_stdout(sys.stderr), contextlib.ExitStack() as ending:
        if not ray.is_initialized():
            _connect(ray, address)
            ending.callback(ray.shutdown)
        if gpus and not ray.cluster_resources().get("GPU"):
            raise UsageError(f"cluster: no node has a GPU, and gpus_per_worker is {gpus:g}")
        yield


def _connect(ray: Any, address: str | None) -> None:
    # Ray itself would look for a cluster that was once started here, for minutes where that is gone.
    where = address or os.environ.get("RAY_ADDRESS") or "local"
    ended = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=where, log_to_driver=False, logging_level="ERROR", include_dashboard=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UsageError(f"cluster: cannot reach Ray at {where}: {one_line(error)}") from None
    finally:
        signal.signal(signal.SIGTERM, ended)


@dataclass
class RayCarrier:
    """Reaches hosts on nodes of the cluster that is connected.

    Each takes so many GPUs and CPUs, or shares of them. What it writes to standard error goes to a file of `folder`.
    """

    folder: Path
    gpus: float = 0.0
    cpus: float = 1.0
    name: str = "ray"
    ray: Any = None
    _actors: dict[int, Any] = field(default_factory=dict)
    _pids: dict[int, int] = field(default_factory=dict)
    _asked: dict[Any, tuple[int, str]] = field(default_factory=dict)
    _events: deque[tuple[int, Event]] = field(default_factory=deque)
    _since: dict[int, float] = field(default_factory=dict)
    _beaten: float = 0.0

    def __post_init__(self) -> None:
        import ray

        self.ray = ray

    def start(self, number: int) -> None:
        """Starts a host where its actor is, which may have to find a node first."""
        if number not in self._actors:
            options = {"num_gpus": self.gpus, "num_cpus": self.cpus, "max_restarts": -1}
            made = self.ray.remote(**options, scheduling_strategy="SPREAD")(Place)
            self._actors[number] = made.remote()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log(number).write_bytes(b"")
        self._since[number] = time.monotonic()
        # Waits for an actor that is being started again.
        self._ask(number, "begin", max_task_retries=-1)

    def log(self, number: int) -> Path:
        return self.folder / f"host-{number}.log"

    def _ask(self, number: int, what: str, **options: int) -> None:
        method = getattr(self._actors[number], what)
        self._asked[method.options(**options).remote() if options else method.remote()] = number, what

    def write(self, number: int, data: bytes) -> None:
        """Lines for a host; where it has ended, `collect` tells."""
        if number in self._actors:
            self._actors[number].write.remote(data)

    def collect(self, seconds: float) -> Iterator[tuple[int, Event]]:
        """(host, event) for all that have come; a host that waits for its place shows a sign of life."""
        if not self._events:
            self._listen(seconds)
        while self._events:
            yield self._events.popleft()

    def _listen(self, seconds: float) -> None:
        if not self._asked:
            time.sleep(seconds)
            return
        self.ray.wait(list(self._asked), num_returns=1, timeout=seconds)
        ready, _ = self.ray.wait(list(self._asked), num_returns=len(self._asked), timeout=0)
        for asked in ready:
            self._hear(asked)
        if time.monotonic() - self._beaten > BEAT:
            self._beaten = time.monotonic()
            self._events += [(number, self._waits(number)) for number, what in self._asked.values() if what == "begin"]

    def _waits(self, number: int) -> Event:
        return {"kind": "waits" if time.monotonic() - self._since[number] > PATIENCE else "beat"}

    def _hear(self, asked: Any) -> None:
        number, what = self._asked[asked]
        try:
            value = self.ray.get(asked)
        except self.ray.exceptions.RayError as error:
            del self._asked[asked]
            if what == "begin":
                self._drop(number)
            self._events.append((number, {"kind": "died", "why": one_line(error)[:LONGEST_REASON]}))
            return
        del self._asked[asked]
        if what == "begin":
            self._pids[number] = value
            self._ask(number, "events")
            return
        events = [json.loads(line) for line in value]
        if events[-1]["kind"] != "died":
            self._ask(number, "events")
        for event in events:
            if event["kind"] == "log":
                with self.log(number).open("a", encoding="utf-8") as file:
                    file.write(event["text"])
            else:
                self._events.append((number, event))

    def _drop(self, number: int) -> None:
        """Ends an actor for good; its host ends with it."""
        self._pids.pop(number, None)
        self._asked = {asked: told for asked, told in self._asked.items() if told[0] != number}
        actor = self._actors.pop(number, None)
        if actor is not None:
            self.ray.kill(actor)

    def interrupt(self, number: int) -> None:
        """Asks a host to end its slice in an orderly way."""
        if number in self._actors:
            self._actors[number].interrupt.remote()

    def kill(self, number: int) -> None:
        """Ends a host at once; `collect` tells of it."""
        if number in self._actors:
            self._drop(number)
            self._events.append((number, {"kind": "died", "why": "killed"}))

    def pid(self, number: int) -> int:
        """The host's process on its node."""
        return self._pids.get(number, 0)

    def close(self) -> None:
        """Ends every host."""
        for number in list(self._actors):
            self._drop(number)
