"""A neighbour that fills the GPU, beside runs on it: `python3 benchmarks/reliability/neighbour.py --runs 30 --jobs 10`.

The neighbour takes all memory of the GPU by plain allocations, at times but for some 200 MB, holds it for some seconds,
gives part of it back, and begins again. Beside it good kernels and planted bugs are fuzzed with the backend `cuda`.
A good kernel must have no finding and a planted bug one, by a run that ends in order. Exit code 1 where one does not,
or where the neighbour did not fill the GPU from before the first run until after the last one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
KERNELS = (
    ("layernorm_bw", ""), ("layernorm_bw", "drops_c1"), ("matmul", ""), ("matmul", "last_block_replaces"),
    ("layernorm_bw", "forgets_weight"), ("matmul", "k_off_by_one"),
)  # fmt: skip
"""Targets, each with one of its planted bugs or none."""
SECONDS = 50
"""What one run may take."""
LATE = 25
"""Seconds after that at which a run counts as one that does not end."""
FIRST_STEP, LAST_STEP = 4 << 30, 2 << 20
"""Bytes of the first allocations, and of the last ones, which fill what is left."""
LEFT = 200 << 20
"""Bytes that are left free every second time."""
PATIENCE = 90.0
"""Seconds in which the neighbour must have filled the GPU once: it imports torch and makes a context first."""
END_SECONDS = 5.0
"""Seconds in which a process ends that has closed its output."""
HOLDS = re.compile(r"neighbour: holds (\d+) MiB")


@dataclass(frozen=True)
class NeighbourRun:
    """One `fuzz run`: its exit code, its JSON value, and what it wrote to standard error."""

    target: str
    planted: str
    code: int
    value: dict[str, Any]
    error: str

    @property
    def findings(self) -> list[dict[str, Any]]:
        return list(self.value.get("findings", []))

    @property
    def invented(self) -> int:
        """Findings that are none of the kernel's."""
        due = 1 if self.planted else 0
        return sum(found["oracle"] != "accuracy" for found in self.findings) if due else len(self.findings)

    @property
    def has_ended_in_order(self) -> bool:
        return self.code == (1 if self.planted else 0) and "Traceback" not in self.error

    @property
    def waited(self) -> float:
        """Seconds that it waited before it tried again what had had no memory."""
        return float(self.value.get("profile", {}).get("short of memory", 0.0))

    @property
    def is_lost(self) -> bool:
        """Whether the run did not end in order, or has not found its planted bug."""
        return not self.has_ended_in_order or bool(self.planted) and not self.findings

    def __str__(self) -> str:
        value, found = self.value, [f"{each['oracle']}/{each['symptom']}" for each in self.findings]
        line = f"{self.target} {self.planted or 'good'}: exit {self.code}, {value.get('cases', 0)} cases"
        line += f", {value.get('not_run', 0)} not run, {self.waited:.1f} s waited for memory, findings {found}"
        return line + (f"\n{self.error[-1500:]}" if self.is_lost or self.invented else "")


def run_beside(target: str, planted: str, seed: int, folder: Path, backend: str = "cuda") -> NeighbourRun:
    """Fuzzes a kernel."""
    command = [sys.executable, "-m", "fuzz", "run", target, "--backend", backend, "--json", "--profile", "--seed"]
    command += [str(seed), "--seconds", str(SECONDS), "--corpus", str(folder / f"{target}-{planted}-{seed}")]
    command += ["--planted", planted, "--max-findings", "1"] if planted else []
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, env=environment, timeout=SECONDS + LATE, check=False
        )
    except subprocess.TimeoutExpired as late:
        return NeighbourRun(target, planted, -1, {}, f"it had not ended after {late.timeout} s")
    value = json.loads(done.stdout) if done.stdout.strip() else {}
    return NeighbourRun(target, planted, done.returncode, value, done.stderr)


def run_all(count: int, jobs: int, seed: int, beside: Neighbour) -> Iterator[NeighbourRun]:
    """So many runs beside a neighbour, some at a time; each as it ends. RuntimeError where the neighbour has ended."""
    with tempfile.TemporaryDirectory(prefix="fuzz-neighbour-") as name, ThreadPoolExecutor(jobs) as pool:
        runs = [
            pool.submit(run_beside, *KERNELS[number % len(KERNELS)], seed + number, Path(name))
            for number in range(count)
        ]
        try:
            for run in runs:
                yield run.result()
                beside.check()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


