"""Triton's own tests on the cpu backend, cold and with the cache that this filled, and in Triton's interpreter.

    python -m benchmarks.triton_tests.against_interpreter --source DIR [--sample 300] [--seed 0]

The tests are a sample of those that Triton marks for its interpreter, in one process a way. Prints the processor
seconds of those that pass in all three ways, without the start of the process, and how many failed in each.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.triton_tests import shards

PLAIN = [sys.executable, *shards.PYTEST[shards.PYTEST.index("pytest") - 1 :]]
"""pytest without the cpu backend."""
SELECTED = ["-m", "interpreter"]
Seconds = dict[str, float]


def run(way: str, checkout: Path, tests: list[str], folder: Path) -> tuple[Seconds, int]:
    """Processor seconds of each test that passed, and how many did not."""
    records, arguments = folder / f"{way}.jsonl", folder / "tests"
    arguments.write_text("\n".join(tests), encoding="utf-8")
    surroundings = shards.environment(records) | {"TRITON_CACHE_DIR": str(folder), "FUZZ_CACHE": str(folder)}
    command = shards.PYTEST
    if way == "interpreter":
        command, surroundings = PLAIN, surroundings | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(shards.ROOT)}
    options = ["-p", "benchmarks.triton_tests.plugin", "--tb", "no", "--device", "cpu", f"@{arguments}"]
    with (folder / f"{way}.log").open("w") as log:
        subprocess.run(
            [*command, *options], cwd=checkout / shards.FOLDER, env=surroundings, stdout=log, stderr=log, check=False
        )
    last = shards.read(records).values()
    passed = {one["test"]: one["processor"] for one in last if one["outcome"] == "passed"}
    return passed, sum(one["outcome"] in ("failed", "started") for one in last)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--source", type=Path, required=True, help="a checkout of Triton")
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    all_tests = shards.collect(options.source, ["unit/language", *SELECTED], "cpu")
    tests = shards.draw_sample(all_tests, options.sample, options.seed)
    with tempfile.TemporaryDirectory() as folder:
        ways = ("cold", "warm", "interpreter")
        measured = {way: run(way, options.source, tests, Path(folder)) for way in ways}
    common = set.intersection(*(set(passed) for passed, _ in measured.values()))
    print(f"{len(common)} of {len(tests)} tests, drawn of {len(all_tests)}, pass in all ways (seed {options.seed})\n")
    print("| way | processor seconds | median of a test | failed |\n|---|---|---|---|")
    for way, (passed, failed) in measured.items():
        seconds = [passed[test] for test in common]
        print(f"| {way} | {sum(seconds):.1f} | {1000 * statistics.median(seconds):.0f} ms | {failed} |")


if __name__ == "__main__":
    main()
