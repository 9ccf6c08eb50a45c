"""Correct kernels stay silent: every good target for many cases, as a table for docs/scoreboard.md.

    python3 -m benchmarks.silent OUT --backend cuda --cases 1000000 --jobs 8
    python3 -m benchmarks.silent OUT --backend cpu --cases 4000 --seeds 0 1 --eager

Runs `fuzz run` for each target and seed, several at a time, each in a process of its own; --eager adds PyTorch's own
operations. Writes one JSON file a run into OUT, prints each run as it ends, then the table, whose cases are those that
the target accepted and oracles examined. Exit code 1 with findings, or where a run ends with any exit code but 0.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.honest.store import judged

ROOT = Path(__file__).parents[1]
GOOD = ("layernorm_bw", "gelu_bw", "rms_norm", "softmax", "matmul", "cross_entropy", "cross_entropy_bw")
"""The Triton targets; planted bugs stand beside each of them."""
EAGER = ROOT / "targets" / "torch_eager" / "operations.py"


@dataclass(frozen=True)
class Silence:
    """One run: the target as `fuzz run` names it, its seed, exit code and JSON value (empty where there is none)."""

    target: str
    seed: int
    code: int
    value: dict[str, Any]

    @property
    def name(self) -> str:
        return self.target.rpartition(":")[2] + (" (eager)" if ":" in self.target else "")

    @property
    def cases(self) -> int:
        return judged(self.value)

    @property
    def cut_off(self) -> int:
        """What disagreed and was not confirmed before the run's end."""
        return int(self.value.get("cut_off", {}).get("disagreements", 0))

    @property
    def unconfirmed(self) -> int:
        return int(self.value.get("unconfirmed", 0))

    @property
    def findings(self) -> list[dict[str, Any]]:
        return list(self.value.get("findings", []))

    @property
    def silent(self) -> bool:
        return self.code == 0 and "findings" in self.value and not self.findings

    def __str__(self) -> str:
        value = self.value
        line = f"{self.name} seed {self.seed}: {self.cases} cases, {value.get('seconds', 0)} s"
        line += f", worst {value.get('worst_ratio', 0):.4f}, findings {len(self.findings)}, cut off {self.cut_off}"
        line += f", unconfirmed {self.unconfirmed}" + (f", exit code {self.code}" if self.code else "")
        return line + "".join(f"\n    {found['path']}" for found in self.findings)


def eager_targets() -> list[str]:
    """The targets of targets/torch_eager, by path and name."""
    from fuzz.target.loader import load_module, targets_in

    return [f"{EAGER}:{name}" for name in targets_in(load_module(EAGER))]


def run(asked: argparse.Namespace, target: str, seed: int) -> Silence:
    label = f"{Path(target.partition(':')[0]).stem}-{target.rpartition(':')[2]}-{seed}"
    command = [sys.executable, "-m", "fuzz", "run", target, "--backend", asked.backend, "--seed", str(seed), "--json"]
    budget = ["--seconds", str(asked.seconds)] if asked.seconds else ["--cases", str(asked.cases)]
    command += [*budget, "--engine", asked.engine, "--corpus", str(asked.out / "corpus" / label)]
    # One torch thread: runs share the machine.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT)
    (asked.out / f"{label}.json").write_text(done.stdout, encoding="utf-8")
    (asked.out / f"{label}.err").write_text(done.stderr, encoding="utf-8")
    return Silence(target, seed, done.returncode, json.loads(done.stdout) if done.stdout.strip() else {})


def table(results: list[Silence], backend: str) -> str:
    """Markdown, one row a target: all its seeds together."""
    lines = [
        "| target | backend | cases | hours | worst error / bound | findings | cut off | unconfirmed |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(result.name for result in results):
        same = [result for result in results if result.name == name]
        cases, cut_off, unconfirmed = (
            sum(getattr(result, field) for result in same) for field in ("cases", "cut_off", "unconfirmed")
        )
        hours = sum(result.value.get("seconds", 0.0) for result in same) / 3600
        worst = max(result.value.get("worst_ratio", 0.0) for result in same)
        codes = [f"exit code {result.code}" for result in same if result.code]
        found = ", ".join([str(sum(len(result.findings) for result in same)), *codes])
        row = (name, backend, f"{cases:,}", f"{hours:.2f}", f"{worst:.4f}", found, f"{cut_off:,}", f"{unconfirmed:,}")
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--cases", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=0.0, help="of each run, instead of a number of cases")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--targets", nargs="+", default=list(GOOD))
    parser.add_argument("--eager", action="store_true")
    asked = parser.parse_args()
    asked.out = asked.out.resolve()
    asked.out.mkdir(parents=True, exist_ok=True)
    targets = [*asked.targets, *(eager_targets() if asked.eager else [])]
    with ThreadPoolExecutor(asked.jobs) as pool:
        runs = [pool.submit(run, asked, target, seed) for target in targets for seed in asked.seeds]
        for one in runs:
            print(one.result(), flush=True)
    results = [one.result() for one in runs]
    print(table(results, asked.backend))
    return 0 if all(result.silent for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
