"""The two checkouts that are compared, and processes of both at the same time on processors of their own."""

from __future__ import annotations

import compileall
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

Measured = TypeVar("Measured")
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Side:
    """A checkout, and folders that its processes import from before that (a release of a library)."""

    tree: Path
    release: Path | None = None

    def compile_bytecode(self) -> None:
        """Writes the bytecode of all its modules: processes write none, and would compile what they import again."""
        for folder in ("fuzz", "targets", "benchmarks"):
            compileall.compile_dir(self.tree / folder, quiet=1)

    def start(self, cpus: Sequence[int], cache: str, *command: str) -> subprocess.Popen[str]:
        """A Python process with these caches, on these processors; the first in `command` is a file or an option."""
        path = [str(self.release)] if self.release else []
        path += [str(self.tree), *filter(None, [os.environ.get("PYTHONPATH")])]
        caches = {"FUZZ_CACHE": cache, "TRITON_CACHE_DIR": f"{cache}/triton", "CUDA_VISIBLE_DEVICES": ""}
        surroundings = {**os.environ, **caches, "PYTHONPATH": os.pathsep.join(path), "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.Popen(
            [sys.executable, "-P", *command], cwd=cache, env=surroundings, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, preexec_fn=partial(os.sched_setaffinity, 0, cpus),
        )  # fmt: skip


def pairs(
    measure: Callable[[Side, str, Sequence[int], str], Measured],
    names: Iterable[str],
    sides: Sequence[Side],
    jobs: int,
    limit: float = math.inf,
    width: int = 1,
) -> Iterator[tuple[str, list[Measured]]]:
    """What the sides measured of each name, as they come; `jobs` names at a time, none begun after `limit` seconds.

    The sides of a name run at the same time, each on `width` processors of its own, with an empty cache.
    """
    end = time.monotonic() + limit
    processors = sorted(os.sched_getaffinity(0))
    free: SimpleQueue[list[list[int]]] = SimpleQueue()
    for job in range(jobs):
        places = [(job * len(sides) + side) * width for side in range(len(sides))]
        free.put([[processors[(place + number) % len(processors)] for number in range(width)] for place in places])

    def one(side: Side, name: str, cpus: Sequence[int]) -> Measured:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
            return measure(side, name, cpus, cache)

    def all_sides(name: str) -> tuple[str, list[Measured]] | None:
        cpus = free.get()
        try:
            if time.monotonic() >= end:
                return None
            with ThreadPoolExecutor(len(sides)) as pool:
                return name, list(pool.map(one, sides, [name] * len(sides), cpus))
        finally:
            # Each side has the processors of each in turn.
            free.put(cpus[::-1])

    with ThreadPoolExecutor(jobs) as pool:
        try:
            for done in as_completed([pool.submit(all_sides, name) for name in names]):
                if (measured := done.result()) is not None:
                    yield measured
        finally:
            # Who has seen enough waits for what is under way alone.
            pool.shutdown(wait=False, cancel_futures=True)