class Neighbour:
    """A process that fills the GPU in turns, and what it said: the MiB that it held at each of its turns."""

    def __init__(self, command: Sequence[str]) -> None:
        # Each allocation is the driver's, and each that is given back is free for others.
        environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        self.held: list[int] = []
        self.has_filled = threading.Event()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                print(line, end="", file=sys.stderr, flush=True)
                if told := HOLDS.fullmatch(line.strip()):
                    self.held.append(int(told[1]))
                    if self.held[-1]:
                        self.has_filled.set()
        # Whoever waits for memory to be held learns of the end, too.
        self.has_filled.set()

    def wait(self, seconds: float) -> None:
        """Waits until it holds memory. RuntimeError where it ends before, or takes longer."""
        self.has_filled.wait(seconds)
        if not any(self.held):
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(END_SECONDS)
            self.check()
            raise RuntimeError(f"the neighbour has not filled the GPU in {seconds:.0f} s")

    def check(self) -> None:
        """RuntimeError where it has ended."""
        if self.process.poll() is not None:
            raise RuntimeError(f"the neighbour has ended with exit code {self.process.returncode}")

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.reader.join()

    def __str__(self) -> str:
        if not self.held:
            return "the neighbour held nothing"
        low, middle, high = min(self.held), statistics.median_low(self.held), max(self.held)
        turns = f"the neighbour filled the GPU {len(self.held)} times"
        return f"{turns}, with {low} to {high} MiB, in the median {middle} MiB"


@contextmanager
def neighbour(seed: int) -> Iterator[Neighbour]:
    """A neighbour that holds the GPU already, and does so until the end. RuntimeError where it does not."""
    beside = Neighbour([sys.executable, str(Path(__file__)), "--fill", "--seed", str(seed)])
    try:
        beside.wait(PATIENCE)
        yield beside
        beside.check()
    finally:
        beside.end()


def fill_in_turns(rng: random.Random) -> None:
    """Fills and empties the GPU until the process that started this one ends."""
    parent, turn, held = os.getppid(), 0, []
    while os.getppid() == parent:
        spare = allocate(LEFT) if turn % 2 else None
        held += fill()
        del spare
        print(f"neighbour: holds {sum(map(len, held)) >> 20} MiB", flush=True)
        time.sleep(rng.uniform(1.0, 4.0))
        rng.shuffle(held)
        del held[: rng.randint(len(held) // 3, len(held))]
        time.sleep(rng.uniform(0.5, 3.0))
        turn += 1


def fill() -> list[Any]:
    """Allocations that leave nothing free: ever smaller ones, each size until one fails."""
    held, step = [], FIRST_STEP
    while step >= LAST_STEP:
        tensor = allocate(step)
        if tensor is None:
            step //= 2
        else:
            held.append(tensor)
    return held


def allocate(size: int) -> Any:
    """A tensor of so many bytes on the GPU; None where it has no room, not even for a context."""
    import torch

    try:
        return torch.empty(size, dtype=torch.uint8, device="cuda")
    except RuntimeError as error:  # Without torch's cache of memory, it is not the error that torch has for this.
        if "out of memory" not in str(error):
            raise
        return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--jobs", type=int, default=10, help="runs at a time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fill", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.fill:
        fill_in_turns(random.Random(arguments.seed))
        return 0
    from fuzz.backends import BACKENDS

    if reason := BACKENDS["cuda"].unavailable_reason():
        print(f"cannot be tried here: {reason}", file=sys.stderr)
        return 0
    runs = []
    with neighbour(arguments.seed) as beside:
        for run in run_all(arguments.runs, arguments.jobs, arguments.seed, beside):
            print(run, flush=True)
            runs.append(run)
    lost, invented = sum(run.is_lost for run in runs), sum(run.invented for run in runs)
    short = sum(run.waited > 0 or bool(run.value.get("not_run")) for run in runs)
    print(f"{len(runs)} runs, {lost} lost, {invented} findings invented; {short} runs had no memory for some case")
    print(beside)
    return int(bool(lost or invented))


if __name__ == "__main__":
    sys.exit(main())
