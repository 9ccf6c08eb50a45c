"""Reads the bugs that are known before a run: those of a target's entries in a corpus folder."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import replace
from pathlib import Path

from fuzz import corpus
from fuzz.errors import CorpusError
from fuzz.model.entry import Entry
from fuzz.model.finding import REFERENCE, Finding
from fuzz.model.oracle_specs import SYMPTOMS
from fuzz.model.rate import Rate
from fuzz.target.loader import check_fits
from fuzz.target.spec import Target
from fuzz.triage.bug import Bug, Example, Origin


def read_known_bugs(
    folder: Path,
    target: Target,
    planted: str | None,
    other_than: Container[str] = (),
    on_left_out: Callable[[str], None] = lambda reason: None,
) -> list[Bug]:
    """The bugs of a target's entries in a corpus folder that are not marked as fixed, each with no hits yet.

    Entries at the paths `other_than` are not read. One that cannot be read, or that is older than the target's
    declaration and does not fit it, is left out, and `on_left_out` is given the reason.
    """
    place = folder / target.name
    bugs = []
    for path in corpus.entry_files([place]) if place.is_dir() else ():
        if str(path) in other_than:
            continue
        try:
            entry = corpus.read(path)
            if entry.finding is not None and entry.status != "fixed" and entry.planted == (planted or ""):
                check_fits(entry.case, target, path)
                bugs.append(bug_of_entry(path, entry, entry.finding))
        except CorpusError as error:
            on_left_out(str(error))
    return bugs


def bug_of_entry(path: Path, entry: Entry, finding: Finding) -> Bug:
    """The bug that an entry was saved for."""
    least = Example(
        entry.case,
        finding.as_accuracy,
        also=tuple(filter(None, map(Finding.parse_summary, entry.also))),
        verdict=entry.provenance.adjudication,
        diagnosis=entry.provenance.diagnosis,
        cross_checks=entry.provenance.cross_checks,
        only_on_cpu=finding.only_on_cpu,
    )
    rate = entry.provenance.rate or Rate()
    bug = Bug(least, Origin(entry.case, ""), rate, hits=0, path=str(path), known=True)
    bug.accepted = entry.status == "accepted"
    bug.cut_off, bug.grade = entry.provenance.cut_off, entry.grade
    bug.first_case = entry.provenance.seed, entry.provenance.first_case
    bug.stateful = len(entry.case.calls) > 1
    joined = (other.subjects for other in least.also if other.oracle == least.finding.oracle)
    bug.subjects = bug.subjects.union(*joined)
    if finding.symptom == REFERENCE:
        # The verdict said so; the oracle may have seen any other symptom.
        seen = (replace(finding, symptom=symptom) for symptom in SYMPTOMS[finding.oracle])
        bug.subjects = bug.subjects.union(*(one.subjects for one in seen))
    return bug
