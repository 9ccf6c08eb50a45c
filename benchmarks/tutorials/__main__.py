"""Triton's tutorials on the cpu backend, with its pretence of a GPU, from a checkout of Triton.

    python -m benchmarks.tutorials --source DIR [--points N] [--work N] [--write FILE] [NUMBER...]

Each runs in a process of its own. Prints a table: whether it ran to its end, its comparisons, seconds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.document import replace_between_marks
from benchmarks.tutorials.child import OUTCOME

NUMBERS = ("01", "02", "03", "04", "05", "06", "07", "08", "09", "11")
"""Without 10, which needs the block scaled products of Blackwell or CDNA4."""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tutorials")
    parser.add_argument("numbers", nargs="*", default=NUMBERS, help="such as 01 02")
    parser.add_argument("--source", type=Path, required=True, help="a checkout of Triton")
    parser.add_argument("--points", type=int, default=1, help="sizes of each measurement; 0: all, measured as on a GPU")
    parser.add_argument("--work", type=float, default=1e9, help="multiplications of a test of 06 and 09; inf: all")
    parser.add_argument("--limit", type=float, default=1800, help="seconds after which a tutorial is killed")
    parser.add_argument("--jobs", type=int, default=1, help="tutorials at once")
    parser.add_argument("--out", type=Path, help="a file to which a line of JSON of each is added")
    parser.add_argument("--write", type=Path, help="a document with the marks <!-- tutorials -->")
    return parser.parse_args()


def files(source: Path, numbers: list[str]) -> list[Path]:
    """The files of tutorials. Exits where one is missing."""
    folder = source.resolve() / "python/tutorials"
    found = {number: sorted(folder.glob(f"{number}-*.py")) for number in numbers}
    if missing := [number for number, paths in found.items() if len(paths) != 1]:
        sys.exit(f"{folder} has no tutorial {', '.join(missing)}")
    return [paths[0] for paths in found.values()]


def run(file: Path, points: int, work: float, limit: float) -> dict[str, Any]:
    """What `child` reports of a tutorial, or how its process ended. Its output goes to standard error."""
    child = ["-m", "benchmarks.tutorials.child", str(file), "--points", str(points), "--work", str(work)]
    # Plots are drawn and not shown.
    environment = os.environ | {"FUZZ_CPU_IDENTITY": "cuda", "MPLBACKEND": "agg", "PYTHONPATH": python_path()}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "fuzz.backends.cpu", *child]
        try:
            done = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True, timeout=limit, check=False
            )
        except subprocess.TimeoutExpired:
            return ended(file, f"no end within {limit:g} s", limit)
    sys.stderr.write(f"--- {file.name}\n{done.stderr[-6000:]}\n")
    for line in done.stdout.splitlines():
        if line.startswith(OUTCOME):
            reported: dict[str, Any] = json.loads(line.removeprefix(OUTCOME))
            return reported
    return ended(file, f"ended with exit code {done.returncode}", math.nan)


def ended(file: Path, error: str, seconds: float) -> dict[str, Any]:
    return {"tutorial": file.stem, "error": error, "right": 0, "wrong": 0, "left out": "", "seconds": seconds}


def python_path() -> str:
    root = str(Path(__file__).parents[2])
    return os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])


def written(outcomes: list[dict[str, Any]], command: str) -> str:
    lines = [f"`{command}`", "", "| tutorial | runs | comparisons right | wrong | left out | seconds |"]
    lines.append("|---|---|---|---|---|---|")
    for one in outcomes:
        error = one["error"].replace("|", "\\|").replace("<", "&lt;")
        counts = f"{one['right']} | {one['wrong']}"
        lines.append(f"| {one['tutorial']} | {error or 'yes'} | {counts} | {one['left out']} | {one['seconds']:.0f} |")
    return "\n".join(lines)


def main() -> None:
    options = parse_arguments()

    def run_and_keep(file: Path) -> dict[str, Any]:
        found = run(file, options.points, options.work, options.limit)
        if options.out:
            with options.out.open("a", encoding="utf-8") as out:
                out.write(json.dumps(found) + "\n")
        return found

    with ThreadPoolExecutor(options.jobs) as pool:
        outcomes = list(pool.map(run_and_keep, files(options.source, options.numbers)))
    text = written(outcomes, f'make tutorials ARGS="--points {options.points} --work {options.work:g}"')
    print(text)
    if options.write:
        replace_between_marks(options.write, "tutorials", text)
    if any(one["error"] or one["wrong"] for one in outcomes):
        sys.exit(1)


if __name__ == "__main__":
    main()
