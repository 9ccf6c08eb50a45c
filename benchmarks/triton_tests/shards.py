"""Runs tests in processes of pytest, one shard after another; a process that dies costs the test that killed it."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.triton_tests.plugin import RECORDS

ROOT = Path(__file__).parents[2]
CHILDREN = Path(__file__).parent / "children"
"""Is on the path of the tests: Python runs a file there when it starts."""
FOLDER = Path("python/test")
"""Of a checkout: where the tests' `conftest.py` is."""
PYTEST = [sys.executable, "-m", "fuzz.backends.cpu", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", "."]
Record = dict[str, Any]


def environment(records: Path) -> dict[str, str]:
    path = os.pathsep.join([str(CHILDREN), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return os.environ | {"PYTHONPATH": path, RECORDS: str(records)}


def collect(checkout: Path, paths: list[str], device: str) -> list[str]:
    """The identifiers of all tests. Files that cannot be imported are named on standard error."""
    command = [*PYTEST, "--collect-only", "--continue-on-collection-errors", "--device", device, *paths]
    done = subprocess.run(
        command, cwd=checkout / FOLDER, env=environment(Path(os.devnull)), capture_output=True, text=True, check=False
    )
    for line in done.stdout.splitlines():
        if line.startswith("ERROR "):
            print(line, file=sys.stderr)
    return [line for line in done.stdout.splitlines() if "::" in line and not line.startswith(("ERROR", " "))]


def draw_sample(tests: list[str], count: int | None, seed: int) -> list[str]:
    """As many tests as asked for, drawn by a seed, in their own order; all of them without a count."""
    if count is None or count >= len(tests):
        return tests
    chosen = set(random.Random(seed).sample(sorted(tests), count))
    return [test for test in tests if test in chosen]


def read(records: Path) -> dict[str, Record]:
    """The last record of each test. A test whose start is its last record killed its process."""
    lines = records.read_text(encoding="utf-8").splitlines() if records.exists() else []
    last: dict[str, Record] = {}
    for line in lines:
        record = json.loads(line)
        last[record["test"]] = record
    return last


def run(checkout: Path, tests: list[str], records: Path, device: str, size: int, limit: float) -> dict[str, Record]:
    """Runs the tests that have no record yet, `size` to a process. A test has at most `limit` seconds."""
    while missing := [test for test in tests if test not in read(records)]:
        run_shard(checkout, missing[:size], records, device, limit)
        print(f"{len(tests) - len(missing)} of {len(tests)} tests", file=sys.stderr)
    return {test: record for test, record in read(records).items() if test in set(tests)}


def run_shard(checkout: Path, tests: list[str], records: Path, device: str, limit: float) -> None:
    arguments = records.with_suffix(".arguments")
    arguments.write_text("\n".join(tests), encoding="utf-8")
    command = [*PYTEST, "-p", "benchmarks.triton_tests.plugin", "--tb", "no", "--device", device, f"@{arguments}"]
    with records.with_suffix(".log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=checkout / FOLDER, env=environment(records), stdout=log, stderr=subprocess.STDOUT
        )
        is_hung = wait(process, records, limit)
    mark_ended(records, tests, "hung" if is_hung else "crashed")


def wait(process: subprocess.Popen[bytes], records: Path, limit: float) -> bool:
    """Waits for the end of a process; kills it where no record came for `limit` seconds, and returns whether it did."""
    seen, since = -1, time.monotonic()
    while process.poll() is None:
        size = records.stat().st_size if records.exists() else 0
        if size != seen:
            seen, since = size, time.monotonic()
        if time.monotonic() - since > limit:
            process.kill()
            process.wait()
            return True
        time.sleep(0.2)
    return False


def mark_ended(records: Path, tests: list[str], outcome: str) -> None:
    """Writes how the test ended that a shard had started last, and that no test is left where none was started."""
    last = read(records)
    started = [test for test in tests if test in last and last[test]["outcome"] == "started"]
    left = [test for test in tests if test not in last]
    with records.open("a", encoding="utf-8") as file:
        for record in ended(started, left, tests, outcome):
            file.write(json.dumps(record) + "\n")


def ended(started: list[str], left: list[str], tests: list[str], outcome: str) -> Iterator[Mapping[str, Any]]:
    for test in started:
        yield {"test": test, "outcome": outcome, "causes": [], "seconds": 0.0}
    if not started and len(left) == len(tests):
        # Nothing ran: these would be tried for ever.
        for test in left:
            yield {"test": test, "outcome": "not collected", "causes": [], "seconds": 0.0}
