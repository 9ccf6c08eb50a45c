"""Keeps one bug for each cause: finds the bug that covers a finding, merges bugs, and reads the known ones."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from pathlib import Path

from fuzz import corpus
from fuzz.model.case import Case
from fuzz.model.entry import Entry
from fuzz.model.finding import Finding
from fuzz.target.spec import Target
from fuzz.triage.bug import Bug, Example, Sighting
from fuzz.triage.conditions import non_defaults


def covering_bug(bugs: Iterable[Bug], finding: Finding, case: Case, target: Target) -> Bug | None:
    """The first bug that is the cause of a finding in a case; None where there is none."""
    departures = non_defaults(case, target)
    return next((bug for bug in bugs if bug.covers(finding, departures, case)), None)


def merge_bug(bugs: list[Bug], new: Bug, defaults: Mapping[str, object]) -> Bug | None:
    """Merges a new bug into the first with the same cause, which takes the smaller example of both; None without one.

    The merged bug keeps its path, the entry there is replaced, unless that entry was there before the run.
    """
    for old in bugs:
        explains_values = old.may_hide(new.finding) and new.needs <= old.needs
        if explains_values or same_cause(old, new):
            old.value_needs = new.needs if explains_values else old.value_needs
            old.needs &= new.needs
            if new.is_smaller_than(old, defaults):
                old.least = new.least
                old.path = "" if old.known else old.path
            old.hits += new.hits
            old.outputs |= new.outputs
            return old
    return None


def same_cause(old: Bug, new: Bug) -> bool:
    """Whether two bugs have one cause: both shrank to one case, or either one's case triggers the other."""
    alike = old.stateful and new.stateful and old.finding.oracle == new.finding.oracle
    covered = old.covers(new.finding, new.needs, new.case) or new.covers(old.finding, old.needs, old.case)
    return alike or old.case.key == new.case.key or covered


def known_bugs(folder: Path, target: Target, planted: str | None, other_than: Container[str] = ()) -> list[Bug]:
    """The bugs of a target's entries in a corpus folder that are not marked as fixed, each with no hits yet.

    Entries at the paths `other_than` are not read. Raises CorpusError where an entry cannot be read.
    """
    place = folder / target.name
    paths = [path for path in corpus.entry_files([place]) if str(path) not in other_than] if place.is_dir() else []
    entries = {path: corpus.read(path) for path in paths}
    return [
        known_bug(path, entry, entry.finding, target)
        for path, entry in entries.items()
        if entry.finding is not None and entry.status != "fixed" and entry.planted == (planted or "")
    ]


def known_bug(path: Path, entry: Entry, finding: Finding, target: Target) -> Bug:
    """The bug that an entry was saved for."""
    least = Example(
        entry.case,
        finding.as_accuracy,
        also=tuple(filter(None, map(Finding.parse_summary, entry.also))),
        verdict=entry.provenance.adjudication,
        only_on_cpu=finding.only_on_cpu,
    )
    bug = Bug(least, Sighting(entry.case, ""), hits=0, path=str(path), known=True)
    bug.accepted = entry.status == "accepted"
    bug.cut_off = entry.provenance.cut_off
    bug.stateful = len(entry.case.calls) > 1
    bug.needs = non_defaults(entry.case, target)
    bug.outputs = set(finding.outputs)
    return bug
