"""Good kernels by other hands, fuzzed until each had so many cases: what is found is a real error or a false alarm.

python -m benchmarks.honest [--set NAME]... [--cases N] [--seconds N] [--backend NAME] [--jobs N] [--write FILE]

Every run is kept in .honest, and a target that lacks cases is fuzzed again with another seed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.honest.table import write
from fuzz.errors import TargetError
from fuzz.target.loader import library_files, load_module, targets_in

ROOT = Path(__file__).parents[2]
STORE = ROOT / ".honest"
OPERATIONS = STORE / "targets"
SETS = ("torch", "flag_gems", "conch", "liger", "fla", "tutorials", "own", "gpuemu")
OWN = ("layernorm_bw", "gelu_bw", "rms_norm", "softmax", "matmul", "cross_entropy", "cross_entropy_bw")
Row = dict[str, Any]


def targets_of(name: str) -> list[str]:
    """The targets of a set, as `fuzz run` takes them."""
    if name == "own":
        return list(OWN)
    if name in ("torch", "flag_gems"):
        return [text for path in sorted((OPERATIONS / name).glob("*.py")) for text in named_in(path)]
    if name in ("liger", "fla"):
        return [text for path in library_files() if path.parent.name == name for text in named_in(path)]
    return list(named_in(Path(__file__).parent / "kernels" / f"{name}.py"))


def named_in(path: Path) -> Iterator[str]:
    """The targets that a file declares; none where what it imports is not installed."""
    try:
        yield from (f"{path.relative_to(ROOT)}:{name}" for name in targets_in(load_module(path)))
    except TargetError as error:
        print(error, file=sys.stderr)


def kept(backend: str, name: str) -> list[Row]:
    """Every run of a set on a backend."""
    place = STORE / f"{backend}-{name}.jsonl"
    lines = place.read_text(encoding="utf-8").splitlines() if place.is_file() else []
    return [json.loads(line) for line in lines]


def waiting(backend: str, name: str, wanted: int) -> dict[int, list[str]]:
    """The targets of a set that lack cases, by the seed of their next run: the number of those before."""
    runs = kept(backend, name)
    lacking: dict[int, list[str]] = {}
    for target in targets_of(name):
        mine = [run for run in runs if run["target"] == target]
        if not any("error" in run for run in mine) and sum(run["cases"] for run in mine) < wanted:
            lacking.setdefault(len(mine), []).append(target)
    return lacking


def fuzz(name: str, seed: int, targets: list[str], asked: argparse.Namespace, end: float) -> None:
    """Fuzzes some targets in a process of their own, and keeps every line that it prints."""
    if time.monotonic() > end:
        return
    budget = [f"--{key}={value}" for key in ("cases", "seconds") if (value := getattr(asked, key))]
    command = [sys.executable, "-m", "benchmarks.honest.batch", *budget, f"--seed={seed}", f"--backend={asked.backend}"]
    command += [f"--corpus={STORE / 'corpus' / asked.backend}", *targets]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            with (STORE / f"{asked.backend}-{name}.jsonl").open("a", encoding="utf-8") as file:
                file.write(line)
            if time.monotonic() > end:
                process.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", action="append", choices=SETS)
    parser.add_argument("--cases", type=int, default=10_000, help="of each target, in all runs together")
    parser.add_argument("--seconds", type=float, help="of each run, at most")
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--each", type=int, default=12, help="targets that one process fuzzes, one after the other")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="after which no further run is begun")
    parser.add_argument("--write", type=Path, help="the document whose tables are written")
    asked = parser.parse_args()
    end = time.monotonic() + 60 * asked.minutes
    STORE.mkdir(exist_ok=True)
    sets = asked.set or SETS
    if {"torch", "flag_gems"} & set(sets) and not (OPERATIONS / "done").is_file():
        subprocess.run([sys.executable, "-m", "benchmarks.honest.declarations", str(OPERATIONS)], check=True, cwd=ROOT)
    with ThreadPoolExecutor(asked.jobs) as pool:
        for name in sets:
            for seed, targets in waiting(asked.backend, name, asked.cases).items():
                for place in range(0, len(targets), asked.each):
                    pool.submit(fuzz, name, seed, targets[place : place + asked.each], asked, end)
    if asked.write:
        write(asked.write, {(backend, name): kept(backend, name) for backend in ("cpu", "cuda") for name in SETS})


if __name__ == "__main__":
    main()
