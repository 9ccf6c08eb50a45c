"""Every planted bug with --backend cuda, --max-findings 1, and the good kernels for some minutes beside them.

    python3 benchmarks/gpu_planted.py OUT [--minutes 5] [--jobs 5] [--seconds 60]

Writes one JSON file a run into OUT and prints a table: bug, exit code, oracle, outputs, symptom, dims, seconds, rate.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def run(out: Path, target: str, planted: str | None, *more: str) -> dict[str, object]:
    """One `fuzz run` in a process of its own; its JSON value, exit code and wall time."""
    name = f"{target}-{planted or 'good'}"
    command = [sys.executable, "-m", "fuzz", "run", target, "--backend", "cuda", "--json", *more]
    command += ["--corpus", str(out / "corpus" / name), *(["--planted", planted] if planted else [])]
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    (out / f"{name}.json").write_text(done.stdout, encoding="utf-8")
    (out / f"{name}.err").write_text(done.stderr, encoding="utf-8")
    value = json.loads(done.stdout) if done.stdout.strip() else {}
    return {"name": name, "code": done.returncode, "wall": time.monotonic() - started, "value": value}


def told(result: dict[str, object]) -> str:
    value = result["value"]
    assert isinstance(value, dict)
    line = f"{result['name']:<38} exit {result['code']}  {value.get('cases', 0)} cases"
    line += f", {value.get('cases_per_second', 0)}/s, worst {value.get('worst_ratio', 0):.3f}"
    line += f", wall {result['wall']:.0f} s"
    for found in value.get("findings", []):
        line += f"\n    {found['oracle']}/{found['symptom']} {found['output']} {found['dims']} calls {found['calls']}"
        line += f" elements {found['elements']} first {found['first_seconds']} s rate {found['rate']}"
        line += f" also {found['also']}"
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--jobs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60.0)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "fuzz", "list", "--json"]
    listed = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    with ThreadPoolExecutor(2) as good, ThreadPoolExecutor(asked.jobs) as planted:
        long = [good.submit(run, asked.out, one["name"], None, "--seconds", str(60 * asked.minutes)) for one in listed]
        short = [
            planted.submit(run, asked.out, one["name"], bug, "--seconds", str(asked.seconds), "--max-findings", "1")
            for one in listed
            for bug in one["planted"]
        ]
        for future in [*short, *long]:
            print(told(future.result()), flush=True)


if __name__ == "__main__":
    main()
