"""Every planted bug from several seeds, and the good kernels for some minutes beside them.

    python3 benchmarks/planted.py OUT --backend cuda --max-findings 1
    python3 benchmarks/planted.py OUT --backend cpu --seeds 0 1 2 3 4 --good-cases 20000

Writes one JSON file a run into OUT. Prints each run, then one line a bug: in how many seeds it was found as one finding
by the oracle and with the dims that tests/quality/planted_expectations.py states, how many ended in the same case, and
the median of seconds to the first finding.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "quality"))
from planted_expectations import ON_CUDA, PLANTED, SAME_ON_CUDA


@dataclass(frozen=True)
class Result:
    """One `fuzz run`: its JSON value, exit code and wall time in seconds."""

    target: str
    planted: str
    seed: int
    code: int
    wall: float
    value: dict[str, Any]

    @property
    def findings(self) -> list[dict[str, Any]]:
        return list(self.value.get("findings", []))

    @property
    def as_expected(self) -> bool:
        if self.code != 1 or len(self.findings) != 1:
            return False
        found, wanted = self.findings[0], PLANTED[self.target][self.planted]
        if self.value["backend"] == "cuda":
            wanted = ON_CUDA.get(self.planted, wanted)
        outputs = set(found["output"].split("+")) & set(wanted.outputs)
        return found["oracle"] == wanted.oracle and found["dims"] == wanted.dims and bool(outputs)

    def __str__(self) -> str:
        value = self.value
        line = (
            f"{self.target} {self.planted or 'good'} seed {self.seed}: exit {self.code}, {value.get('cases', 0)} cases"
        )
        line += f", {value.get('cases_per_second', 0)}/s, worst {value.get('worst_ratio', 0):.3f}, {self.wall:.0f} s"
        for found in self.findings:
            line += (
                f"\n    {found['oracle']}/{found['symptom']} {found['output']} {found['dims']} calls {found['calls']}"
            )
            line += f" elements {found['elements']} first {found['first_seconds']} s rate {found['rate']}"
            line += f" also {found['also']} {Path(found['path']).name}"
        return line


def run(asked: argparse.Namespace, target: str, planted: str, seed: int, *more: str) -> Result:
    """One run in a process of its own."""
    name = f"{target}-{planted or 'good'}-{seed}"
    command = [sys.executable, "-m", "fuzz", "run", target, "--backend", asked.backend, "--seed", str(seed), "--json"]
    command += [*more, "--corpus", str(asked.out / "corpus" / name), *(["--planted", planted] if planted else [])]
    started = time.monotonic()
    # One torch thread: runs share the machine.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    (asked.out / f"{name}.json").write_text(done.stdout, encoding="utf-8")
    (asked.out / f"{name}.err").write_text(done.stderr, encoding="utf-8")
    value = json.loads(done.stdout) if done.stdout.strip() else {}
    return Result(target, planted, seed, done.returncode, time.monotonic() - started, value)


def summary(results: list[Result]) -> str:
    """One line for all seeds of one planted bug."""
    one = results[0]
    good = sum(result.as_expected for result in results)
    cases = Counter(result.findings[0]["id"] for result in results if result.findings)
    same = max(cases.values(), default=0)
    first = [result.findings[0]["first_seconds"] for result in results if result.findings]
    seconds = f"{median(first):.1f} s" if first else "never"
    seeds = len(results)
    return f"{one.target} {one.planted}: as expected {good}/{seeds}, same case {same}/{seeds}, first finding {seconds}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--seconds", default="60")
    parser.add_argument("--max-findings")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--good-cases")
    parser.add_argument("--jobs", type=int, default=5)
    parser.add_argument("--only", nargs="+", help="names of planted bugs; without the good kernels")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    limits = ["--seconds", asked.seconds, *(["--max-findings", asked.max_findings] if asked.max_findings else [])]
    long = ["--cases", asked.good_cases] if asked.good_cases else ["--seconds", str(60 * asked.minutes)]
    with ThreadPoolExecutor(2) as few, ThreadPoolExecutor(asked.jobs) as many:
        names = [] if asked.only else PLANTED
        good = [few.submit(run, asked, name, "", seed, *long) for name in names for seed in asked.seeds[:3]]
        planted = {
            (name, bug): [many.submit(run, asked, name, bug, seed, *limits) for seed in asked.seeds]
            for name, bugs in PLANTED.items()
            for bug in bugs
            if not asked.only or bug in asked.only
            if asked.backend != "cuda" or bug not in SAME_ON_CUDA
        }
        for futures in planted.values():
            for future in futures:
                print(future.result(), flush=True)
            print(summary([future.result() for future in futures]), flush=True)
        for future in good:
            print(future.result(), flush=True)


if __name__ == "__main__":
    main()
