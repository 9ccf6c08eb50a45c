"""Items: what a run or a replay came to, one by one, as the formats of continuous integration tell it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from fuzz.model.entry import Entry
from fuzz.report.text import headline, screen
from fuzz.run.fuzzer import Result
from fuzz.target.spec import Target

PLACE = re.compile(r"(?P<file>.+?)(?:\[\w+\])?:(?P<line>[1-9][0-9]{0,8})")
"""A planted bug stands in brackets behind the file that it changes."""


@dataclass(frozen=True)
class Item:
    """One finding or entry. `state` is ok, failed or accepted; `seen` new, known or saved; `told` one line, why.

    `source` and `line` are where the kernel is wrong, as far as that is known.
    """

    entry: Entry
    path: str
    state: str
    seen: str
    told: str
    source: str
    line: int

    @property
    def rule(self) -> str:
        finding = self.entry.finding
        return f"{finding.oracle}/{finding.symptom}" if finding else "seed"

    @property
    def name(self) -> str:
        return self.entry.name.removesuffix(".yaml")

    @property
    def text(self) -> str:
        """The whole screen of the finding, ending with the command that repeats it."""
        return screen(self.entry, self.path, f"fuzz replay {self.path}")


def items(result: Result, target: Target, *, only_new: bool) -> list[Item]:
    """The findings of a run; those fail that its exit code counts."""
    found = []
    for bug in result.bugs:
        also = tuple(other.summary for other in bug.also)
        seen = replace(bug.provenance, backend=result.backend, rate=bug.rate)
        entry = Entry(bug.case, bug.reported_finding, planted=result.options.planted or "", also=also, provenance=seen)
        state = "accepted" if bug.accepted else "ok" if bug.known and only_new else "failed"
        told = headline(bug.reported_finding)
        found.append(item(entry, target, bug.path, state, "known" if bug.known else "new", told))
    return found


def item(entry: Entry, target: Target, path: str, state: str, seen: str, told: str) -> Item:
    status = "accepted" if state == "accepted" else entry.status
    return Item(replace(entry, status=status), path, state, seen, told, *location(entry, target))


def location(entry: Entry, target: Target) -> tuple[str, int]:
    """(file, line): the access that is wrong where the finding knows it, else the launcher in the target's file.

    Files below the working folder are told relative to it, as tools on a checkout expect.
    """
    known = PLACE.fullmatch(entry.finding.source_line) if entry.finding else None
    if known and Path(known["file"]).name != target.path.name:
        return known["file"], int(known["line"])
    line = int(known["line"]) if known else target.launcher.__code__.co_firstlineno
    return relative(target.path), line


def relative(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def failed(found: Iterable[Item]) -> int:
    return sum(one.state == "failed" for one in found)
