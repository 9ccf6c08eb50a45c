"""What is kept of the honest set in .honest: every run, and what came of findings that a run's end cut off."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence, Set
from hashlib import sha256
from pathlib import Path, PurePath
from typing import Any

ROOT = Path(__file__).parents[2]
STORE = ROOT / ".honest"
SETS = ("torch", "flag_gems", "conch", "liger", "fla", "tutorials", "own", "gpuemu")
GRADES = "grades.jsonl"
OLDER = "of an older declaration"
UNDECIDED = "undecided"
AGREES = "agrees"
NO_FINDING = (AGREES, UNDECIDED, OLDER)
DECIDED = ("graded", *NO_FINDING)
"""How questions about an entry end that need not be asked again."""
GRADE = ("severity", "input_class", "verdict", "message")
"""Fields of a finding that a grade brings."""
Row = dict[str, Any]
_writing = threading.Lock()


def environment() -> dict[str, str]:
    """The variables of a process that imports this checkout, with one thread, as jobs divide the processors."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def keep_run(backend: str, name: str, run: Row) -> None:
    """Keeps a run of a target of a set, and of which declaration it had no case."""
    empty = {} if run.get("cases") else {"declaration": declaration_of(run["target"])}
    _append(f"{backend}-{name}.jsonl", run | empty)


def kept_runs(backend: str, name: str) -> list[Row]:
    """Every run of a set on a backend, but those without a case of an older declaration of their target."""
    runs = _lines(f"{backend}-{name}.jsonl")
    return [one for one in runs if one.get("cases") or one.get("declaration") == declaration_of(one["target"])]


def judged(run: Mapping[str, Any]) -> int:
    """The cases of a run that its target did not refuse, that had the memory they need, and that oracles examined: of
    replicas that disagree only the first ones are.
    """
    accepted: int = run.get("cases", 0) - run.get("rejected", 0) - run.get("not_run", 0)
    examined: int = run.get("oracles", {}).get("fault", accepted)
    return examined


def declaration_of(target: str) -> str:
    """A digest of the file that declares a target; empty where there is none any more."""
    path = ROOT / target.partition(":")[0]
    return sha256(path.read_bytes()).hexdigest()[:16] if path.is_file() else ""


def keep_grade(answer: Row) -> None:
    """Keeps what came of an entry that a run's end cut off."""
    _append(GRADES, answer)


def kept_grades() -> dict[str, Row]:
    """What came last of entries that runs' ends cut off, and how often each was `asked`, by its path in .honest."""
    found: dict[str, Row] = {}
    for row in _lines(GRADES):
        found[row["entry"]] = row | {"asked": found.get(row["entry"], row).get("asked", 0) + 1}
    return found


def graded_runs(backend: str, name: str) -> list[Row]:
    """Every run of a set on a backend, each finding with the grade that it was given after the run.

    A case that its run had no time to confirm is a finding where it was confirmed since. What another run of the target
    has found in the same words is left out, and so is what agrees, is undecided or of an older declaration since, and
    what is not graded where a grade is known of the same output and symptom.
    """
    runs, grades, said = kept_runs(backend, name), kept_grades(), set[tuple[str, str]]()
    for one in [one for run in runs for one in run.get("findings", ()) if one.get("severity") and one.get("path")]:
        # A later run of the target may have graded what an earlier one had no time for.
        entry = entry_of(one["path"])
        grades[entry] = {field: one[field] for field in GRADE if field in one} | grades.get(entry, {})
    labels = graded_labels(runs, grades)
    return [_graded(run, grades, labels, said) for run in runs]


def graded_labels(runs: Sequence[Row], grades: Mapping[str, Row]) -> set[tuple[str, str]]:
    """Targets with the outputs and the symptom of what was graded of them."""
    return {(target, label_of(each)) for target, *places in graded_entries(runs, grades) for each in places}


def graded_entries(runs: Sequence[Row], grades: Mapping[str, Row]) -> Iterator[tuple[str, str, str]]:
    """What has a grade, from its run or since: the target, the entry as its run named it, and where it is now."""
    for target, one in entries(runs):
        entry = entry_of(one.get("path", ""))
        answer = grades.get(entry, {})
        if (one | answer).get("severity") and answer.get("ended") not in NO_FINDING:
            yield target, entry, answer.get("now", entry)


def entries(runs: Sequence[Row]) -> Iterator[tuple[str, Row]]:
    """The targets of runs with each finding, and with the path of each case that a run had no time to confirm."""
    for run in runs:
        for one in [*run.get("findings", ()), *({"path": path} for path in run.get("kept", ()))]:
            yield run["target"], one


def label_of(entry: str) -> str:
    """The outputs and the symptom after which the file of an entry is named."""
    return PurePath(entry).stem.rpartition("-")[0]


def _graded(run: Row, grades: Mapping[str, Row], labels: Set[tuple[str, str]], said: set[tuple[str, str]]) -> Row:
    findings = [one | grades.get(entry_of(one.get("path", "")), {}) for one in run.get("findings", ())]
    late = [grades.get(entry_of(path), {}) | {"seen": "new"} for path in run.get("kept", ())]
    known = []
    for one in [*findings, *(one for one in late if "output" in one)]:
        words = run["target"], one.get("message", "")
        same = not one.get("severity") and (run["target"], label_of(one.get("path") or one.get("entry", ""))) in labels
        if one.get("ended") not in NO_FINDING and words not in said and not same:
            said.add(words)
            known.append(one)
    return run | {"findings": known}


def entry_of(path: str) -> str:
    """The path of an entry in .honest, of one that may have been written in another checkout."""
    return path.rpartition(f"/{STORE.name}/")[2]


def _lines(name: str) -> list[Row]:
    place = STORE / name
    return [json.loads(line) for line in place.read_text(encoding="utf-8").splitlines()] if place.is_file() else []


def _append(name: str, row: Row) -> None:
    with _writing, (STORE / name).open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
