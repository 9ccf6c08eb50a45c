"""Shrinks and explains bugs, those of earlier runs among them; what takes long is postponed for something new."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fuzz import corpus
from fuzz.errors import CorpusError
from fuzz.model.case import Case
from fuzz.model.entry import Entry
from fuzz.model.finding import Finding, Subject
from fuzz.model.oracle_specs import ACCURACY
from fuzz.run.findings.budgets import TriageBudgets
from fuzz.run.findings.bug_postprocessor import BugPostprocessor
from fuzz.run.findings.bug_saver import BugSaver
from fuzz.run.shrink_entry import improves, shrink_entry
from fuzz.shrink.passes import usual_inputs
from fuzz.target.loader import check_fits
from fuzz.triage.bug import SHRINKING, Bug
from fuzz.triage.cross_check import CROSS_CHECK
from fuzz.triage.input_classes import is_usual
from fuzz.triage.severity import GRADING
from fuzz.triage.triage import Triage
from fuzz.worker.deadline import OutOfTime

Handle = Callable[[int, Case, Sequence[Finding], Sequence[Case]], Sequence[Finding]]
"""Handles the findings of a case: (its index, the case, its findings, cases that ran before) -> what of them is to be
handled once more."""


@dataclass
class BugShrinker:
    """Shrinks bugs, and goes on with those that were postponed, whose cause is compared with that of others then.

    A bug is postponed where something waits that is like nothing before: it is certified and saved first. `handle`
    handles what its smaller case does not show any more.
    """

    triage: Triage
    saver: BugSaver
    postprocessor: BugPostprocessor
    budgets: TriageBudgets
    handle: Handle

    def shrink(self, bug: Bug) -> None:
        """Shrinks a bug as far as time allows, or until something waits that is like nothing before: it is postponed.

        What takes longest comes after that as well: to compare its cause with those of others. One that goes on counts
        as postponed meanwhile: what it may explain waits for it, and is nothing to postpone it for again.
        """
        postponed = False
        with suppress(OutOfTime):
            is_asked = self.budgets.time_limit is not None and not bug.needs_clean_workers
            usual = not is_asked or self.triage.shows_with_usual_inputs(bug.case, bug.sought)
            if is_asked and usual and bug.sought.oracle == ACCURACY.name:
                bug.shown_by_usual |= is_usual(usual_inputs(bug.case), self.saver.target)
            budget = self.budgets.shrinking(usual=usual)
            if not bug.is_known_of(usual=True):
                budget.is_urgent = lambda: self.budgets.has_news() or self._waits_for_usual(bug)
            self.triage.shrink(bug, budget)
            postponed = budget.postponed or not bug.cut_off and self.budgets.has_news()
        bug.waits_for = SHRINKING if postponed else ""
        bug.cut_off = "" if postponed else bug.cut_off

    def _waits_for_usual(self, bug: Bug) -> bool:
        """Whether usual inputs are known to show another bug that is to be shrunk further, but not this one."""
        waiting = (other for other in self.saver.bugs if other is not bug and other.is_postponed)
        return not bug.is_known_of(usual=True) and any(other.is_known_of(usual=True) for other in waiting)

    def explain(self, bug: Bug) -> None:
        """Explains a bug; one whose case will be smaller is certified only."""
        self.triage.certify(bug) if bug.is_postponed else self.triage.explain(bug)

    def defer(self, bug: Bug) -> None:
        """Has a postponed bug that is saved shrunk further when nothing new waits."""
        self.postprocessor.defer(partial(self._shrink_further, bug))

    def others_to_compare(self, bug: Bug, *, only_equal: bool = False) -> list[Bug]:
        """The bugs that may have the cause of another, as far as both are shrunk, or equal already."""
        others = [other for other in self.saver.bugs if other is not bug]
        waits = only_equal or bug.is_postponed
        return [other for other in others if not (waits or other.is_postponed) or other.is_equal_to(bug)]

    def report(self, bug: Bug) -> None:
        self.saver.watcher.on_shrunk(bug)
        if not bug.cut_off and self.budgets.is_for_shrinking:
            with suppress(OutOfTime):
                # The next case is chosen by whether it lacks what this bug needs.
                self.triage.find_triggers(bug)

    def _shrink_further(self, bug: Bug) -> None:
        """Goes on with a postponed bug, unless it was merged meanwhile or what time is left is for its grade.

        What the smaller case does not show any more is handled once more, as it may have another cause.
        """
        if not any(other is bug for other in self.saver.bugs):
            return
        if self._waits_for_usual(bug):
            self.defer(bug)
            return
        start, before, sought = time.monotonic(), bug.least, bug.sought
        not_shown = frozenset[Subject]()
        if not self.budgets.is_for_shrinking:
            self._leave_unshrunk(bug)
            return
        try:
            self.shrink(bug)
            if bug.case.key != before.case.key:
                # As the oracle says it: what is certified may blame the reference.
                not_shown = sought.subjects - bug.finding.subjects
            self.explain(bug)
        except OutOfTime:
            bug.least = before
            self._leave_unshrunk(bug)
            return
        if bug.is_undecided:
            bug.least, not_shown = before, frozenset()
        bug.leave_out(not_shown)
        bug.triggers = None
        bug.keep_departures()
        self._save_further(bug)
        self.budgets.spent += time.monotonic() - start
        if lost := sought.restricted_to(not_shown):
            self._handle_later(bug.origin.index, before.case, [lost])

    def _leave_unshrunk(self, bug: Bug) -> None:
        """Has a bug graded that the run has no time to shrink; nor to compare, as what it needs takes long to find."""
        bug.waits_for, bug.cut_off = "", SHRINKING
        self.saver.watcher.on_shrunk(bug)
        self.postprocessor.plan(bug)
        self.postprocessor.start(bug)

    def _save_further(self, bug: Bug) -> None:
        """Saves a postponed bug again, or merges it where its smaller case shows that another one has its cause.

        In the time that is kept for grades only equal ones count: what others need takes long to find.
        """
        others = self.others_to_compare(bug, only_equal=not self.budgets.is_for_shrinking)
        same = self.saver.find_same_cause(bug, others)
        if same is not None:
            self._merge(bug, same)
            return
        self.saver.mention_others(bug)
        self.postprocessor.plan(bug)
        self.saver.save_again(bug)
        if bug.is_postponed:
            self.defer(bug)
        else:
            self.report(bug)
            self.postprocessor.start(bug)

    def _merge(self, bug: Bug, same: Bug) -> None:
        with self.saver.locked(bug):
            replaces = self.saver.merge_saved(bug, same)
            starts = (replaces or same.grade is None) and self.postprocessor.plan(same)
            if replaces:
                self.saver.save(same)
            self.saver.remove_merged(bug, same)
        if not replaces:
            self.saver.watcher.on_merged(same, bug.origin.index)
        elif not same.is_postponed:
            self.report(same)
        if starts:
            self.postprocessor.start(same)

    def _handle_later(self, index: int, case: Case, findings: Sequence[Finding]) -> None:
        """Handles findings after what waits already, until nothing is left of them."""

        def handle() -> None:
            if rest := self.handle(index, case, findings, ()):
                self._handle_later(index, case, rest)

        self.postprocessor.defer(handle)

    def resume(self) -> None:
        """Goes on with what earlier runs saved and had no time to finish."""
        for bug in [bug for bug in self.saver.bugs if bug.cut_off and not bug.accepted]:
            self._resume(bug)

    def _resume(self, bug: Bug) -> None:
        start = time.monotonic()
        with suppress(OutOfTime, CorpusError):
            entry = corpus.read(Path(bug.path))
            check_fits(entry.case, self.saver.target, Path(bug.path))
            if bug.cut_off not in (GRADING, CROSS_CHECK):
                self._shrink_on(bug, entry)
            else:
                self.postprocessor.resume(bug)
        self.budgets.spent += time.monotonic() - start

    def _shrink_on(self, bug: Bug, entry: Entry) -> None:
        """Goes on shrinking and explaining a known bug, and replaces its entry."""
        budget = self.budgets.shrinking()
        again = shrink_entry(entry, self.triage, budget, graded=False)
        if budget.postponed and again is not None and again.cut_off:
            self.postprocessor.defer(partial(self._resume, bug))
        if again is not None and (same := self.saver.find_finished(again, bug)):
            self.saver.join(bug, again, same)
        elif again is not None and improves(again, entry, self.saver.target):
            bug.least, bug.triggers, bug.cut_off, bug.rate = again.least, None, again.cut_off, again.rate
            bug.grade = again.grade
            self.postprocessor.plan(bug)
            self.saver.save_again(bug)
            self.saver.watcher.on_shrunk(bug)
            self.postprocessor.start(bug)
