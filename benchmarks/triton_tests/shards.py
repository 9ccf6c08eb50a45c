"""Runs tests in processes of pytest, one shard after another; a process that dies costs the test that killed it."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from benchmarks.triton_tests.plugin import RECORDS

ROOT = Path(__file__).parents[2]
CHILDREN = Path(__file__).parent / "children"
"""Is on the path of the tests: Python runs a file there when it starts."""
FOLDER = Path("python/test")
"""Of a checkout: where the tests' `conftest.py` is."""
PYTEST = [sys.executable, "-m", "fuzz.backends.cpu", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", "."]
STOPPED = "stopped"
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


def run(
    checkout: Path,
    tests: list[str],
    records: Path,
    device: str,
    size: int,
    limit: float,
    jobs: int = 1,
    seconds: float = math.inf,
) -> dict[str, Record]:
    """Runs the tests that have no record yet, `size` to a process and `jobs` processes at once.

    A test has at most `limit` seconds. After `seconds` the processes are killed; what has run by then is returned, and
    the rest has no record.
    """
    gather(records, records.parent.glob(f"{records.stem}.part-*.jsonl"))
    seen = read(records)
    missing = [test for test in tests if test not in seen]
    shards = [missing[start : start + size] for start in range(0, len(missing), size)]
    until = time.monotonic() + seconds
    with ThreadPoolExecutor(jobs) as pool:
        parts = [records.with_name(f"{records.stem}.part-{number}.jsonl") for number in range(len(shards))]
        running = [
            pool.submit(run_shard, checkout, shard, part, device, limit, until)
            for shard, part in zip(shards, parts, strict=True)
        ]
        for future in as_completed(running):
            part = future.result()
            gather(records, [part])
            print(f"{len(read(records))} of {len(tests)} tests", file=sys.stderr)
    return {test: record for test, record in read(records).items() if test in set(tests)}


def gather(records: Path, parts: Iterable[Path]) -> None:
    """Moves the records of shards to those of all, but for that of a test that was running when its shard was left."""
    for part in [part for part in parts if part.exists()]:
        ended = [record for record in read(part).values() if record["outcome"] != "started"]
        with records.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(record) + "\n" for record in ended)
        part.unlink()


def run_shard(checkout: Path, tests: list[str], records: Path, device: str, limit: float, until: float) -> Path:
    """Runs tests in one process, and those behind a test that killed it in another. Returns the file of records."""
    while (missing := [test for test in tests if test not in read(records)]) and time.monotonic() < until:
        outcome = run_process(checkout, missing, records, device, limit, until)
        if outcome != STOPPED:
            mark_ended(records, missing, outcome)
    records.with_suffix(".arguments").unlink(missing_ok=True)
    return records


def run_process(checkout: Path, tests: list[str], records: Path, device: str, limit: float, until: float) -> str:
    arguments = records.with_suffix(".arguments")
    arguments.write_text("\n".join(tests), encoding="utf-8")
    command = [*PYTEST, "-p", "benchmarks.triton_tests.plugin", "--tb", "no", "--device", device, f"@{arguments}"]
    with records.with_suffix(".log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=checkout / FOLDER, env=environment(records), stdout=log, stderr=subprocess.STDOUT
        )
        return wait(process, records, limit, until)


def wait(process: subprocess.Popen[bytes], records: Path, limit: float, until: float) -> str:
    """Waits for the end of a process; kills it where no record came for `limit` seconds, and at the time `until`.

    Returns how a test has ended that was running then: `crashed`, `hung` or STOPPED.
    """
    seen, since = -1, time.monotonic()
    while process.poll() is None:
        now = time.monotonic()
        size = records.stat().st_size if records.exists() else 0
        if size != seen:
            seen, since = size, now
        if now - since > limit or now > until:
            process.kill()
            process.wait()
            return STOPPED if now > until else "hung"
        time.sleep(0.2)
    return "crashed"


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
