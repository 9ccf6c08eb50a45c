"""Runs a campaign for long, and measures whether it grows. `make soak ARGS="--cases 1000000"`.

Two parts. Real cases: a campaign over two functions without a mistake, with the memory and the open files of its
process and its hosts looked at all the time. Simulated hours: the loop of a campaign, its store and its heartbeats,
under a clock that runs ahead, with hosts that only say that they ran.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from fuzz.campaign.config import parse_config
from fuzz.campaign.hosts.hosts import Hosts
from fuzz.campaign.protocol import HostEvent, HostHeartbeat, Progress, Ready, Request, Slice, SliceDone, Started
from fuzz.campaign.runner import run_campaign
from fuzz.campaign.store import Campaign, Heartbeat, Store
from fuzz.clock import Clock
from fuzz.errors import FuzzError

FUZZ = str(Path(sys.executable).with_name("fuzz"))
PAGE = os.sysconf("SC_PAGE_SIZE")
EARLY, ALLOWED = 0.1, 1.05
MARKS = "<!-- soak -->", "<!-- /soak -->"
TARGETS = '''"""Two functions that are right."""
import torch
from fuzz import size, target, tensor

M, N = size("M", 1, 64), size("N", 1, 64)


@target(x=tensor(M, N), dtypes=("float32",), reference=lambda x: dict(y=x * 2))
def double(x):
    return dict(y=x * 2)


@target(x=tensor(M, N), dtypes=("float32", "float16"), reference=lambda x: dict(y=torch.clamp(x, min=0)))
def relu(x):
    return dict(y=torch.clamp(x, min=0))
'''


@dataclass
class Use:
    """Bytes resident and files open, of one process."""

    memory: int
    files: int


def use(pid: int) -> Use:
    memory = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    return Use(memory, len(list(Path(f"/proc/{pid}/fd").iterdir())))


@dataclass
class Samples:
    """What was used at each moment, by the share of the work done then."""

    samples: list[tuple[float, Use]] = field(default_factory=list)

    def near(self, share: float) -> Use:
        """The most that was used within 5 % of the work before that moment: single moments differ by chance."""
        nearest = min(self.samples, key=lambda sample: abs(sample[0] - share))[1]
        window = [used for done, used in self.samples if share - 0.05 <= done <= share] or [nearest]
        return Use(max(used.memory for used in window), max(used.files for used in window))

    def line(self, name: str, amount: str) -> str:
        early, late = self.near(EARLY), self.near(1.0)
        sizes = f"{early.memory / 2**20:.1f} | {late.memory / 2**20:.1f} | {late.memory / early.memory - 1:+.1%}"
        return f"| {name} | {amount} | {sizes} | {early.files} | {late.files} |"

    @property
    def holds(self) -> bool:
        early, late = self.near(EARLY), self.near(1.0)
        return late.memory <= ALLOWED * early.memory and late.files <= ALLOWED * early.files


def run_real(cases: int, folder: Path) -> dict[str, Samples]:
    """A campaign of so many cases, looked at four times a second: its own process, and its host."""
    (folder / "soak.py").write_text(TARGETS)
    keys = {"targets": ["soak.py"], "budget": {"cases": cases}, "slice": "20s", "seeds": [0], "name": "soak"}
    paths = {"corpus": "corpus", "store": "sqlite:///store.sqlite", "folder": "state"}
    (folder / "soak.yaml").write_text(json.dumps({**keys, **paths}))
    samples = {"campaign": Samples(), "host": Samples()}
    with (folder / "log").open("wb") as log:
        running = subprocess.Popen([FUZZ, "campaign", "soak.yaml"], cwd=folder, stderr=log)
        with running:
            while running.poll() is None:
                time.sleep(0.25)
                with suppress(OSError, ValueError, FuzzError):  # It starts, or it ends.
                    sample(running.pid, folder, cases, samples)
    if running.returncode != 0:
        raise SystemExit((folder / "log").read_text())
    return samples


def sample(pid: int, folder: Path, cases: int, samples: dict[str, Samples]) -> None:
    with Store(f"sqlite:///{folder / 'store.sqlite'}") as store:
        (campaign,) = store.read(Campaign)
        (host,) = [beat.pid for beat in store.read(Heartbeat, campaign=campaign.id)] or [0]
    done = campaign.cases / cases
    for name, process in (("campaign", pid), ("host", host)):
        used = use(process) if process else Use(0, 0)
        if used.memory:  # None has ended.
            samples[name].samples.append((done, used))


@dataclass(frozen=True)
class Ahead(Clock):
    """A clock that is moved by hand."""

    now: list[float] = field(default_factory=lambda: [0.0])

    def monotonic(self) -> float:
        return self.now[0]

    def wall(self) -> float:
        return 1e9 + self.now[0]


@dataclass
class SimulatedHosts(Hosts):
    """Hosts that only say that they ran. Each look moves the clock by half a second."""

    clock: Ahead
    samples: Samples
    total: float
    name: str = "simulated"
    requests: dict[int, tuple[Slice, float]] = field(default_factory=dict)
    waiting: list[tuple[int, HostEvent]] = field(default_factory=list)

    def start(self, number: int) -> None:
        self.waiting.append((number, Ready()))

    def send(self, number: int, request: Request) -> None:
        assert isinstance(request, Slice)
        self.requests[number] = request, self.clock.monotonic()
        self.waiting.append((number, Started(400)))

    def receive(self, seconds: float) -> Iterator[tuple[int, HostEvent]]:
        self.clock.now[0] += seconds
        events, self.waiting = self.waiting, []
        yield from events
        for number, (request, began) in list(self.requests.items()):
            yield number, HostHeartbeat()
            yield from self._progress(number, request, self.clock.monotonic() - began)
        if self.clock.now[0] % 60 < seconds:
            self.samples.samples.append((self.clock.now[0] / self.total, use(os.getpid())))

    def _progress(self, number: int, request: Slice, passed: float) -> Iterator[tuple[int, HostEvent]]:
        counts = int(passed * 10), int(passed * 100), 0, 0.5, passed, (f"cell {request.plan % 300}",)
        if passed < request.seconds:
            yield number, Progress(*counts)
            return
        del self.requests[number]
        yield number, SliceDone(*counts)
        yield number, Ready()

    def write(self, number: int, data: bytes) -> None: ...
    def interrupt(self, number: int) -> None: ...
    def kill(self, number: int) -> None: ...
    def close(self) -> None: ...

    def pid(self, number: int) -> int:
        return os.getpid()


def run_simulated(seconds: float, folder: Path) -> tuple[Samples, int]:
    """The loop of a campaign for so many simulated seconds; its samples, and the heartbeats that it took."""
    clock, samples = Ahead(), Samples()
    paths = {"corpus": str(folder / "simulated"), "store": f"sqlite:///{folder / 'simulated.sqlite'}"}
    keys = {"targets": ["gelu_bw", "silu"], "budget": {"time": seconds}, "workers": 1, "name": "simulated"}
    config = parse_config({**keys, **paths, "folder": str(folder / "state")})
    hosts = SimulatedHosts(clock, samples, seconds)
    state, _ = run_campaign(config, resume=False, say=lambda text: None, clock=clock, hosts=hosts)
    with state.store:
        count = len(state.store.statistics(limit=1 << 31))
    return samples, count


def write(path: Path, lines: list[str]) -> None:
    """Puts the lines into the document's table, in the place of earlier ones of the same things."""
    page = path.read_text(encoding="utf-8")
    start, end = (page.index(mark) for mark in MARKS)
    columns = ("what", "how long", "MiB at 10 %", "MiB at the end", "", "files at 10 %", "files at the end")
    rows = {row.split(" | ")[0]: row for row in (*page[start:end].splitlines()[3:], *lines)}
    table = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|", *rows.values()]
    body = "\n".join([MARKS[0], *table])
    path.write_text(f"{page[:start]}{body}\n{page[end:]}", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1_000_000, help="real cases, or 0")
    parser.add_argument("--seconds", type=float, default=36_000.0, help="simulated seconds, or 0")
    parser.add_argument("--write", type=Path, help="the document whose table is written")
    arguments = parser.parse_args()
    lines, holds = [], True
    with tempfile.TemporaryDirectory(prefix="fuzz-soak-") as text:
        folder = Path(text)
        if arguments.seconds:
            samples, count = run_simulated(arguments.seconds, folder)
            lines.append(samples.line("a campaign's loop, simulated", f"{arguments.seconds:.0f} s, {count} statistics"))
            holds = holds and samples.holds
            print(lines[-1], flush=True)
        for name, samples in run_real(arguments.cases, folder).items() if arguments.cases else ():
            label = {"campaign": "a campaign's process", "host": "its host"}[name]
            lines.append(samples.line(label, f"{arguments.cases} cases"))
            holds = holds and samples.holds
            print(lines[-1], flush=True)
    if arguments.write:
        write(arguments.write, lines)
    return int(not holds)


if __name__ == "__main__":
    sys.exit(main())
