"""What the first launch of a specialisation costs with an empty cache: processor seconds until its result is there.

    python -m benchmarks.cold [TARGET ..] [--plans 6] [--kernels 40]

For each target, the built-in ones and those of liger-kernel by default, its first plans run in one process for each way
to compile, in turn, each with an empty cache: `optimising` waits for the C compiler at every specialisation, `auto` is
what runs use. The seconds are those of the process and its children. A kernel counts by the median of its
specialisations. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from fuzz.errors import TargetError
from fuzz.target.loader import built_in_files, library_files, load_module, targets_in

CHILD = Path(__file__).parent / "cold_against" / "child.py"
WAYS = ("optimising", "auto")
Seconds = dict[str, list[float]]
"""By kernel, those of each specialisation."""


def measure_apart(target: str, way: str, plans: int) -> Seconds:
    """The same in a process of its own with an empty cache; nothing where that fails."""
    with tempfile.TemporaryDirectory() as cache:
        surroundings = os.environ | {"TRITON_CACHE_DIR": cache, "FUZZ_CPU_COMPILER": way}
        command = [sys.executable, str(CHILD), "specialisations", target, str(plans)]
        done = subprocess.run(command, env=surroundings, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {}


def default_targets() -> list[str]:
    built_in = [path.stem for path in built_in_files()]
    return built_in + [name for name in library_targets() if name.startswith("liger")]


def library_targets() -> list[str]:
    """The targets of the libraries that are installed."""
    names: list[str] = []
    for path in library_files():
        with suppress(TargetError):
            names += targets_in(load_module(path))
    return names


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--plans", type=int, default=6)
    parser.add_argument("--kernels", type=int, default=40)
    options = parser.parse_args()
    rows: dict[str, dict[str, float]] = {}
    print(f"| kernel | {' | '.join(WAYS)} | times less |\n|---|---|---|---|")
    for target in options.targets or default_targets():
        measured = {way: measure_apart(target, way, options.plans) for way in WAYS}
        for kernel in sorted(set.intersection(*(set(seconds) for seconds in measured.values())) - set(rows)):
            row = rows[kernel] = {way: statistics.median(measured[way][kernel]) for way in WAYS}
            texts = " | ".join(f"{seconds:.3f} s" for seconds in row.values())
            print(f"| {kernel} | {texts} | {row['optimising'] / row['auto']:.1f} |", flush=True)
        if len(rows) >= options.kernels:
            break
    medians = [statistics.median(row[way] for row in rows.values()) for way in WAYS]
    ratio = statistics.median(row["optimising"] / row["auto"] for row in rows.values())
    print(f"| median of {len(rows)} | {' | '.join(f'{median:.3f} s' for median in medians)} | {ratio:.1f} |")


if __name__ == "__main__":
    main()
