"""Measures by how much runs exceed `--seconds` while other work keeps every processor busy: `make faults`.

Targets without mistakes, with planted bugs, and such that hang, are slow, or end their process; every third run begins
with an empty cache of compiled kernels. The time is that of the whole process, from its start to its end.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from fuzz.run.result import NOTHING_RAN

HERE = Path(__file__).parent
MARKS = "<!-- overrun -->", "<!-- /overrun -->"
MOST_MEDIAN, MOST_WORST = 0.05, 0.10
"""Shares of its time by which a run may exceed it: half of the runs, and all."""
SUBJECTS: tuple[tuple[str, ...], ...] = (
    ("gelu_bw",),
    ("layernorm_bw",),
    ("gelu_bw", "--planted", "pdf_without_x"),
    ("layernorm_bw", "--planted", "last_row_lost"),
    *((f"{HERE / file}.py:{name}",) for file, name in (
        ("late", "hangs"), ("late", "slow"), ("late", "slow_reference"), ("late", "many"),
        ("broken", "sevens"), ("deadly", "fills"),
    )),
)  # fmt: skip


@dataclass(frozen=True)
class TimedRun:
    """One run: what ran, the seconds it was given and took, what its JSON says, processes that outlived it, and how
    many processes wanted a processor on average when it ended.

    `gone` is when the last process had ended that the run killed, which may have gigabytes of memory to give back.
    """

    subject: str
    seconds: float
    taken: float
    gone: float
    value: dict[str, object]
    left: int
    load: float

    @property
    def overrun(self) -> float:
        return self.taken / self.seconds - 1


@contextmanager
def busy_processors(count: int) -> Iterator[None]:
    """So many processes that only compute."""
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def run(subject: tuple[str, ...], seconds: float, seed: int, cold: bool) -> TimedRun:
    with tempfile.TemporaryDirectory(prefix="fuzz-overrun-") as folder:
        mark = f"{folder}-{seed}"
        environment = {**os.environ, "FUZZ_OVERRUN": mark}
        if cold:
            environment["TRITON_CACHE_DIR"] = f"{folder}/cache"
        command = [sys.executable, "-m", "fuzz", "run", *subject, "--backend", "cpu", "--json"]
        command += ["--seconds", f"{seconds:g}", "--seed", str(seed), "--corpus", f"{folder}/found"]
        start = time.monotonic()
        with Path(folder, "out").open("wb") as out, ThreadPoolExecutor(1) as pool:
            process = subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE, env=environment, text=True)
            assert process.stderr
            # Every process of the run holds the pipe.
            errors = pool.submit(process.stderr.read)
            code, taken = process.wait(), time.monotonic() - start
            text, gone = errors.result(), time.monotonic() - start
        if code not in (0, 1) and NOTHING_RAN not in text:
            raise RuntimeError(f"{command} ended with {code}: {text}")
        result = Path(folder, "out").read_text()
        value = json.loads(result) if result else {}
        return TimedRun(" ".join(subject), seconds, taken, gone, value, processes_with(mark), os.getloadavg()[0])


def processes_with(mark: str) -> int:
    """Processes whose environment holds the mark, a moment after the run."""
    time.sleep(0.5)
    count = 0
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            count += mark.encode() in path.read_bytes()
    return count


def line(timed: TimedRun) -> str:
    value = timed.value
    findings: Any = value.get("findings", [])
    unfinished = sum(bool(found["cut_off"]) for found in findings)
    counts = f"{value.get('cases', 'no')} cases, {len(findings)} findings, {unfinished} not yet shrunk"
    head = f"{timed.overrun:+7.1%}  {timed.taken:6.1f} s ({timed.gone:.1f} s) of {timed.seconds:g}  {timed.subject}"
    return f"{head}: {counts}, cut off {value.get('cut_off')}, processes left {timed.left}, load {timed.load:.1f}"


def write(path: Path, runs: list[TimedRun]) -> None:
    """Puts the table into the document, a row for each length of a run."""
    head = "| seconds | runs | median overrun | worst | worst until memory was given back | processes left |"
    rows = [head, "|---|---|---|---|---|---|"]
    for seconds in sorted({timed.seconds for timed in runs}):
        same = [timed for timed in runs if timed.seconds == seconds]
        overruns, gone = [timed.overrun for timed in same], max(timed.gone for timed in same) / seconds - 1
        left = sum(timed.left for timed in same)
        rows.append(
            f"| {seconds:g} | {len(same)} | {median(overruns):+.1%} | {max(overruns):+.1%} | {gone:+.1%} | {left} |"
        )
    loads = [timed.load for timed in runs]
    between = f"a load between {min(loads):.1f} and {max(loads):.1f}, in the median {median(loads):.1f}"
    note = f"On {len(os.sched_getaffinity(0))} processors with other work beside, at {between}."
    text = path.read_text(encoding="utf-8")
    start, end = (text.index(mark) for mark in MARKS)
    path.write_text(f"{text[:start]}{MARKS[0]}\n" + "\n".join([*rows, "", note]) + f"\n{text[end:]}", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--seconds", type=float, nargs="+", default=[20.0, 30.0, 60.0], help="lengths, in turn")
    parser.add_argument("--load", type=int, default=4, help="processes beside that only compute")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", type=Path, help="the document whose table is written")
    asked = parser.parse_args()
    order, runs = random.Random(asked.seed), []
    with busy_processors(asked.load):
        for number in range(asked.runs):
            seconds = asked.seconds[number % len(asked.seconds)]
            subject = SUBJECTS[number % len(SUBJECTS)]
            runs.append(run(subject, seconds, order.randrange(1000), cold=number % 3 == 0))
            print(line(runs[-1]), flush=True)
    overruns = [timed.overrun for timed in runs]
    print(f"median {median(overruns):+.1%}, worst {max(overruns):+.1%}")
    if asked.write:
        write(asked.write, runs)
    held = median(overruns) < MOST_MEDIAN and max(overruns) < MOST_WORST and not any(timed.left for timed in runs)
    return int(not held)


if __name__ == "__main__":
    sys.exit(main())
