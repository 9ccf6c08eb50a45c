"""What is kept of the honest set in .honest: every run, and what came of findings that a run's end cut off."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
STORE = ROOT / ".honest"
SETS = ("torch", "flag_gems", "conch", "liger", "fla", "tutorials", "own", "gpuemu")
GRADES = "grades.jsonl"
NO_FINDING = ("agrees", "undecided")
DECIDED = ("graded", *NO_FINDING)
"""How questions about an entry end that need not be asked again."""
Row = dict[str, Any]
_writing = threading.Lock()


def environment() -> dict[str, str]:
    """The variables of a process that imports this checkout, with one thread, as jobs divide the processors."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def keep_run(backend: str, name: str, run: Row) -> None:
    """Keeps a run of a target of a set."""
    _append(f"{backend}-{name}.jsonl", run)


def kept_runs(backend: str, name: str) -> list[Row]:
    """Every run of a set on a backend."""
    return _lines(f"{backend}-{name}.jsonl")


def keep_grade(answer: Row) -> None:
    """Keeps what came of an entry that a run's end cut off."""
    _append(GRADES, answer)


def kept_grades() -> dict[str, Row]:
    """What came of entries that runs' ends cut off, by the entry's path in .honest."""
    return {row["entry"]: row for row in _lines(GRADES)}


def graded_runs(backend: str, name: str) -> list[Row]:
    """Every run of a set on a backend, each finding with the grade that it was given after the run.

    A case that its run had no time to confirm is a finding where it was confirmed since. What another run of the target
    has found in the same words is left out, and so is what agrees or is undecided since.
    """
    grades, said = kept_grades(), set[tuple[str, str]]()
    return [_graded(run, grades, said) for run in kept_runs(backend, name)]


def _graded(run: Row, grades: Mapping[str, Row], said: set[tuple[str, str]]) -> Row:
    findings = [one | grades.get(entry_of(one.get("path", "")), {}) for one in run.get("findings", ())]
    late = [grades.get(entry_of(path), {}) | {"seen": "new"} for path in run.get("kept", ())]
    known = []
    for one in [*findings, *(one for one in late if "output" in one)]:
        words = run["target"], one.get("message", "")
        if one.get("ended") not in NO_FINDING and words not in said:
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
