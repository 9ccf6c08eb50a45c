"""Goes on shrinking a saved entry, and saves what comes of it in its place."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from fuzz import corpus
from fuzz.errors import UsageError
from fuzz.model.case import sort_key
from fuzz.model.entry import Entry
from fuzz.model.grade import Grade
from fuzz.shrink.shrinker import Budget
from fuzz.target.spec import Target
from fuzz.triage.bug import SHRINKING, Bug
from fuzz.triage.severity import GRADING, grade_bug
from fuzz.triage.triage import Triage
from fuzz.worker.deadline import OutOfTime


def shrink_entry(entry: Entry, triage: Triage, budget: Budget, *, graded: bool = True) -> Bug | None:
    """The bug of an entry, shrunk, explained and `graded` as far as time allows; None where it does not disagree here.

    Raises OutOfTime where the deadline passes before that is known.
    """
    assert entry.finding is not None
    bug = triage.confirm(entry.case, entry.finding.as_accuracy, ())
    if bug is not None:
        bug.grade = None if entry.grade and entry.grade.is_for_now else entry.grade
        with suppress(OutOfTime):
            triage.shrink(bug, budget)
            if entry.provenance.cut_off == SHRINKING and bug.case.key != entry.case.key:
                # Inputs that are more ordinary may show what is left of it.
                bug.grade = None
            triage.explain(bug)
            if graded and not (bug.grade or bug.is_undecided):
                grade_bug(bug, triage, budget)
        bug.least = replace(bug.least, only_on_cpu=entry.finding.only_on_cpu)
        if bug.case.key == entry.case.key:
            # The entry may say what only the unshrunk case shows, which it does not hold.
            said = dict.fromkeys((*entry.provenance.diagnosis, *bug.least.diagnosis))
            bug.least = replace(bug.least, diagnosis=tuple(said))
    return bug


def grade_entry(entry: Entry, triage: Triage, budget: Budget) -> Grade | None:
    """An entry's severity and typical case; None where it does not disagree here.

    Raises OutOfTime where the budget ends meanwhile.
    """
    assert entry.finding is not None
    bug = triage.confirm(entry.case, entry.finding.as_accuracy, ())
    if bug is None:
        return None
    bug.least = replace(bug.least, verdict=entry.provenance.adjudication)
    bug.stateful = len(entry.case.calls) > 1
    grade_bug(bug, triage, budget)
    return bug.grade


def save_grade(path: Path, graded: Entry, grade: Grade) -> None:
    """Puts the grade of the entry `graded` into its file, and leaves whatever else somebody has changed there since.

    UsageError where the entry is gone, or has another case now.
    """

    def with_grade(entry: Entry) -> Entry:
        if entry.case.key != graded.case.key:
            raise UsageError(f"{path} is not graded: it was given another case meanwhile")
        cut_off = "" if entry.provenance.cut_off == GRADING else entry.provenance.cut_off
        return replace(entry, grade=grade, provenance=replace(entry.provenance, cut_off=cut_off))

    check_is_there(path)
    corpus.update(path, with_grade)


def improves(bug: Bug, entry: Entry, target: Target) -> bool:
    """Whether the bug says more than its entry: by a smaller case, its severity, or because nothing is cut off now."""
    smaller = sort_key(bug.case, target.defaults) < sort_key(entry.case, target.defaults)
    finished = bool(entry.provenance.cut_off) and not bug.cut_off
    return smaller and not bug.is_undecided or finished or bug.grade != entry.grade


def check_is_there(path: Path) -> None:
    """UsageError where the entry is gone: whoever removed or renamed it does not want it back."""
    if not path.exists():
        raise UsageError(f"{path} is gone: it was removed or renamed meanwhile")


def replace_entry(path: Path, entry: Entry, bug: Bug) -> Path:
    """Saves the bug in place of its entry; an entry of the new name that exists keeps its status.

    UsageError where the entry is gone.
    """
    check_is_there(path)
    return corpus.save_in_folder(path.parent, updated_entry(entry, bug), path)


def updated_entry(entry: Entry, bug: Bug) -> Entry:
    """The entry of a bug with what is known of it now.

    Where kernel and reference differ by no more than either may, the entry keeps its case, and its verdict says so.
    """
    least = bug.least
    provenance = replace(entry.provenance, verdict=least.verdict, cut_off=bug.unfinished)
    if bug.is_undecided:
        return replace(entry, provenance=provenance)
    cross_checks = least.cross_checks or entry.provenance.cross_checks
    provenance = replace(provenance, diagnosis=least.diagnosis, cross_checks=cross_checks, rate=bug.rate)
    shown = bug.to_entry()
    replaced = replace(entry, case=shown.case, finding=shown.finding, also=shown.also, grade=shown.grade)
    return replace(replaced, provenance=provenance)
