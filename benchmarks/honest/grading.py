"""Goes on with what the ends of the honest set's runs cut off: confirms, shrinks, adjudicates and grades it.

python -m benchmarks.honest.grading [--set NAME]... [--backend NAME] [--seconds N] [--minutes N] [--jobs N]

Each is an entry in .honest/corpus. What comes of it is kept in .honest/grades.jsonl, which the tables read: a grade,
that the case agrees, or that kernel and reference differ by no more than either may; anything else is asked again.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from benchmarks.honest.store import (
    DECIDED,
    ROOT,
    SETS,
    STORE,
    entry_of,
    environment,
    keep_grade,
    kept_grades,
    kept_runs,
)
from benchmarks.processors import share_of
from fuzz import corpus
from fuzz.errors import CorpusError

LEAST = 10.0
"""Seconds without which no entry is begun."""
PATIENCE = 30.0
"""Seconds for which a command may go on after its time has ended."""


class Question(NamedTuple):
    """An entry that is to be graded, as its run named it and where it is now, of a target as `fuzz run` takes it."""

    target: str
    entry: str
    now: str

    @staticmethod
    def of(target: str, path: str, answers: Mapping[str, Mapping[str, Any]]) -> Question:
        entry = entry_of(path)
        return Question(target, entry, answers.get(entry, {}).get("now", entry))

    def is_open(self, answers: Mapping[str, Mapping[str, Any]]) -> bool:
        return answers.get(self.entry, {}).get("ended") not in DECIDED and (STORE / self.now).is_file()


def questions(runs: Sequence[Mapping[str, Any]], answers: Mapping[str, Mapping[str, Any]]) -> list[Question]:
    """The entries of runs that are not graded, then those of cases that nobody confirmed, with targets in which nothing
    was found before the others.
    """
    new = [(run["target"], one) for run in runs for one in run.get("findings", ()) if one["seen"] == "new"]
    paths = [(target, one.get("path", "")) for target, one in new if not one.get("severity")]
    found = {target for target, _ in new}
    kept = [(run["target"], path) for run in runs for path in run.get("kept", ())]
    asked = [Question.of(*one, answers) for one in [*paths, *sorted(kept, key=lambda one: one[0] in found)]]
    return [one for one in dict.fromkeys(asked) if one.is_open(answers)]


def ask(question: Question, backend: str, seconds: float, end: float) -> dict[str, Any]:
    """What comes of an entry, for grades.jsonl: shrunk, and graded where shrinking left no time for that."""
    answer = shrink(question, backend, min(seconds, end - time.monotonic()))
    left = end - time.monotonic()
    if answer["ended"] not in DECIDED and "now" in answer and left >= LEAST:
        answer = shrink(question._replace(now=answer["now"]), backend, min(seconds, left), "--grade")
    return {"entry": question.entry, "target": question.target, "now": question.now} | answer


def shrink(question: Question, backend: str, seconds: float, *options: str) -> dict[str, Any]:
    """What `fuzz shrink` makes of an entry."""
    path = STORE / question.now
    command = [sys.executable, "-m", "fuzz", "shrink", str(path), f"--seconds={seconds:g}", f"--backend={backend}"]
    command += [f"--target={ROOT / question.target}"] if ":" in question.target else []
    command += options
    limit, variables = seconds + PATIENCE, environment()
    try:
        ended = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return {"ended": "its time ended"}
    if ended.returncode:
        agrees = "does not disagree here" in ended.stderr
        return {"ended": "agrees" if agrees else " ".join(ended.stderr.split())[-300:]}
    return described(Path(ended.stdout.partition(" replaces ")[0]) if " replaces " in ended.stdout else path)


def described(path: Path) -> dict[str, Any]:
    """The fields of a finding that an entry states, as `fuzz run --json` names them."""
    try:
        entry = corpus.read(path)
    except CorpusError as error:
        return {"ended": str(error)}
    assert entry.finding is not None
    verdict = entry.provenance.adjudication.name
    if entry.severity:
        ended = "graded"
    else:
        ended = verdict if verdict == "undecided" else f"{entry.provenance.cut_off or 'grading'} was cut off"
    return {
        "ended": ended,
        "now": entry_of(str(path)),
        "severity": entry.severity,
        "input_class": entry.grade and entry.grade.input_class,
        "verdict": verdict,
        "message": entry.finding.message,
        "output": entry.finding.output,
    }


def work(queue: SimpleQueue[tuple[str, Question]], asked: argparse.Namespace, processors: Sequence[int]) -> None:
    """Answers questions until none is left or the time ends."""
    os.sched_setaffinity(0, processors)  # Of the thread that calls: the processes that it starts inherit them.
    while asked.end - time.monotonic() >= LEAST:
        try:
            name, question = queue.get_nowait()
        except Empty:
            return
        answer = ask(question, asked.backend, asked.seconds, asked.end)
        keep_grade(answer)
        print(name, question.target.rpartition(":")[2], answer["ended"], answer.get("severity"), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", action="append", choices=SETS)
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each entry, at most")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="after which nothing is graded any more")
    parser.add_argument("--jobs", type=int, default=1)
    asked = parser.parse_args()
    asked.end = time.monotonic() + 60 * asked.minutes
    answers = kept_grades()
    queue: SimpleQueue[tuple[str, Question]] = SimpleQueue()
    for name in asked.set or SETS:
        for question in questions(kept_runs(asked.backend, name), answers):
            queue.put((name, question))
    with ThreadPoolExecutor(asked.jobs) as pool:
        for worker in [pool.submit(work, queue, asked, share_of(job, asked.jobs)) for job in range(asked.jobs)]:
            worker.result()


if __name__ == "__main__":
    main()
