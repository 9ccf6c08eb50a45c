"""How many cases each machine has judged of each kernel, as a CSV file of the repository.

Runs and what they found stay on the machine that ran them. What its line says is of that machine alone, so that files
of several ones are joined line by line.
"""

from __future__ import annotations

import csv
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.honest.store import ROOT, STORE, Row, judged

LEDGER = ROOT / "docs" / "honest-cases.csv"
ENOUGH = 10_000
"""Judged cases of a kernel, of which the table says how many kernels have them."""
Runs = Mapping[tuple[str, str], Sequence[Row]]


class Line(NamedTuple):
    """What a machine has run of a target on a backend; of `cases` so many were `judged`."""

    machine: str
    backend: str
    set: str
    target: str
    runs: int
    cases: int
    judged: int


def machine() -> str:
    """The name of this machine's store, made by chance when it is asked for the first time."""
    path = STORE / "machine"
    if not path.is_file():
        STORE.mkdir(exist_ok=True)
        path.write_text(secrets.token_hex(4), encoding="utf-8")
    return path.read_text(encoding="utf-8").strip()


def read(path: Path) -> list[Line]:
    """The lines of a file; none where there is no file."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        Line(**{name: int(text) if name in ("runs", "cases", "judged") else text for name, text in row.items()})
        for row in rows
    ]


def write(path: Path, lines: Sequence[Line]) -> None:
    """Writes lines in their order: by machine, backend, set and target."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([Line._fields, *sorted(lines)])


def joined(lines: Sequence[Line], name: str, runs: Runs) -> list[Line]:
    """The lines of other machines, and those of the machine of that name from its runs."""
    own: dict[tuple[str, str, str], list[Row]] = {}
    for (backend, group), found in runs.items():
        for run in found:
            own.setdefault((backend, group, run["target"]), []).append(run)
    return [line for line in lines if line.machine != name] + [
        Line(name, *place, len(found), sum(run.get("cases", 0) for run in found), sum(map(judged, found)))
        for place, found in own.items()
    ]


def elsewhere(lines: Sequence[Line], name: str, backend: str, group: str) -> Counter[str]:
    """The judged cases of each target of a set on a backend that other machines than the one of that name have had."""
    counted: Counter[str] = Counter()
    for line in lines:
        if line.machine != name and (line.backend, line.set) == (backend, group):
            counted[line.target] += line.judged
    return counted


def table(lines: Sequence[Line]) -> str:
    """A row for each set and backend, of all machines together."""
    cases: dict[tuple[str, str], Counter[str]] = {}
    for line in lines:
        cases.setdefault((line.set, line.backend), Counter())[line.target] += line.judged
    rows = [
        f"| {group} | {backend} | {len(counted)} | {counted.total():,} "
        f"| {sum(one >= ENOUGH for one in counted.values())} | {min(counted.values()):,} |"
        for (group, backend), counted in cases.items()
    ]
    head = f"| set | backend | kernels | cases, all machines | kernels with {ENOUGH:,} | least for one |"
    return "\n".join([head, "|---" * 6 + "|", *rows]) if rows else ""
