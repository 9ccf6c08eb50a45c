"""Turns disagreements into bugs: counts hits of known ones; confirms, shrinks and explains new ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from fuzz import corpus
from fuzz.model.case import Case
from fuzz.model.finding import REFERENCE, Finding, Subject
from fuzz.model.grade import INPUT_CLASSES
from fuzz.model.oracle_specs import FAULT, find_oracle_spec
from fuzz.run.findings.budgets import TriageBudgets
from fuzz.run.findings.bug_postprocessor import BugPostprocessor
from fuzz.run.findings.bug_saver import BugSaver
from fuzz.run.findings.bug_shrinker import BugShrinker
from fuzz.run.findings.deduplicate import Attribution
from fuzz.run.options import RunOptions
from fuzz.run.watcher import Watcher
from fuzz.target.spec import Target
from fuzz.triage.bug import Bug
from fuzz.triage.input_classes import classify_drawn, is_usual
from fuzz.triage.triage import Triage
from fuzz.worker.deadline import Deadline, OutOfTime
from fuzz.worker.protocol import WorkerConfig

NOT_REPRODUCED = "did not disagree again in clean processes"
UNDECIDED = "disagrees by no more than kernel and reference may, by its exact value"
"""Why a disagreement is no finding."""


@dataclass(frozen=True)
class Disagreement:
    """A finding in a case: the case's index in the run, and seconds since the process started."""

    index: int
    seconds: float
    case: Case
    finding: Finding


