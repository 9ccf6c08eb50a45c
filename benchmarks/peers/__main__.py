"""Peers: the same planted bugs by an ordinary unit test, plain Hypothesis, Atheris on bytes, and `fuzz run`.

    make peers                                                 every planted bug below, 3 seeds, 60 s each
    make peers ARGS="--seconds 30 --seeds 1 --targets gelu_bw"
    make peers ARGS="--jobs 12"                                so many runs at once, each on two processors of its own

Every tool has the same kernels, the same references, the cpu backend, one process at a time (`fuzz run` its workers),
and the same time from the process's start. Good kernels run as well: what is found there is a false alarm, and so is a
counterexample of a planted bug on which the good kernel fails too, whoever found it. A counterexample is "not alone"
where it does not fail in a process that made no call before it: `fuzz run` tells such calls, and counts their elements.
--write puts the tables into a document.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from queue import Queue
from statistics import median, median_low
from typing import Any

from benchmarks.document import replace_between_marks
from fuzz import corpus
from fuzz.target.loader import load

ROOT = Path(__file__).resolve().parents[2]
TARGETS = ("layernorm_bw", "gelu_bw", "softmax", "rms_norm", "matmul", "silu")
PEERS = {"unit": "unit test", "properties": "Hypothesis", "coverage": "Atheris", "fuzz": "fuzz run"}
Told = dict[str, Any]
Run = tuple[str, str, str, int]
"""Tool, target, planted bug (empty for the good kernel) and seed."""


def ours(where: list[str], target: str, bug: str, seed: int, seconds: float) -> Told:
    """One `fuzz run` with its shrinking."""
    command = [*where, sys.executable, "-m", "fuzz", "run", target, "--backend", "cpu", "--json"]
    command += ["--seed", str(seed), "--seconds", str(seconds), "--max-findings", "1"]
    with tempfile.TemporaryDirectory() as folder:
        command += ["--corpus", folder] + (["--planted", bug] if bug else [])
        value = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
        told: Told = dict(found=False, seconds=None, cases=value["cases"], rate=value["cases_per_second"])
        if not value["findings"]:
            return told | dict(elements=0, executions=0)
        found = value["findings"][0]
        told |= dict(seconds=found["first_seconds"], elements=found["elements"], executions=found["executions"])
        if bug and on_the_good_kernel(where, target, Path(found["path"])):
            return told | dict(alarm=True)
        return told | dict(found=True)


def on_the_good_kernel(where: list[str], target: str, path: Path) -> bool:
    """Whether the good kernel shows the finding of a planted bug too, which then says nothing of the bug."""
    corpus.write(path, replace(corpus.read(path), planted=""))
    command = [*where, sys.executable, "-m", "fuzz", "replay", str(path), "--target", target, "--backend", "cpu"]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")
    return any(entry["reproduced"] for entry in json.loads(done.stdout)["entries"])


def measured(where: list[str], peer: str, target: str, bug: str, seed: int, seconds: float) -> Told:
    """One run of one tool; `where` is what its command begins with."""
    if peer == "fuzz":
        return ours(where, target, bug, seed, seconds)
    command = [*where, sys.executable, "-m", "benchmarks.peers.one", peer, target, bug, str(seed), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if not done.stdout.strip():
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")
    told: Told = json.loads(done.stdout.splitlines()[-1])
    return told


def all_runs(runs: list[Run], seconds: float, jobs: int) -> Iterator[Told]:
    """What each run came to, in their order; with more than one at once each has two processors for itself."""
    usable = sorted(os.sched_getaffinity(0)) if jobs > 1 else []
    free: Queue[list[str]] = Queue()
    for job in range(jobs):
        pair = usable[2 * job : 2 * job + 2]
        free.put(["taskset", "--cpu-list", ",".join(map(str, pair))] if pair else [])

    def measure(run: Run) -> Told:
        where = free.get()
        try:
            return measured(where, *run, seconds)
        finally:
            free.put(where)

    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(measure, runs)


def spelt(runs: list[Told]) -> str:
    """Median seconds, elements and executions of shrinking where it was found in most seeds."""
    if when(runs) == float("inf"):
        told = "false alarm" if any(run.get("alarm") for run in runs) else "not found"
        return f"{told} ({sum(run['found'] for run in runs)}/{len(runs)})"
    hits = [run for run in runs if run["found"]]
    size, executions = (median(run[key] for run in hits) for key in ("elements", "executions"))
    alone = "" if all(run.get("alone", True) for run in hits) else ", not alone"
    return f"{when(runs):.1f} s; {size:g} el.{alone}; {executions:g} ex."


def table(results: dict[tuple[str, str, str], list[Told]], bugs: list[tuple[str, str]], peers: list[str]) -> list[str]:
    lines = ["| bug | " + " | ".join(PEERS[peer] for peer in peers) + " |", "|---" * (len(peers) + 1) + "|"]
    for target, bug in bugs:
        name = f"{target}: {bug or 'good kernel (found = false alarm)'}"
        lines.append(f"| {name} | " + " | ".join(spelt(results[peer, target, bug]) for peer in peers) + " |")
    return [*lines, *sums(results, [pair for pair in bugs if pair[1]], peers)]


def sums(results: dict[tuple[str, str, str], list[Told]], bugs: list[tuple[str, str]], peers: list[str]) -> list[str]:
    found, times, rates = [], [], []
    for peer in peers:
        middle = [when(results[peer, *bug]) for bug in bugs]
        found.append(f"{sum(one < float('inf') for one in middle)} of {len(bugs)}")
        times.append(f"{median_low(middle):.1f} s" if middle and median_low(middle) < float("inf") else "not found")
        rates.append(f"{median(run['rate'] for bug in bugs for run in results[peer, *bug]):.0f}" if bugs else "-")
    rows = (("bugs found in most seeds", found), ("median seconds", times), ("cases/s until found, median", rates))
    return [f"| **{name}** | " + " | ".join(cells) + " |" for name, cells in rows]


def beside_the_best(
    results: dict[tuple[str, str, str], list[Told]], bugs: list[tuple[str, str]], peers: list[str]
) -> str:
    """How much later than the best peer `fuzz run` found what both did, and where its counterexample is larger."""
    others = [peer for peer in peers if peer != "fuzz"]
    best = {bug: min(when(results[peer, *bug]) for peer in others) for bug in bugs}
    mine = {bug: when(results["fuzz", *bug]) for bug in bugs}
    later = {bug: mine[bug] - best[bug] for bug in bugs if max(mine[bug], best[bug]) < float("inf")}
    alone = sum(mine[bug] < best[bug] == float("inf") for bug in bugs)
    told = f"`fuzz run` alone found {alone} of {len(bugs)} bugs, a peer alone "
    told += f"{sum(best[bug] < mine[bug] == float('inf') for bug in bugs)}."
    if not later:
        return told
    least = {bug: min(elements(results[peer, *bug]) for peer in others) for bug in later}
    larger = [
        f"{target}: {bug}" for target, bug in later if elements(results["fuzz", target, bug]) > least[target, bug]
    ]
    target, bug = most = max(later, key=lambda bug: later[bug])
    told += f" The {len(later)} that both found it found so much later than the best peer: "
    told += f"{median(later.values()):+.1f} s in the median, {later[most]:+.1f} s at most ({target}: {bug}). "
    return told + f"Its counterexample is larger than that of a peer which fails alone: {', '.join(larger) or 'none'}."


def when(runs: list[Told]) -> float:
    """The median of the seconds to the first failure, endless where it was not found."""
    return median_low([run["seconds"] if run["found"] else float("inf") for run in runs])


def elements(runs: list[Told]) -> float:
    """The median size of the counterexamples that fail alone; endless where there is none."""
    return median([run["elements"] for run in runs if run["found"] and run.get("alone", True)] or [float("inf")])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--bugs", default="", help="only these planted bugs")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once")
    parser.add_argument("--write", type=Path)
    asked = parser.parse_args()
    if asked.jobs > 1 and 2 * asked.jobs > len(os.sched_getaffinity(0)):
        parser.error(f"--jobs {asked.jobs} needs {2 * asked.jobs} processors")
    peers, only = asked.peers.split(","), asked.bugs.split(",") if asked.bugs else None
    names = [(target, bug) for target in asked.targets.split(",") for bug in ("", *load(target).planted_bugs)]
    bugs = [pair for pair in names if only is None or pair[1] in only]
    results: dict[tuple[str, str, str], list[Told]] = {}
    runs = [(peer, *pair, seed) for pair in bugs for peer in peers for seed in range(asked.seeds)]
    for (peer, target, bug, seed), told in zip(runs, all_runs(runs, asked.seconds, asked.jobs), strict=True):
        results.setdefault((peer, target, bug), []).append(told)
        print(f"{target} {bug or 'good'} {peer} seed {seed}: {told}", file=sys.stderr, flush=True)
    how = f"{asked.seeds} seeds, {asked.seconds:g} s each; median seconds from a process's start to its first failure, "
    how += "elements of the counterexample after the tool's own shrinking (not alone: it does not fail in a new "
    how += "process), executions spent on it."
    lines = [how, "", *table(results, bugs, peers)]
    if "fuzz" in peers and len(peers) > 1:
        lines += ["", beside_the_best(results, [pair for pair in bugs if pair[1]], peers)]
    print("\n".join(lines))
    if asked.write:
        replace_between_marks(asked.write, "peers", "\n".join(lines))


if __name__ == "__main__":
    main()
