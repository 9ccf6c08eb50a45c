"""Goes on shrinking a saved entry, and saves what comes of it in its place."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from fuzz import corpus
from fuzz.model.case import sort_key
from fuzz.model.entry import Entry
from fuzz.shrink.shrinker import Budget
from fuzz.target.spec import Target
from fuzz.triage.bug import Bug
from fuzz.triage.triage import Triage
from fuzz.worker.deadline import OutOfTime


def shrink_entry(entry: Entry, triage: Triage, budget: Budget) -> Bug | None:
    """The bug of an entry, shrunk and explained as far as time allows; None where the entry does not disagree here.

    Raises OutOfTime where the deadline passes before that is known.
    """
    assert entry.finding is not None
    bug = triage.confirm(entry.case, entry.finding.as_accuracy, ())
    if bug is not None:
        with suppress(OutOfTime):
            triage.shrink(bug, budget)
        bug.least = replace(bug.least, only_on_cpu=entry.finding.only_on_cpu)
    return bug


def improves(bug: Bug, entry: Entry, target: Target) -> bool:
    """Whether the bug says more than its entry: by a smaller case, or because nothing of it is cut off any more."""
    smaller = sort_key(bug.case, target.defaults) < sort_key(entry.case, target.defaults)
    return smaller and not bug.is_undecided or bool(entry.provenance.cut_off) and not bug.cut_off


def replace_entry(path: Path, entry: Entry, bug: Bug) -> Path:
    """Saves the bug in place of its entry; an entry of the new name that exists keeps its status.

    Where kernel and reference differ by no more than either may, the entry keeps its case, and its verdict says so.
    """
    least = bug.least
    provenance = replace(entry.provenance, verdict=least.verdict, cut_off=bug.cut_off)
    if bug.is_undecided:
        return corpus.save_in_folder(path.parent, replace(entry, provenance=provenance), path)
    cross_checks = least.cross_checks or entry.provenance.cross_checks
    provenance = replace(provenance, diagnosis=least.diagnosis, cross_checks=cross_checks)
    return corpus.save_in_folder(
        path.parent, replace(entry, case=bug.case, finding=least.reported_finding, provenance=provenance), path
    )