@dataclass
class FindingHandler:
    """Turns the disagreements of a run into bugs, one for each cause, and has each saved and graded.

    `process_start` is by time.monotonic. What the `deadline` ends is said by its bug, or is among `cut_off`; and among
    `usual_cut_off` where the inputs are not extreme. The fields after it are explained at BugSaver and
    BugPostprocessor.
    """

    options: RunOptions
    target: Target
    worker_config: WorkerConfig
    folder: Path
    versions: dict[str, str]
    triage: Triage
    watcher: Watcher
    process_start: float
    keep_smaller_duplicate: bool = True
    file_lock: Callable[[Path], AbstractContextManager[None]] = corpus.lock
    with_cross_checks: bool = True
    deadline: Deadline = field(default_factory=Deadline)
    bugs: list[Bug] = field(default_factory=list)
    with_grades: bool = True
    unconfirmed: int = 0
    cut_off: list[Finding] = field(default_factory=list)
    usual_cut_off: list[Finding] = field(default_factory=list)
    attribution: Attribution = field(init=False)
    budgets: TriageBudgets = field(init=False)
    saver: BugSaver = field(init=False)
    postprocessor: BugPostprocessor = field(init=False)
    shrinker: BugShrinker = field(init=False)
    _doubted: set[int] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        self.attribution = Attribution(self.target, self.triage, self.bugs)
        self.budgets = TriageBudgets(self.options.time_limit, self.deadline)
        self.saver = BugSaver(
            self.options, self.target, self.folder, self.worker_config.backend, self.versions, self.attribution,
            self.watcher, self.keep_smaller_duplicate, self.file_lock,
        )  # fmt: skip
        self.postprocessor = BugPostprocessor(
            self.triage, self.saver, self.budgets, self.worker_config, self.with_cross_checks, self.with_grades
        )
        self.shrinker = BugShrinker(self.triage, self.saver, self.postprocessor, self.budgets, self.handle)

    @property
    def hit_bugs(self) -> list[Bug]:
        """The bugs that this run has hit, those that were known before among them."""
        return [bug for bug in self.bugs if bug.hits]

    @property
    def is_enough(self) -> bool:
        """Whether this run has hit as many bugs that count as it is to find."""
        most, threshold = self.options.max_findings, self.options.threshold
        return most is not None and sum(bug.counts(threshold) for bug in self.hit_bugs) >= most

    @property
    def unexplained_cut_off(self) -> list[Finding]:
        """What usual inputs have shown that was not confirmed, and that no known bug may explain."""
        shown = frozenset[Subject]().union(*(bug.subjects for bug in self.bugs))
        return [finding for finding in self.usual_cut_off if not finding.subjects & shown]

    def handle(
        self, index: int, case: Case, findings: Sequence[Finding], history: Sequence[Case], put: float | None = None
    ) -> tuple[Finding, ...]:
        """Handles the findings of case number `index`, in the order of filing; `history` are cases that ran before it,
        and `put` is when it disagreed, by time.monotonic, by default now.

        The case is a hit of each known bug that explains some of them; the first that none explains is a new bug.
        Returns what is to be handled once more then, as it may have another cause, or that of a bug of which more will
        be known once it is shrunk.
        """
        if self.is_enough:
            return ()
        start = time.monotonic()
        seconds = (start if put is None else put) - self.process_start
        first, waits = findings[0], self.attribution.is_near_postponed
        asked = () if self.deadline.has_passed else findings
        later = tuple(finding for finding in asked if waits(case, finding, is_first=finding is first))
        findings = [finding for finding in findings if finding not in later]
        try:
            for number, finding in enumerate(findings):
                seen = Disagreement(index, seconds, without_later_calls(case, finding), finding)
                try:
                    left = self._unexplained(seen)
                    if left is not None:
                        self.deadline.check()
                        left = self._up_to_fault(left)
                    if left is not None:
                        new = self._take_up(left, history, is_filed_first=left.finding is first)
                        return (*(find_rest(new, left.finding, findings[number + 1 :]) if new else ()), *later)
                except OutOfTime:
                    usual = is_usual(seen.case, self.target)
                    if usual:
                        self._may_show(seen)
                    # What else there may be to a case that is reported already would read as another one.
                    if not self._showed_new_bug(seen):
                        # What is wrong with the reference alone must not stand for what else there is to the case.
                        rest = (one for one in findings[number:] if one.symptom != REFERENCE)
                        self.cut_off.append(next(rest, finding))
                        self.usual_cut_off += self.cut_off[-1:] if usual else []
                        self.watcher.on_cut_off(case, self.cut_off[-1], index)
                    break
            return later
        finally:
            self.budgets.spent += time.monotonic() - start

    def _may_show(self, seen: Disagreement) -> None:
        """Notes a usual case of which nobody will know whose bug it shows for all that it may show."""
        for bug in self.bugs:
            bug.shown_by_usual |= bug.finding.shares_output(seen.finding)

    def finish(self, usual_cases: int) -> None:
        """Ends the run: grades for now what it had no time to grade and none of so many usual cases showed, and says
        whose entries are gone.
        """
        for bug in self.hit_bugs:
            self.postprocessor.grade_by_run(bug, usual_cases)
        for bug in self.saver.removed:
            self.watcher.on_removed(bug)

    def _unexplained(self, seen: Disagreement) -> Disagreement | None:
        """What of a finding no known bug explains; the case is a hit of the first one that explains some of it."""
        bug, left = self.attribution.attribute(seen.case, seen.finding, doubts=not self._showed_new_bug(seen))
        if bug is not None:
            self.record_hit(bug, seen)
        return None if left is None else replace(seen, finding=left)

    def _showed_new_bug(self, seen: Disagreement) -> bool:
        """Whether the case was handled before, and was the first to show a bug."""
        return any(bug.origin.index == seen.index for bug in self.bugs if not bug.known)

    def _up_to_fault(self, seen: Disagreement) -> Disagreement | None:
        """What no bug explains of a fault in the case up to the call that shows it: no later call was made."""
        if seen.finding.oracle == FAULT.name:
            for count in range(1, len(seen.case.calls)):
                shorter = replace(seen.case, calls=seen.case.calls[:count], split=None)
                if self.triage.reproduce(shorter, seen.finding, clean=True):
                    return self._unexplained(replace(seen, case=shorter))
        return seen

    def _take_up(self, seen: Disagreement, history: Sequence[Case], is_filed_first: bool) -> Bug | None:
        """Shows what no bug explains and confirms it, or what is filed before it where every oracle examines it.

        Returns the bug where it is a new one.
        """
        self.watcher.on_disagreement(seen.case, seen.finding, seen.index)
        primary = seen.finding
        if is_filed_first and not self._showed_new_bug(seen):
            primary = self.triage.find_primary(seen.case, seen.finding)
        left = seen if primary is seen.finding else self._unexplained(replace(seen, finding=primary))
        return None if left is None else self._confirm(left, history)

    def _confirm(self, seen: Disagreement, history: Sequence[Case]) -> Bug | None:
        finding = seen.finding.of_filed_class
        bug = self.triage.confirm(self.attribution.without_known(seen.case, finding), finding, history)
        if bug is not None:
            return bug if self.add_bug(bug, seen) else None
        self._drop(seen, NOT_REPRODUCED)
        if finding.oracle == FAULT.name:
            # Something else ended the worker, before it could say what else there is to the case.
            other = self.triage.examine(seen.case, finding.oracle, clean=True, everything=True).primary_finding
            if other and other.oracle != FAULT.name and (left := self._unexplained(replace(seen, finding=other))):
                return self._confirm(left, history)
        return None

    def _drop(self, seen: Disagreement, reason: str) -> None:
        self.unconfirmed += 1
        self.watcher.on_unconfirmed(seen.finding, seen.index, reason)

    def record_hit(self, bug: Bug, seen: Disagreement) -> None:
        """Counts a hit, once for each case."""
        if not bug.hits:
            bug.origin = replace(bug.origin, index=seen.index, seconds=seen.seconds)
        if bug.last_hit != seen.index:
            bug.hits, bug.last_hit = bug.hits + 1, seen.index
        bug.shown_by_usual = bug.shown_by_usual or is_usual(seen.case, self.target)
        if self._doubts_grade(bug, seen.case) and self.postprocessor.plan(bug):
            self.postprocessor.start(bug)

    def _doubts_grade(self, bug: Bug, *cases: Case) -> bool:
        """Whether a bug of an earlier run is to be graded again, once, since a case shows it that is more ordinary than
        its grade says: the kernel may have changed.
        """
        if not bug.known or bug.accepted or bug.grade is None or id(bug) in self._doubted or self.deadline.has_passed:
            return False
        classes = (INPUT_CLASSES.index(classify_drawn(case, self.target)) for case in cases)
        bug.grade_in_doubt = min(classes) < INPUT_CLASSES.index(bug.grade.input_class)
        if bug.grade_in_doubt:
            self._doubted.add(id(bug))
        return bug.grade_in_doubt

    def add_bug(self, bug: Bug, seen: Disagreement) -> bool:
        """Shrinks and explains a confirmed bug, then merges it with an earlier one or saves it.

        Returns whether it is a new one. One whose shrinking is postponed goes on later.
        """
        bug.origin, bug.last_hit = replace(bug.origin, index=seen.index, seconds=seen.seconds), seen.index
        bug.shown_by_usual = is_usual(seen.case, self.target)
        bug.first_case = self.options.seed, seen.index
        near = self.attribution.bugs_near(bug.sought)
        bug.others = tuple(other.needs for other in near if other.needs and not other.known)
        self.shrinker.shrink(bug)
        bug.keep_shown_subjects()
        same = self.saver.find_same_cause(bug, self.shrinker.others_to_compare(bug))
        if same is None or self.saver.replaces(bug, same):
            with suppress(OutOfTime):
                self.shrinker.explain(bug)
            if bug.is_undecided:
                self._drop(seen, UNDECIDED)
                return False
        with self.saver.locked(bug):
            saved = self.saver.add(bug, same)
            in_doubt = same is not None and self._doubts_grade(same, bug.origin.case, bug.case)
            starts = saved is not None and self.postprocessor.plan(saved)
            if saved is not None:
                self.saver.save(saved)
        if saved is bug and bug.is_postponed:
            self.shrinker.defer(bug)
        elif saved is not None and not saved.is_postponed:
            self.shrinker.report(saved)
        elif same is not None:
            self.watcher.on_merged(same, seen.index)
            if in_doubt or not same.grade:
                saved, starts = same, self.postprocessor.plan(same)
        if saved is not None and starts:
            self.postprocessor.start(saved)
        return saved is bug


def find_rest(bug: Bug, finding: Finding, later: Sequence[Finding]) -> tuple[Finding, ...]:
    """What may have another cause than a new bug, of the finding that led to it and of those that are filed later.

    Shrinking may have gone to one of several causes: that is what the least case does not show any more, or else all
    of the finding, as the unshrunk case may show it without what the bug needs. Of a call that ended in a fault no
    more is known.
    """
    if bug.sought.oracle == FAULT.name:
        return ()
    return (finding.restricted_to(finding.subjects - bug.subjects) or finding, *later)


def without_later_calls(case: Case, finding: Finding) -> Case:
    """The case up to the call that shows a finding, where its oracle examines one call after the other."""
    is_last = finding.call + 1 >= len(case.calls)
    if is_last or finding.oracle == FAULT.name or find_oracle_spec(finding.oracle).share:
        return case
    return replace(case, calls=case.calls[: finding.call + 1], split=None)
