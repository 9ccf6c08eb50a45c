"""What a whole run costs with an empty cache and with a full one: processor seconds of all its processes, side by side.

    python -m benchmarks.cold_runs [TARGET ..] [--cases 1000] [--rounds 1]

Each round runs `fuzz run TARGET --cases N` twice with a cache of its own, which the first run fills. Seconds of the
processor depend less on what else the machine does than those of the clock do. `compile` is the clock's share of
compiling in the time in which workers were at work. Prints a table in Markdown, with the medians of the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from contextlib import suppress

from fuzz.worker.system import adopt_orphans

TARGETS = ("layernorm_bw", "cross_entropy", "liger/rms_norm", "liger/jsd")
STATES = ("empty", "full")
Cost = tuple[float, float]
"""Processor seconds, and the share of compiling."""


def measure(target: str, cases: int, seed: int, cache: str) -> Cost:
    """One run. Workers end as children of this process, so that their seconds are counted here."""
    before = children_seconds()
    surroundings = os.environ | {"TRITON_CACHE_DIR": cache, "FUZZ_CACHE": cache}
    budget = ["--cases", str(cases), "--seed", str(seed), "--profile", "--json", "--corpus", f"{cache}/corpus"]
    command = [sys.executable, "-m", "fuzz", "run", target, *budget]
    done = subprocess.run(command, env=surroundings, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    with suppress(ChildProcessError):
        while True:
            os.wait()
    profile = json.loads(done.stdout)["profile"]
    at_work = sum(profile.values()) - profile["waiting"] - profile["shrinking"]
    return children_seconds() - before, profile["compile"] / at_work


def children_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure_round(target: str, cases: int, seed: int) -> list[Cost]:
    """With an empty cache, then with what that run has left there."""
    with tempfile.TemporaryDirectory() as cache:
        return [measure(target, cases, seed, cache) for _ in STATES]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("targets", nargs="*", default=TARGETS)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    adopt_orphans()
    print(f"| {options.cases} cases | empty cache | compiling | full cache | compiling | times more |")
    print("|---|---|---|---|---|---|")
    for target in options.targets:
        rounds = [measure_round(target, options.cases, seed) for seed in range(options.rounds)]
        seconds = [statistics.median(costs[state][0] for costs in rounds) for state in range(len(STATES))]
        shares = [statistics.median(costs[state][1] for costs in rounds) for state in range(len(STATES))]
        texts = (f"{cost:.1f} s | {share:.0%}" for cost, share in zip(seconds, shares, strict=True))
        print(f"| {target} | {' | '.join(texts)} | {seconds[0] / seconds[1]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
