"""Cases a second of one target by Ray workers on 1, 2, 4 and 8 GPUs of this machine. `make cluster-gpu`.

Each row is a campaign as `cluster: ray` runs it, on a Ray of its own that is given so many GPUs, with a Triton cache of
its own, measured for so many seconds from when every worker has judged so many plans. Jobs start beyond the first 256
plans, which have one replica each and not up to 32, so that all rows measure the same. Rows stand as soon as they are
measured. A GPU machine that has no Ray takes it as wheels; from the root of the project:

    python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --upgrade \\
        --target /tmp/site .whl/*.whl && export PYTHONPATH=/tmp/site:$PWD
    python3 benchmarks/reliability/cluster.py --gpus 1 2 4 --seconds 60
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from fuzz.campaign.config import CampaignConfig, parse_config
from fuzz.campaign.hosts.hosts import HOST_MODULE
from fuzz.campaign.hosts.ray_process import RayProcess
from fuzz.campaign.hosts.remote_hosts import RemoteHosts
from fuzz.campaign.protocol import HostEvent, Progress, Request, RequestEnded, Slice
from fuzz.campaign.runner import run_campaign

COLUMNS = ("GPUs", "workers", "cases/s", "ratio to the first row", "plans/s", "seconds to start", "plans judged before")
LONG = 1e5
"""Seconds of a slice that does not end while it is measured."""
PLAN = 1000
"""The plan that each job starts at."""
STARTS = 240.0
"""Seconds that all workers have to run their first case."""


@dataclass
class WorkerProgress:
    """Where one worker stands."""

    plans: int = 0
    cases: int = 0


@dataclass
class MeasuredHosts(RemoteHosts):
    """Counts what hosts report, and ends the campaign as Ctrl-C does when it has been measured."""

    folder: Path
    launch: Callable[[], RayProcess]
    workers: int = 1
    warm: int = 0
    patience: float = 0.0
    seconds: float = 0.0
    began: float = field(default_factory=time.monotonic)
    running: float = 0.0
    now: dict[int, WorkerProgress] = field(default_factory=dict)
    before: dict[int, WorkerProgress] = field(default_factory=dict)
    opened: float = 0.0
    closed: float = 0.0

    def __post_init__(self) -> None:
        super().__init__(self.folder, self.launch)

    def send(self, number: int, request: Request) -> None:
        super().send(number, replace(request, plan=PLAN) if isinstance(request, Slice) else request)

    def receive(self, seconds: float) -> Iterator[tuple[int, HostEvent]]:
        for number, event in super().receive(seconds):
            if type(event) is Progress and event.cases:
                self.now[number] = WorkerProgress(event.plans, event.cases)
            if isinstance(event, RequestEnded):
                print(f"worker {number}: {event}", file=sys.stderr, flush=True)
            yield number, event
        self._check()

    def _check(self) -> None:
        now = time.monotonic()
        if not self.running:
            if len(self.now) == self.workers:
                self.running = now
            elif now - self.began > STARTS:
                raise KeyboardInterrupt
        elif not self.opened:
            warm = all(progress.plans >= self.warm for progress in self.now.values())
            if warm or now - self.running > self.patience:
                self.opened, self.before = now, dict(self.now)
        elif now - self.opened > self.seconds:
            self.closed = self.closed or now
            raise KeyboardInterrupt

    def rate(self, unit: str) -> float:
        """Cases or plans a second, of all workers."""
        gained = sum(
            getattr(progress, unit) - getattr(self.before[number], unit) for number, progress in self.now.items()
        )
        return gained / (self.closed - self.opened)


def make_config(arguments: argparse.Namespace, gpus: int, folder: Path) -> CampaignConfig:
    share = 1 / arguments.per_gpu
    paths = {"corpus": str(folder / "corpus"), "store": f"sqlite:///{folder / 'store'}", "folder": str(folder)}
    keys = {"targets": [arguments.target], "backends": [arguments.backend], "slice": LONG, "budget": {"time": LONG}}
    cluster = {
        "cluster": "ray",
        "gpus_per_worker": share,
        "workers": gpus * arguments.per_gpu,
        "memory": arguments.memory,
    }
    return parse_config({"name": f"gpus-{gpus}", **keys, **paths, **cluster})


def measure(arguments: argparse.Namespace, gpus: int) -> MeasuredHosts:
    """A campaign on so many GPUs."""
    import ray

    with tempfile.TemporaryDirectory(prefix="fuzz-cluster-") as text:
        folder = Path(text)
        os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")
        # A machine whose memory grows as it is used seems full to Ray, which would end workers.
        os.environ["RAY_memory_monitor_refresh_ms"] = "0"
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        config = make_config(arguments, gpus, folder)
        options: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
        ray.init(num_gpus=gpus, num_cpus=config.workers, object_store_memory=200 << 20, **options)
        try:
            limits = {"warm": arguments.warm, "patience": arguments.patience, "seconds": arguments.seconds}
            launch = partial(RayProcess, HOST_MODULE, config.gpus_per_worker, config.cpus_per_worker)
            hosts = MeasuredHosts(folder, launch, workers=config.workers, **limits)
            state, _ = run_campaign(config, resume=False, say=lambda line: print(line, file=sys.stderr), hosts=hosts)
            state.store.close()
            if not hosts.closed:
                for log in sorted(folder.glob("host-*.log")):
                    print(f"{log.name}: {log.read_text()[-2000:]}", file=sys.stderr)
        finally:
            ray.shutdown()
    return hosts


def count_gpus() -> int:
    """GPUs of this machine."""
    import torch

    return torch.cuda.device_count()


def line(gpus: int, hosts: MeasuredHosts, first: float | None) -> tuple[str, float]:
    if not hosts.closed:
        return f"| {gpus} | {hosts.workers} | not measured: {len(hosts.now)} workers ran a case |  |  |  |  |", 0.0
    rate = hosts.rate("cases")
    least = min(progress.plans for progress in hosts.before.values())
    cells = [f"{rate:.0f}", f"{rate / (first or rate):.2f}", f"{hosts.rate('plans'):.1f}"]
    return (
        f"| {' | '.join([str(gpus), str(hosts.workers), *cells, f'{hosts.running - hosts.began:.0f}', str(least)])} |",
        rate,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, nargs="+", help="numbers of GPUs; 1, 2, 4, 8 as far as there are so many")
    parser.add_argument("--per-gpu", type=int, default=4, help="workers on each GPU")
    parser.add_argument("--seconds", type=float, default=60.0, help="what is measured")
    parser.add_argument("--warm", type=int, default=50, help="plans that each worker has judged before")
    parser.add_argument("--patience", type=float, default=90.0, help="seconds after which it is measured all the same")
    parser.add_argument("--target", default="layernorm_bw")
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--memory", default="16GiB", help="resident memory of one worker's process")
    arguments = parser.parse_args()
    numbers = arguments.gpus or [number for number in (1, 2, 4, 8) if number <= count_gpus()]
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|", flush=True)
    first: float | None = None
    for gpus in numbers:
        text, rate = line(gpus, measure(arguments, gpus), first)
        first = first or rate or None
        print(text, flush=True)
    return int(first is None)


if __name__ == "__main__":
    sys.exit(main())
