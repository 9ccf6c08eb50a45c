"""Triton's own tests of its language on the cpu backend, from a checkout of Triton.

    python -m benchmarks.triton_tests --source DIR [--sample N --seed S] [--write FILE] [PATH...]

Runs the tests under `python/test` of the checkout, all or a sample drawn by a seed, some to a process, and prints a
table. What ran is kept in `.triton-tests` and not run again; `--again` runs all, `--again CLASS` those of a class.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sys
from pathlib import Path

from benchmarks.document import replace_between_marks
from benchmarks.triton_tests.shards import collect, draw_sample, read, run
from benchmarks.triton_tests.table import CLASSES, classify, written

KEPT = Path(".triton-tests")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.triton_tests")
    parser.add_argument("paths", nargs="*", default=["unit/language"], help="below python/test of the checkout")
    parser.add_argument("--source", type=Path, required=True, help="a checkout of Triton")
    parser.add_argument("--sample", type=int, help="how many tests; all without it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="cpu, or cuda with the pretence of a GPU")
    parser.add_argument("--size", type=int, default=100, help="tests to a process")
    parser.add_argument("--limit", type=float, default=180, help="seconds without an answer before a process is killed")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--seconds", type=float, default=math.inf, help="when to stop; the same command then goes on")
    parser.add_argument("--again", choices=["all", *CLASSES], help="what is to run again")
    parser.add_argument("--write", type=Path, help="a document with the marks <!-- triton-tests -->")
    return parser.parse_args()


def collected(options: argparse.Namespace) -> list[str]:
    """The tests of the checkout, collected once for each choice of paths."""
    key = f"{options.source.resolve()} {options.paths} {options.device}"
    kept = KEPT / f"tests-{hashlib.sha256(key.encode()).hexdigest()[:12]}.json"
    if not kept.exists():
        kept.write_text(json.dumps(collect(options.source, options.paths, options.device)), encoding="utf-8")
    tests: list[str] = json.loads(kept.read_text(encoding="utf-8"))
    return tests


def forget(records: Path, kind: str) -> None:
    """Removes the records of a class of tests, or of all."""
    left = [record for record in read(records).values() if kind != "all" and classify(record)[0] != kind]
    records.write_text("".join(json.dumps(record) + "\n" for record in left), encoding="utf-8")


def main() -> None:
    options = parse_arguments()
    if not (options.source / "python/test/conftest.py").is_file():
        sys.exit(f"{options.source} is no checkout of Triton: it has no python/test/conftest.py")
    KEPT.mkdir(exist_ok=True)
    tests = draw_sample(collected(options), options.sample, options.seed)
    records = KEPT.resolve() / f"records-{options.device}.jsonl"
    if options.again:
        forget(records, options.again)
    found = run(
        options.source, tests, records, options.device, options.size, options.limit, options.jobs, options.seconds
    )
    sample = "" if options.sample is None else f" --sample {options.sample} --seed {options.seed}"
    text = written([found[test] for test in tests if test in found], f'make triton-tests ARGS="{sample.strip()}"')
    print(text)
    if options.write:
        replace_between_marks(options.write, "triton-tests", text)


if __name__ == "__main__":
    main()
