"""Needles: rare situations that each engine is to find, and how long each takes.

    make needles                                     every needle, 5 seeds, each engine, at most 10 minutes each
    make needles ARGS="--seconds 60 --seeds 2 --engines auto --needles one_branch,one_pattern"

Each run is one `fuzz run` that ends with its first finding, with one worker; two run at a time with --jobs 2. What a
run came to is kept in .needles/, so that the work can be interrupted; --write puts the tables into a document.
"""

from __future__ import annotations

import argparse
import ast
import json
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.document import replace_between_marks

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "benchmarks" / "needles"
KEPT = ROOT / ".needles"
ENGINES = ("random", "evolve", "atheris", "auto")


def needles() -> dict[str, str]:
    """Name -> target of every needle; sources are only read."""
    found = {}
    for path in sorted(FOLDER.glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and any("target" in ast.unparse(d) for d in node.decorator_list):
                found[node.name] = f"{path}:{node.name}"
    return found


def measured(name: str, text: str, engine: str, seed: int, seconds: float) -> dict[str, Any]:
    """One run, or what was kept of it."""
    place = KEPT / f"{name}-{engine}-{seed}-{seconds:g}.json"
    if place.exists():
        kept: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
        return kept
    command = [sys.executable, "-m", "fuzz", "run", text, "--engine", engine, "--seed", str(seed)]
    command += ["--seconds", str(seconds), "--max-findings", "1", "--backend", "cpu", "--json", "--workers", "1"]
    command += ["--corpus", str(KEPT / "corpus" / f"{name}-{engine}-{seed}")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr)
    value = json.loads(done.stdout)
    found = value["findings"][0] if value["findings"] else None
    told = {"found": found is not None, "cases": value["cases"], "rate": value["cases_per_second"]}
    if found:
        told |= {"seconds": found["first_seconds"], "case": found["first_case"], "dims": found["dims"]}
    KEPT.mkdir(exist_ok=True)
    place.write_text(json.dumps(told), encoding="utf-8")
    return told


def spelt(runs: list[dict[str, Any]]) -> str:
    """The median seconds to the needle and how many runs found it; a run that did not counts as endless."""
    times = sorted(run["seconds"] if run["found"] else float("inf") for run in runs)
    middle = statistics.median_low(times) if times else float("inf")
    hits = sum(run["found"] for run in runs)
    return (f"{middle:.1f} s" if middle < float("inf") else "not found") + f" ({hits}/{len(runs)})"


def table(results: dict[tuple[str, str], list[dict[str, Any]]], engines: list[str], names: list[str]) -> list[str]:
    lines = ["| needle | " + " | ".join(engines) + " |", "|---" * (len(engines) + 1) + "|"]
    for name in names:
        lines.append(f"| {name} | " + " | ".join(spelt(results[name, engine]) for engine in engines) + " |")
    medians = []
    for engine in engines:
        runs = [run for name in names for run in results[name, engine]]
        shares = [statistics.mean(run["found"] for run in results[name, engine]) for name in names]
        most = sum(share > 0.5 for share in shares)
        medians.append(f"{spelt(runs)}; {most} of {len(names)} in most seeds")
    return [*lines, "| **all, median** | " + " | ".join(medians) + " |"]


def missed(results: dict[tuple[str, str], list[dict[str, Any]]], engines: list[str], names: list[str]) -> list[str]:
    lines = []
    for engine in engines:
        gone = [name for name in names if not any(run["found"] for run in results[name, engine])]
        lines.append(f"Not found by {engine} in any seed: {', '.join(gone) or 'none'}.")
    return lines


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--needles", default="")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--write", type=Path)
    return parser.parse_args()


def main() -> None:
    asked, known = arguments(), needles()
    names = asked.needles.split(",") if asked.needles else list(known)
    engines = asked.engines.split(",")
    plan = [(name, engine, seed) for seed in range(asked.seeds) for name in names for engine in engines]
    results: dict[tuple[str, str], list[dict[str, Any]]] = {(name, engine): [] for name in names for engine in engines}
    with ThreadPoolExecutor(asked.jobs) as jobs:
        runs = jobs.map(lambda one: measured(one[0], known[one[0]], one[1], one[2], asked.seconds), plan)
        for (name, engine, seed), run in zip(plan, runs, strict=True):
            results[name, engine].append(run)
            told = f"{run['seconds']:.1f} s" if run["found"] else "not found"
            print(f"{name} {engine} seed {seed}: {told}, {run['cases']} cases", file=sys.stderr, flush=True)
    how = f"Seeds 0 to {asked.seeds - 1}, at most {asked.seconds:g} s each, {asked.jobs} at a time, one worker each."
    lines = [how, "", *table(results, engines, names), "", *missed(results, engines, names)]
    print("\n".join(lines))
    if asked.write:
        replace_between_marks(asked.write, "needles", "\n".join(lines))


if __name__ == "__main__":
    main()
