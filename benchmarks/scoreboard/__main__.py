"""The scoreboard: acceptance rules against planted bugs and honest cases, the same cases for every rule.

    python -m benchmarks.scoreboard [--cases N] [--honest-cases N] [--operations N] [--seed N] [--jobs N]
                                    [--minutes N] [--out FOLDER]

writes scoreboard.md and scoreboard.svg into the folder, docs by default, unless a target with planted bugs could not be
measured; the last section of scoreboard.md stays as it is. A bug counts as caught by a rule where, in
some case, the rule rejects the planted kernel and accepts the good one: who rejects everything tells nothing apart. A
false alarm is a case in which a rule rejects a good kernel. Cases in which an intermediate may leave float32's range
decide nothing and are left out. What is measured is kept in .scoreboard, a file for each target, and not measured
again.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from random import Random

from benchmarks.honest.__main__ import targets_of
from benchmarks.processors import share_of
from benchmarks.scoreboard.board import Board, read
from benchmarks.scoreboard.measure import EAGER, FIRST

ROOT = Path(__file__).parents[2]
STORE = ROOT / ".scoreboard"
TRITON = (*FIRST, "rms_norm", "softmax", "matmul", "cross_entropy", "cross_entropy_bw")
HONEST = ("cumsum", "index_add", "embedding", "softplus_bw", "row_sum", "group_norm_by_steps", "sequential_sum")
"""Of torch's own operations, those that broke the envelope's prototype."""
KERNELS = ("tutorials", "conch", "liger", "fla")
OPERATIONS = ("flag_gems", "torch")
"""Sets of hundreds of operations, of which some are drawn by the seed."""
LIMIT = 1200.0
"""Seconds of one target, at most."""


@dataclass(frozen=True)
class Task:
    """A target to measure, in so many cases; of the honest set where it has a title."""

    target: str
    cases: int
    seed: int
    title: str = ""

    @property
    def place(self) -> Path:
        name = self.target.rpartition("/")[2].replace(":", "-")
        return STORE / f"{self.title or 'planted'}-{name}-{self.cases}-{self.seed}.json"


def tasks(asked: argparse.Namespace) -> Iterator[Task]:
    """The targets of the scoreboard, and those of the honest set that can be loaded here."""
    for name in TRITON:
        yield Task(name, asked.cases, asked.seed)
    for name in HONEST:
        yield Task(f"{EAGER}:{name}", asked.cases // 2, asked.seed)
    for title in (*KERNELS, *OPERATIONS):
        names = targets_of(title)
        if title in OPERATIONS and len(names) > asked.operations:
            names = sorted(Random(asked.seed).sample(names, asked.operations))
        yield from (Task(name, asked.honest_cases, asked.seed, title) for name in names)


def measure_all(found: list[Task], jobs: int, end: float) -> None:
    """Measures what is not kept yet, until the time ends; jobs divide the processors."""
    waiting: SimpleQueue[Task] = SimpleQueue()
    for task in found:
        if not task.place.is_file():
            waiting.put(task)

    def work(processors: list[int]) -> None:
        # Of the thread that calls: the processes that it starts inherit them.
        os.sched_setaffinity(0, processors)
        while time.monotonic() < end:
            try:
                task = waiting.get_nowait()
            except Empty:
                return
            began = time.monotonic()
            outcome = measure(task)
            print(f"{task.target}: {outcome}, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        for future in [pool.submit(work, share_of(job, jobs)) for job in range(jobs)]:
            future.result()


def measure(task: Task) -> str:
    """Measures one target in a process of its own, and says how that ended."""
    command = [sys.executable, "-m", "benchmarks.scoreboard.measure", task.target, str(task.place)]
    command += ["--cases", str(task.cases), "--seed", str(task.seed), "--title", task.title]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return f"it took more than {LIMIT:g} s"
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1][:200] if done.returncode else "ok"


def added(found: list[Task]) -> Board:
    """The sum of the boards that are kept, and what is missing of them."""
    unmeasured = [task.target.removeprefix(f"{ROOT}/") for task in found if not task.place.is_file()]
    board = Board(planned=sum(task.cases for task in found), unmeasured=unmeasured)
    for task in found:
        if task.place.is_file():
            board.add(read(task.place))
    return board


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=300, help="of each Triton target; half as many of torch's")
    parser.add_argument("--honest-cases", type=int, default=40, help="of each target of the honest set")
    parser.add_argument("--operations", type=int, default=100, help="of FlagGems and of torch, drawn by the seed")
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="after which no further target is begun")
    parser.add_argument("--out", type=Path, default=ROOT / "docs")
    asked = parser.parse_args()
    found = list(tasks(asked))
    measure_all(found, asked.jobs, time.monotonic() + 60 * asked.minutes)
    planted, honest = (added([task for task in found if bool(task.title) == titled]) for titled in (False, True))
    for board in (planted, honest):
        if board.unmeasured:
            print(f"not measured, {len(board.unmeasured)}: {', '.join(board.unmeasured)}", file=sys.stderr)
    if planted.unmeasured:
        raise SystemExit("nothing is written: targets with planted bugs are missing")
    from benchmarks.scoreboard.page import page, plot

    asked.out.mkdir(parents=True, exist_ok=True)
    plot(planted, asked.out / "scoreboard.svg")
    document, published = asked.out / "scoreboard.md", ROOT / "docs" / "scoreboard.md"
    old = (document if document.is_file() else published).read_text(encoding="utf-8")
    document.write_text(page(planted, honest, how_measured(found, asked), old), encoding="utf-8")


def how_measured(found: list[Task], asked: argparse.Namespace) -> str:
    """The days on which what is kept was measured, and the options."""
    kept = [task.place for task in found if task.place.is_file()]
    days = sorted({time.strftime("%Y-%m-%d", time.gmtime(place.stat().st_mtime)) for place in kept})
    options = " ".join(
        f"--{name} {getattr(asked, name.replace('-', '_'))}" for name in ("cases", "honest-cases", "operations", "seed")
    )
    return f"Measured on {' and '.join(dict.fromkeys((days[0], days[-1])))}, {len(kept)} targets (`{options}`)."


if __name__ == "__main__":
    main()
