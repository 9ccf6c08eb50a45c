"""Mutants of good kernels, and how many of them a minute of fuzzing kills.

python -m benchmarks.mutations [--only TARGET]... [--seconds N] [--seed N] [--jobs N] [--minutes N] [--write FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.mutations.brute_force import LIVE, STILLBORN
from benchmarks.mutations.mutants import Mutant, draw_mutants, list_mutants, overlay
from benchmarks.mutations.subjects import SUBJECTS, Subject
from benchmarks.mutations.table import write
from benchmarks.processors import share_of
from fuzz.worker.system import signal_name

ROOT = Path(__file__).parents[2]
STORE = ROOT / ".mutations"
LIVE_EACH, MOST = 10, 60
"""Live mutants of a kernel that are fuzzed, and mutants that are drawn for them at most."""
STARVED, LONGER, LONGEST = 200, 4, 16
"""A run with fewer cases had no processor to itself: it is repeated with four times its time, then with 16 times."""
TOO_SHORT = "the time ended before the first case"
"""What a run says that had no case at all."""
JUDGING = 3600.0
"""Seconds in which brute force runs all its cases, at most."""
COUNTED = ("high", "medium", None)
"""Severities that kill; a finding whose grading was cut off has none, and counts as medium."""
KILLED, ALARM = "killed", "alarm on the good kernel"
Row = dict[str, Any]


def command(*arguments: str, path: Path | None = None, limit: float = 600.0) -> Row | list[Any]:
    """The JSON value that a module's command printed, of packages that `path` holds before all others.

    Where it printed none, the error, and the signal that ended it or 0.
    """
    before = os.environ.get("PYTHONPATH", "")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(path or ""), str(ROOT), before]))}
    line = [sys.executable, "-m", *arguments]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=limit, cwd=ROOT)
    if not done.stdout.strip():
        why = (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1]
        return {"error": why, "signal": max(-done.returncode, 0)}
    value: Row | list[Any] = json.loads(done.stdout)
    return value


def record(target: str, place: Path) -> list[str]:
    """Keeps what the good kernel does on every case of brute force, and gives the names of the kernels that ran.

    RuntimeError where that fails.
    """
    names = command("benchmarks.mutations.brute_force", target, "--record", str(place), limit=JUDGING)
    if isinstance(names, dict):
        raise RuntimeError(f"{target}: the good kernel cannot be recorded: {names['error']}")
    return names


def counted(ran: Row) -> list[Row]:
    """The findings of a run that kill."""
    return [one for one in ran.get("findings", ()) if one.get("severity") in COUNTED]


def fuzz(text: str, path: Path | None, found: Path, seconds: float, seed: int) -> Any:
    """The JSON value of a run that ends with its first finding, or when its time does."""
    factor = 1
    while True:
        budget = ["--seconds", f"{factor * seconds:g}", "--seed", str(seed), "--max-findings", "1", "--backend", "cpu"]
        ran: Any = command("fuzz", "run", text, *budget, "--corpus", str(found), "--json", path=path, limit=2000.0)
        factor *= LONGER
        failed = "error" in ran and TOO_SHORT not in ran["error"]
        if counted(ran) or failed or ran.get("cases", 0) >= STARVED or factor > LONGEST:
            return ran


def judge(text: str, path: Path | None, recorded: Path) -> Row:
    """What brute force says of a mutant. One that ends its process, or a call of which does not end, is live.

    RuntimeError where the command fails by itself.
    """
    try:
        judged: Any = command(
            "benchmarks.mutations.brute_force", text, "--against", str(recorded), path=path, limit=JUDGING
        )
    except subprocess.TimeoutExpired:
        return {"name": LIVE, "cases": 0, "why": "a call does not end"}
    if judged.get("signal"):
        return {"name": LIVE, "cases": 0, "why": f"a call ends by {signal_name(judged['signal'])}"}
    if "error" in judged:
        raise RuntimeError(f"{text}: it cannot be judged: {judged['error']}")
    return dict(judged)


def measure(subject: Subject, mutant: Mutant, recorded: Path, seconds: float, seed: int) -> Row:
    """Judges one mutant by brute force and, where it is live, fuzzes it until it is killed or the time ends.

    RuntimeError where a command that should tell more of it fails.
    """
    if not recorded.is_file():
        record(subject.target, recorded)
    source = subject.file.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="fuzz-mutant-") as temporary:
        folder = Path(temporary)
        file = overlay(folder, subject.root, subject.file, mutant.apply(source))
        text, path = (subject.target, folder) if subject.module else (f"{file}:{subject.target}", None)
        judged = judge(text, path, recorded)
        if judged["name"] != LIVE:
            return {"result": judged["name"], "judged": judged, "cases": 0}
        ran = fuzz(text, path, folder / "found", seconds, seed)
        if "not supported" in ran.get("error", ""):
            return {"result": STILLBORN, "judged": judged, "cases": 0}
        if "signal" in ran:
            raise RuntimeError(f"{text}: it cannot be fuzzed: {ran['error']}")
        found = counted(ran)
        row = {
            "cases": ran.get("cases", 0),
            "low": len(ran.get("findings", ())) - len(found),
            "judged": judged,
        }
        if any(one["symptom"] == "compile-error" for one in found):
            return row | {"result": STILLBORN}
        if found:
            result = ALARM if on_the_good_kernel(subject, found[0]["path"]) else KILLED
            kept = {key: found[0].get(key) for key in ("oracle", "symptom", "severity", "first_seconds", "first_case")}
            return row | {"result": result} | kept
        return row | {"result": LIVE}


def on_the_good_kernel(subject: Subject, entry: str) -> bool:
    """Whether the good kernel shows a mutant's finding, too. RuntimeError where it cannot be replayed."""
    again: Any = command("fuzz", "replay", entry, "--target", subject.target, "--json")
    why = again.get("error") or ", ".join(one["skipped"] for one in again["entries"] if "skipped" in one)
    if why:
        raise RuntimeError(f"{subject.target}: {entry} cannot be replayed: {why}")
    return any(one["reproduced"] for one in again["entries"])


