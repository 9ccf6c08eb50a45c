"""Fuzzes what this program reads: text of entries, campaign files and kernels, a worker's channel, and HTTP.

    make self-fuzz                                          a minute for each surface, as many at a time as processors
    make self-fuzz ARGS="--seconds 3600 --surface codec --processes 2 --keep .self-fuzz"

With the package atheris libFuzzer mutates the seeds by coverage; without, Hypothesis does so blindly. A defect is an
error that the surface does not document, an input that takes over 60 s, or one that fills the memory. Exit code 1 where
there is any; --keep keeps the inputs, those that show defects under `crashes`. A repaired defect's input belongs among
the seeds in tests/benchmarks/self_fuzz, and so do inputs that cover more: `python -m benchmarks.self_fuzz.minimise`.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.self_fuzz import SEEDS

ROOT = Path(__file__).resolve().parents[2]
COVERED = re.compile(r"\bcov: (\d+)")
EXECUTED = re.compile(r"stat::number_of_executed_units: (\d+)|\"executions\": (\d+)|^#(\d+)\t", re.MULTILINE)
TRACEBACK = ".txt"


@dataclass(frozen=True)
class RunResult:
    """What one process did: executions, and edges of the code that were covered at the start and the end, or 0."""

    surface: str
    executions: int
    covered: tuple[int, int]
    error: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = sorted(folder.name for folder in SEEDS.iterdir())
    parser.add_argument("--surface", action="append", choices=names, help="all without it")
    parser.add_argument("--seconds", type=float, default=60, help="for each surface")
    parser.add_argument("--processes", type=int, default=1, help="for each surface")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a folder for the inputs")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="self-fuzz-") as temporary, ThreadPoolExecutor(arguments.jobs) as pool:
        folder = (arguments.keep or Path(temporary)).resolve()
        runs = [
            pool.submit(fuzz_surface, name, arguments.seconds, arguments.seed + number, folder / name)
            for number in range(arguments.processes)
            for name in arguments.surface or names
        ]
        defects = print_results([run.result() for run in runs], folder)
    return int(defects)


def fuzz_surface(name: str, seconds: float, seed: int, folder: Path) -> RunResult:
    """Runs one process over a surface."""
    command = [sys.executable, "-m", "benchmarks.self_fuzz.one", name, "--folder", str(folder)]
    command += ["--seconds", str(seconds), "--seed", str(seed)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="backslashreplace")
    output = done.stdout + done.stderr
    covered = [int(number) for number in COVERED.findall(output)] or [0]
    executions = max((int(max(groups, key=len)) for groups in EXECUTED.findall(output)), default=0)
    failed = done.returncode != 0 or not executions
    return RunResult(name, executions, (covered[0], covered[-1]), output[-4000:] if failed else "")


def print_results(results: list[RunResult], folder: Path) -> bool:
    """Prints a table of the surfaces, and what is wrong; whether anything is."""
    print("| surface | executions | edges covered by the seeds | at the end | new inputs | defects |")
    print("|---|---|---|---|---|---|")
    by_surface = defaultdict(list)
    for result in results:
        by_surface[result.surface].append(result)
    for name, runs in by_surface.items():
        ran = sum(run.executions for run in runs)
        edges = [f"{max(run.covered[end] for run in runs) or '–'}" for end in (0, 1)]
        new, found = len(list((folder / name / "corpus").iterdir())), crashes(folder / name)
        print(f"| {name} | {ran:,} | {edges[0]} | {edges[1]} | {new} | {len(found)} |")
    for name in by_surface:
        for path in crashes(folder / name):
            data, trace = path.read_bytes(), path.with_name(path.name + TRACEBACK)
            print(f"\n{name}: {path.name}: {data[:2000]!r}", trace.read_text() if trace.exists() else "", sep="\n")
    broken = [result for result in results if result.error]
    for result in broken:
        if not crashes(folder / result.surface):
            print(f"\n{result.surface}: its process ended:\n{result.error}")
    return bool(broken)


def crashes(folder: Path) -> list[Path]:
    """The inputs that show defects."""
    return sorted(path for path in (folder / "crashes").glob("*") if path.suffix != TRACEBACK)


if __name__ == "__main__":
    sys.exit(main())
