"""Goes on with what the ends of the honest set's runs cut off: confirms, shrinks, adjudicates and grades it.

python -m benchmarks.honest.grading [--set NAME]... [--backend NAME] [--seconds N] [--minutes N] [--jobs N]
                                    [--again]

Each is an entry in .honest/corpus. What comes of it is kept in .honest/grades.jsonl, which the tables read: a grade,
that the case agrees, that kernel and reference differ by no more than either may, or that the target is declared
otherwise now; anything else is asked again. Targets take turns, and what has the output and the symptom of an entry of
the target that is graded is not asked for. After a repair, `--again` replays what is graded and asks for what was
undecided.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from benchmarks.honest.store import (
    AGREES,
    DECIDED,
    OLDER,
    ROOT,
    SETS,
    STORE,
    UNDECIDED,
    entries,
    entry_of,
    environment,
    graded_entries,
    graded_labels,
    keep_grade,
    kept_grades,
    kept_runs,
    label_of,
)
from benchmarks.processors import share_of
from fuzz import corpus
from fuzz.errors import CorpusError, TargetError
from fuzz.target.loader import check_fits, load_module, targets_in

LEAST = 10.0
"""Seconds without which no entry is begun."""
PATIENCE = 30.0
"""Seconds for which a command may go on after its time has ended."""
REPLAYED = "replayed"
LONGEST = 3
"""How many times as long an entry may have that was asked for in vain before."""


class Question(NamedTuple):
    """An entry that is to be graded, as its run named it and where it is now, of a target as `fuzz run` takes it, and
    how often it was asked for in vain. One that is `graded` is replayed.
    """

    target: str
    entry: str
    now: str
    asked: int = 0
    graded: bool = False

    @staticmethod
    def of(target: str, path: str, answers: Mapping[str, Mapping[str, Any]]) -> Question:
        entry = entry_of(path)
        answer = answers.get(entry, {})
        return Question(target, entry, answer.get("now", entry), answer.get("asked", 0))

    def is_open(self, answers: Mapping[str, Mapping[str, Any]], again: bool = False) -> bool:
        """Whether it is not decided; an undecided one is where it is asked `again`."""
        ended = answers.get(self.entry, {}).get("ended")
        return (ended not in DECIDED or again and ended == UNDECIDED) and (STORE / self.now).is_file()

    @property
    def labels(self) -> set[tuple[str, str]]:
        return {(self.target, label_of(each)) for each in (self.entry, self.now)}


def questions(
    runs: Sequence[dict[str, Any]], answers: Mapping[str, dict[str, Any]], again: bool = False
) -> list[Question]:
    """The entries of runs that are not graded and cases that nobody confirmed, but what has the output and the symptom
    of a grade.

    Those that were asked for least often come first, and of these one of each target before the second of any, of
    different outputs or symptoms if possible: findings, then cases of targets in which nothing was found, then others.
    """
    new = [(run["target"], one) for run in runs for one in run.get("findings", ()) if one["seen"] == "new"]
    paths = [(target, one.get("path", "")) for target, one in new if not one.get("severity")]
    found = {target for target, _ in new}
    kept = [(run["target"], path) for run in runs for path in run.get("kept", ())]
    asked = [Question.of(*one, answers) for one in [*paths, *sorted(kept, key=lambda one: one[0] in found)]]
    graded = graded_labels(runs, answers)
    kinds, places, ranked = Counter[str](), Counter[str](), []
    for one in dict.fromkeys(asked):
        if one.is_open(answers, again) and not one.labels & graded:
            label = f"{one.target} {label_of(one.entry)}"
            ranked.append((one.asked, kinds[label], places[one.target], len(ranked), one))
            kinds[label] += 1
            places[one.target] += 1
    return [one for *_, one in sorted(ranked, key=lambda rank: rank[:-1])]


def replays(runs: Sequence[dict[str, Any]], answers: Mapping[str, dict[str, Any]]) -> Iterator[Question]:
    """The entries of runs that have a grade, from the run or since."""
    for target, entry, now in graded_entries(runs, answers):
        if (STORE / now).is_file():
            yield Question(target, entry, now, answers.get(entry, {}).get("asked", 0), graded=True)


def misfits(runs: Sequence[dict[str, Any]], answers: Mapping[str, dict[str, Any]]) -> Iterator[Question]:
    """The entries of runs, graded ones too, whose targets are declared otherwise now."""
    for one in dict.fromkeys(Question.of(target, each.get("path", ""), answers) for target, each in entries(runs)):
        if answers.get(one.entry, {}).get("ended") != OLDER and (STORE / one.now).is_file() and not fits(one):
            yield one


def fits(question: Question) -> bool:
    """Whether an entry is a case of its target as that is declared now: of these arguments, options and sizes."""
    file, _, name = question.target.partition(":")
    if not name:
        return True
    if not (ROOT / file).is_file():
        return False
    try:
        targets = targets_in(load_module(ROOT / file))
    except TargetError:
        targets = {}
    if name not in targets:
        return not targets  # What all of them need is not there, which says nothing of the entry.
    target, path = targets[name], STORE / question.now
    try:
        case = corpus.read(path).case
        check_fits(case, target, path)
    except CorpusError:
        return False
    return all(dim.low <= call.dims[dim.name] <= dim.high for call in case.calls for dim in target.sizes)


def ask(question: Question, backend: str, seconds: float, end: float) -> dict[str, Any]:
    """What comes of an entry, for grades.jsonl: shrunk, and graded where shrinking left no time for that."""
    asked = {"entry": question.entry, "target": question.target, "now": question.now}
    if question.graded:
        return asked | replay(question, backend, min(seconds, end - time.monotonic()))
    seconds *= min(1 + question.asked, LONGEST)
    answer = shrink(question, backend, min(seconds, end - time.monotonic()))
    left = end - time.monotonic()
    if answer["ended"] not in DECIDED and "now" in answer and left >= LEAST:
        # Where there is no time for a grade, the entry is still where it was shrunk to.
        answer |= shrink(question._replace(now=answer["now"]), backend, min(seconds, left), "--grade")
    return asked | answer


def command(name: str, question: Question, backend: str, *options: str) -> list[str]:
    """A command of `fuzz` for an entry."""
    of = [f"--target={ROOT / question.target}"] if ":" in question.target else []
    return [sys.executable, "-m", "fuzz", name, str(STORE / question.now), f"--backend={backend}", *of, *options]


def end_of(words: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str] | None:
    """How a command ended; None where it took longer."""
    limit, variables = seconds + PATIENCE, environment()
    try:
        return subprocess.run(words, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return None


def replay(question: Question, backend: str, seconds: float) -> dict[str, Any]:
    """That an entry that has a grade agrees now, or is refused; that it was replayed where it does not."""
    ended = end_of(command("replay", question, backend), seconds)
    over = ended is not None and any(
        words in ended.stdout for words in ("but it agrees now", "but it ends otherwise now")
    )
    return {"ended": AGREES if over else REPLAYED}


def shrink(question: Question, backend: str, seconds: float, *options: str) -> dict[str, Any]:
    """What `fuzz shrink` makes of an entry."""
    path = STORE / question.now
    ended = end_of(command("shrink", question, backend, f"--seconds={seconds:g}", *options), seconds)
    if ended is None:
        return {"ended": "its time ended"}
    if ended.returncode:
        agrees = "does not disagree here" in ended.stderr
        return {"ended": AGREES if agrees else " ".join(ended.stderr.split())[-300:]}
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


def work(
    queue: SimpleQueue[tuple[str, Question]],
    graded: set[tuple[str, str]],
    asked: argparse.Namespace,
    processors: Sequence[int],
) -> None:
    """Answers questions until none is left or the time ends; `graded` holds labels of what came of others meanwhile."""
    os.sched_setaffinity(0, processors)  # Of the thread that calls: the processes that it starts inherit them.
    while asked.end - time.monotonic() >= LEAST:
        try:
            name, question = queue.get_nowait()
        except Empty:
            return
        if question.labels & graded:
            continue
        answer = ask(question, asked.backend, asked.seconds, asked.end)
        if answer["ended"] != REPLAYED:
            keep_grade(answer)
        if answer.get("severity"):
            graded |= question.labels | question._replace(now=answer["now"]).labels
        print(name, question.target.rpartition(":")[2], answer["ended"], answer.get("severity"), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", action="append", choices=SETS)
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each entry, at most")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="after which nothing is graded any more")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--again", action="store_true", help="replay what has a grade, and ask again what was undecided"
    )
    asked = parser.parse_args()
    asked.end = time.monotonic() + 60 * asked.minutes
    queue: SimpleQueue[tuple[str, Question]] = SimpleQueue()
    for name in asked.set or SETS:
        runs = kept_runs(asked.backend, name)
        for question in misfits(runs, kept_grades()):
            keep_grade({"entry": question.entry, "target": question.target, "now": question.now, "ended": OLDER})
        replayed = replays(runs, kept_grades()) if asked.again else ()
        for question in [*replayed, *questions(runs, kept_grades(), asked.again)]:
            queue.put((name, question))
    graded: set[tuple[str, str]] = set()
    with ThreadPoolExecutor(asked.jobs) as pool:
        jobs = [(queue, graded, asked, share_of(job, asked.jobs)) for job in range(asked.jobs)]
        for worker in [pool.submit(work, *job) for job in jobs]:
            worker.result()


if __name__ == "__main__":
    main()
