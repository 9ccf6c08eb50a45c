"""Makes an item of each finding or entry: what the formats for continuous integration say of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from fuzz.model.entry import Entry
from fuzz.report.entry_text import format_entry, headline, replay_command
from fuzz.run.replay import ReplayedEntry
from fuzz.run.result import Result
from fuzz.target.loader import target_argument
from fuzz.target.spec import Target

SOURCE_LINE = re.compile(r"(?P<file>.+?)(?:\[\w+\])?:(?P<line>[1-9][0-9]{0,8})")
"""A planted bug stands in brackets behind the file that it changes."""


SEED = "seed"
"""The rule of a case that is saved without a finding."""


@dataclass(frozen=True)
class ReportItem:
    """One finding or entry. `state` is ok, failed or accepted; `seen` new, known or saved; `message` is one line.

    `source` and `line` are where the kernel is wrong, as far as that is known; `target` is the target's file where that
    is not found from the entry.
    """

    entry: Entry
    path: str
    state: str
    seen: str
    message: str
    source: str
    line: int
    target: str = ""

    @property
    def oracle(self) -> str:
        """The oracle that files it; SEED for an entry that is no finding."""
        return self.entry.finding.oracle if self.entry.finding else SEED

    @property
    def rule(self) -> str:
        return f"{self.oracle}/{self.entry.finding.symptom}" if self.entry.finding else self.oracle

    @property
    def name(self) -> str:
        return self.entry.name.removesuffix(".yaml")

    @property
    def text(self) -> str:
        """The whole screen of the finding, ending with the command that repeats it."""
        return format_entry(self.entry, self.path, replay_command(self.path, self.target))


def make_item(entry: Entry, target: Target, path: str, state: str, seen: str, message: str) -> ReportItem:
    """The item of an entry, with the line of source that it concerns."""
    shown = replace(entry, status="accepted") if state == "accepted" else entry
    return ReportItem(shown, path, state, seen, message, *locate(entry, target), target_argument(target, Path(path)))


def run_items(result: Result, target: Target, *, only_new: bool) -> list[ReportItem]:
    """The findings of a run; those fail that its exit code counts."""
    items = []
    for bug in result.bugs:
        entry = bug.to_entry(backend=result.backend, planted=result.options.planted or "")
        passes = bug.known and only_new or not bug.counts(result.options.threshold)
        state = "accepted" if bug.accepted else "ok" if passes else "failed"
        message = headline(bug.least.reported_finding, entry.also)
        items.append(make_item(entry, target, bug.path, state, "known" if bug.known else "new", message))
    return items


def unconfirmed_oracles(runs: Iterable[tuple[Target, Result]]) -> dict[str, str]:
    """The oracles whose disagreements make runs fail though none is confirmed, and what is to be said of them."""
    texts: dict[str, list[str]] = {}
    for target, result in runs:
        for oracle, count in result.counted_unconfirmed.items():
            texts.setdefault(oracle, []).append(f"{target.name}: {count} disagreed, and the time ended before any")
    return {oracle: f"{', '.join(parts)} was confirmed; give it more --seconds" for oracle, parts in texts.items()}


def replay_item(replayed: ReplayedEntry) -> ReportItem:
    """A replayed entry; it fails where it did not do what its status says."""
    state = "accepted" if replayed.entry.status == "accepted" else "ok" if replayed.passed else "failed"
    return make_item(replayed.entry, replayed.target, str(replayed.path), state, "saved", replayed.message)


def locate(entry: Entry, target: Target) -> tuple[str, int]:
    """(file, line): the access that is wrong where the finding knows it, else the launcher in the target's file.

    Paths of files below the working folder are relative to it, as tools on a checkout expect.
    """
    access = SOURCE_LINE.fullmatch(entry.finding.source_line) if entry.finding else None
    if access and Path(access["file"]).name != target.path.name:
        return access["file"], int(access["line"])
    line = int(access["line"]) if access else target.launcher.__code__.co_firstlineno
    here = Path.cwd()
    return str(target.path.relative_to(here) if target.path.is_relative_to(here) else target.path), line
