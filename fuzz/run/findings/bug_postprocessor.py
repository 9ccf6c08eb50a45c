"""Grades saved bugs and runs their cases on other backends, after what has still to be saved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fuzz import corpus
from fuzz.errors import CorpusError
from fuzz.model.case import Case
from fuzz.model.oracle_specs import ACCURACY
from fuzz.run.findings.budgets import TriageBudgets
from fuzz.run.findings.bug_saver import BugSaver
from fuzz.run.findings.own_evidence import shows_itself
from fuzz.shrink.shrinker import Budget
from fuzz.triage.bug import SHRINKING, Bug
from fuzz.triage.cross_check import CROSS_CHECK, cross_check, only_on_cpu
from fuzz.triage.severity import GRADING, grade_bug, grade_by_run
from fuzz.triage.triage import Triage
from fuzz.worker.deadline import OutOfTime
from fuzz.worker.protocol import WorkerConfig

Task = Callable[[], None]
CPU = "cpu"
"""The backend whose kernels compute what Triton's interpreter does; a GPU may round otherwise."""


def run_now(task: Task) -> None:
    """Runs a task at once."""
    task()


@dataclass
class BugPostprocessor:
    """Finishes saved bugs: each gets its severity, and what other backends say of its case.

    `defer` takes each step, and may run it later; the entry is replaced after each. Planted bugs count whatever their
    severity is, and get none. Where time ends, `cut_off` of the bug names the step.
    """

    triage: Triage
    saver: BugSaver
    budgets: TriageBudgets
    worker_config: WorkerConfig
    with_cross_checks: bool = True
    with_grades: bool = True
    defer: Callable[[Task], None] = run_now

    def plan(self, bug: Bug) -> bool:
        """Sets the step that a bug waits for, which its entry names until it is done; False where it waits already.

        One that is not shrunk to the end is graded as well: without a severity it would count as medium.
        """
        if bug.waits_for:
            return False
        is_graded = bug.grade is not None and not bug.grade_in_doubt
        grades = self._grades and bug.cut_off in ("", SHRINKING) and not (is_graded or bug.is_undecided)
        bug.waits_for = GRADING if grades else self._cross_check_of(bug)
        return True

    def start(self, bug: Bug) -> None:
        """Defers the step that a bug waits for."""
        if bug.waits_for:
            self.defer(partial(self._do_next, bug))
        else:
            self.saver.watcher.on_triaged(bug)

    def resume(self, bug: Bug) -> None:
        """Goes on with a bug of an earlier run that had no time for one of these steps, where this one does them."""
        if self._grades if bug.cut_off == GRADING else self.with_cross_checks:
            bug.waits_for, bug.cut_off = bug.cut_off, ""
            self.start(bug)

    def grade_by_run(self, bug: Bug, usual_cases: int) -> None:
        """Gives a bug that the run had no time to grade the severity that the run's own cases say."""
        if self._grades and bug.unfinished and (grade := grade_by_run(bug, self.triage.target, usual_cases)):
            bug.grade = grade
            self.saver.save_again(bug)

    @property
    def _grades(self) -> bool:
        return self.with_grades and not self.saver.options.planted

    def _cross_check_of(self, bug: Bug) -> str:
        """CROSS_CHECK where other backends are to run the bug's least case, or nothing."""
        is_asked = bug.finding.oracle == ACCURACY.name and bug.least.verdict.name not in ("reference", "undecided")
        return CROSS_CHECK if self.with_cross_checks and is_asked and not bug.least.cross_checks else ""

    def _do_next(self, bug: Bug) -> None:
        """Does the step that a bug waits for, replaces its entry, and defers the step after that."""
        step, bug.waits_for = bug.waits_for, ""
        if not any(other is bug for other in self.saver.bugs):
            return  # It was merged with another one meanwhile.
        is_done, grading = False, self.budgets.grading()
        try:
            if not self._still_disagrees(bug):
                bug.cut_off = step
                return
            self._grade(bug, grading) if step == GRADING else self._cross_check(bug)
            is_done = True
        except OutOfTime:
            if grading.postponed:
                bug.waits_for, bug.cut_off = step, "" if bug.cut_off == GRADING else bug.cut_off
                self.start(bug)
                return
            bug.cut_off = bug.cut_off or step
            is_done = step == GRADING and bug.grade is not None and not bug.known
        bug.waits_for = self._cross_check_of(bug) if step == GRADING else ""
        if is_done:
            self.saver.save_again(bug)
        self.start(bug)

    def _still_disagrees(self, bug: Bug) -> bool:
        """Whether a bug of an earlier run disagrees here and has its entry, by which another run may have graded it."""
        if bug.path in self.saver.written:
            return True
        try:
            entry = corpus.read(Path(bug.path))
        except CorpusError:
            return False
        bug.grade = entry.grade
        bug.grade_in_doubt |= bug.grade is not None and bug.grade.is_for_now
        again = self.triage.confirm(bug.case, bug.finding, ())
        bug.rate = again.rate if again else bug.rate
        return again is not None

    def _grade(self, bug: Bug, budget: Budget) -> None:
        if bug.grade is None or bug.grade_in_doubt:
            grade_bug(bug, self.triage, budget, partial(shows_itself, self.saver.attribution))

    def _cross_check(self, bug: Bug) -> None:
        """Runs the bug's least case on the other backends, and the unshrunk one where that says that they differ."""
        least = self._ask_other_backends(bug, bug.case)
        on_cpu = self.worker_config.backend == CPU
        is_doubtful = on_cpu and only_on_cpu(least, {}) and bug.origin.case.key != bug.case.key
        unshrunk = self._ask_other_backends(bug, bug.origin.case) if is_doubtful else {}
        bug.least = replace(bug.least, cross_checks=least, only_on_cpu=on_cpu and only_on_cpu(least, unshrunk))

    def _ask_other_backends(self, bug: Bug, case: Case) -> dict[str, str]:
        """Whether other backends agree that a case shows a bug."""
        limits = self.saver.options.worker_memory, self.triage.target.timeout
        return cross_check(case, bug.finding, self.worker_config, *limits, self.budgets.deadline)
