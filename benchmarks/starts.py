"""From many random starts one and the same case: every planted bug, found anew from each seed and shrunk.

    python3 benchmarks/starts.py --starts 50 --jobs 16
    python3 benchmarks/starts.py --starts 50 --jobs 2 --targets layernorm_bw --only bessel drops_c1
    python3 benchmarks/starts.py --starts 50 --jobs 2 --only assumes_contiguous_dy --seconds 15

Each start is a run of its own seed that ends with its first finding, or, with --seconds, one that goes on for so
long: a bug that shows under several oracles is first seen under any of them, and its findings become one later. Each
start has a processor of its own where there are enough; other witnesses are not asked. Prints one line a bug: how
many starts ended in the case that most ended in, and the others; then a table for docs/scoreboard.md. Exit code 1
where a bug ends in one case from less than nine in ten of its starts.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import Queue, get_context
from pathlib import Path

from fuzz.model.entry import digest
from fuzz.run import environment
from fuzz.run.fuzzer import Fuzzer
from fuzz.run.options import RunOptions
from fuzz.run.watcher import Watcher
from fuzz.target.loader import load
from fuzz.worker.worker_server import preload

SHARE = 0.9
"""Of the starts of one bug, how many must end in the same case."""
LIMIT = 90.0
"""Seconds within which a start finds something."""


@dataclass(frozen=True)
class End:
    """Where one start came to: digests and dims of its findings' cases, executions of shrinking and seconds."""

    seed: int
    case: str
    dims: str
    executions: int
    seconds: float


def end(target: str, planted: str, seed: int, *, backend: str, seconds: float) -> End:
    """One start, in this process and workers of its own."""
    preload("fuzz.server_preload")
    with tempfile.TemporaryDirectory() as folder:
        most, limit = None if seconds else 1, seconds or LIMIT
        options = RunOptions(target, planted, backend, seed=seed, seconds=limit, max_findings=most)
        began = time.monotonic()
        where = load(target), backend, Path(folder)
        # Cross-checks would take most of a start's time.
        fuzzer = Fuzzer(options, *where, Watcher(), environment.versions(), with_cross_checks=False)
        bugs = fuzzer.run().bugs
        took = time.monotonic() - began
    if not bugs:
        return End(seed, "nothing found", "", 0, took)
    cases = " and ".join(sorted(digest(bug.case) for bug in bugs))
    dims = " and ".join(str(dict(bug.case.last.dims)) for bug in bugs)
    return End(seed, cases, dims, sum(bug.executions for bug in bugs), took)


def pinned(processors: Queue[int]) -> None:
    """Gives this process, and those that it starts, one of the processors."""
    os.sched_setaffinity(0, {processors.get()})


def line(name: str, ends: list[End]) -> str:
    """The cases that the starts ended in, most frequent first, each with its seeds where they are few."""
    parts = []
    for case, count in Counter(one.case for one in ends).most_common():
        same = [one for one in ends if one.case == case]
        seeds = f" seeds {', '.join(str(one.seed) for one in same)}" if count <= 5 else ""
        parts.append(f"{count} x {case} {same[0].dims}{seeds}")
    return f"{name}: " + "; ".join(parts)


def row(name: str, ends: list[End]) -> str:
    """One line of the table."""
    most = Counter(one.case for one in ends).most_common(1)[0][1]
    runs, seconds = sorted(one.executions for one in ends), sorted(one.seconds for one in ends)
    middle = len(ends) // 2
    return f"| {name} | {most} of {len(ends)} | {runs[middle]} | {seconds[middle]:.1f} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--targets", nargs="+", default=["layernorm_bw", "gelu_bw"])
    parser.add_argument("--only", nargs="+", help="names of planted bugs")
    parser.add_argument("--seconds", type=float, default=0.0, help="of each start; without, until its first finding")
    asked = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    bugs = [
        (name, bug) for name in asked.targets for bug in load(name).planted_bugs if not asked.only or bug in asked.only
    ]
    rows, poor = ["| planted bug | starts in one case | executions (median) | seconds (median) |"], 0
    rows.append("|---|---|---|---|")
    context, usable = get_context("spawn"), sorted(os.sched_getaffinity(0))
    processors: Queue[int] = context.Queue()
    for job in range(asked.jobs):
        processors.put(usable[job % len(usable)])
    with ProcessPoolExecutor(asked.jobs, context, pinned, (processors,)) as pool:
        start = partial(pool.submit, end, backend=asked.backend, seconds=asked.seconds)
        futures = {bug: [start(*bug, seed) for seed in range(asked.starts)] for bug in bugs}
        for (target, bug), running in futures.items():
            ends = [future.result() for future in running]
            print(line(f"{target} {bug}", ends), flush=True)
            rows.append(row(f"{target} {bug}", ends))
            poor += Counter(one.case for one in ends).most_common(1)[0][1] < SHARE * len(ends)
    print("\n".join(rows))
    return int(poor > 0)


if __name__ == "__main__":
    sys.exit(main())