def drawn_mutants(subject: Subject, seed: int) -> Iterator[tuple[Mutant, Path, Row | None]]:
    """A kernel's mutants, where the result of each is kept and, if it was measured, the result; up to enough live ones.

    After the first that has no result nothing more is given: whether another one is needed depends on it.
    """
    live = 0
    for mutant in islice(draw_mutants(mutants_of(subject), f"{seed}/{subject.target}"), MOST):
        place = STORE / subject.label / f"{mutant.digest}.json"
        row = json.loads(place.read_text(encoding="utf-8")) if place.is_file() else None
        yield mutant, place, row
        live += row is not None and row["result"] in (KILLED, LIVE)
        if row is None or live == LIVE_EACH:
            return


def measure_next(subject: Subject, asked: argparse.Namespace) -> bool:
    """Measures a kernel's next mutant; False where enough are live, or none is left."""
    for mutant, place, row in drawn_mutants(subject, asked.seed):
        if row is None:
            row = asdict(mutant) | {"target": subject.target, "seconds": asked.seconds}
            row |= measure(subject, mutant, place.parent / "good.pt", asked.seconds, asked.seed)
            place.write_text(json.dumps(row), encoding="utf-8")
            change = f"{mutant.operator}: {mutant.old} -> {mutant.new}"
            print(f"{subject.target}:{mutant.line} {change}: {row['result']}", file=sys.stderr, flush=True)
            return True
    return False


def mutants_of(subject: Subject) -> list[Mutant]:
    """The mutants of the kernels that the target launches; the good kernel's behaviour is recorded the first time."""
    store = STORE / subject.label
    names = store / "kernels.json"
    if not names.is_file():
        store.mkdir(parents=True, exist_ok=True)
        names.write_text(json.dumps(record(subject.target, store / "good.pt")), encoding="utf-8")
    return list_mutants(subject.file.read_text(encoding="utf-8"), set(json.loads(names.read_text(encoding="utf-8"))))


def results(subject: Subject, seed: int) -> list[Row | None]:
    """The rows of a kernel's mutants, and None after them where one is not measured that should be."""
    if not (STORE / subject.label / "kernels.json").is_file():
        return [None]
    return [row for _, _, row in drawn_mutants(subject, seed)]


def measure_all(subjects: Iterable[Subject], asked: argparse.Namespace) -> None:
    """Measures the kernels' mutants, one of each in turn, until all are done or the time ends; jobs divide the
    processors. Of a kernel whose mutant cannot be measured no further one is.
    """
    end, waiting = time.monotonic() + 60 * asked.minutes, deque(subjects)

    def work(processors: Sequence[int]) -> None:
        # Of the thread that calls: the processes that it starts inherit them.
        os.sched_setaffinity(0, processors)
        with suppress(IndexError):
            while time.monotonic() < end:
                subject = waiting.popleft()
                try:
                    if measure_next(subject, asked):
                        waiting.append(subject)
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    print(error, file=sys.stderr, flush=True)

    with ThreadPoolExecutor(asked.jobs) as pool:
        for future in [pool.submit(work, share_of(job, asked.jobs)) for job in range(asked.jobs)]:
            future.result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=[subject.target for subject in SUBJECTS])
    parser.add_argument("--seconds", type=float, default=60.0, help="of fuzzing for each mutant")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="kernels at a time, which divide the processors")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="after which no further mutant is begun")
    parser.add_argument("--write", type=Path, help="the document whose table is written")
    asked = parser.parse_args()
    measure_all([subject for subject in SUBJECTS if subject.target in (asked.only or [subject.target])], asked)
    if asked.write:
        write(asked.write, {subject.target: results(subject, asked.seed) for subject in SUBJECTS})


if __name__ == "__main__":
    main()
