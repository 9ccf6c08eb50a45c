"""Turns disagreements into saved bugs: counts hits of known ones, confirms, shrinks, merges and saves new ones."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from fuzz import corpus
from fuzz.errors import CorpusError, one_line
from fuzz.model.case import Case
from fuzz.model.entry import Entry
from fuzz.model.finding import Finding
from fuzz.model.oracle_specs import FAULT, find_oracle_spec
from fuzz.run.deduplicate import Attribution, known_bugs
from fuzz.run.options import RunOptions
from fuzz.run.shrink_entry import improves, replace_entry, shrink_entry
from fuzz.run.watcher import Watcher
from fuzz.shrink.shrinker import Budget
from fuzz.target.loader import check_fits
from fuzz.target.spec import Target
from fuzz.triage.bug import Bug
from fuzz.triage.cross_check import cross_check, only_on_cpu
from fuzz.triage.severity import grade_bug
from fuzz.triage.triage import SHRINKING, Triage
from fuzz.worker.deadline import Deadline, OutOfTime
from fuzz.worker.protocol import WorkerConfig

NOT_REPRODUCED = "did not disagree again in clean processes"
UNDECIDED = "disagrees by no more than kernel and reference may, by its exact value"
"""Why a disagreement is no finding."""
SHRINK_SHARE = 0.5
"""Shrinking and adjudication may take this share of the run's time before each bug is limited by itself."""
GRADING_SHARE = 0.25
"""The share of the run's time that grading one bug may take."""
LONGEST_SHRINKING = 600.0
"""Seconds of shrinking one bug in a run without a limit of time: only calls that hang or are very slow take so long."""
VERIFY_SECONDS = 2.0
"""Seconds before the deadline at which shrinking ends, so that a clean process can show the shrunk case again."""
VERIFY_SHARE = 0.1
"""The share of a short run's time that this is, at most."""


@dataclass(frozen=True)
class Disagreement:
    """A finding in a case: the case's index in the run, and seconds since the process started."""

    index: int
    seconds: float
    case: Case
    finding: Finding


@dataclass
class FindingHandler:
    """Turns the disagreements of a run into bugs, one for each cause, and saves each in the corpus.

    `process_start` is by time.monotonic. What the `deadline` ends is said by its bug, or counted by `cut_off`. With
    `keep_smaller_duplicate`, a smaller case of a cause that the corpus holds already is saved as another entry. While a
    bug is saved, `file_lock` keeps others out of the target's folder. `seconds` counts the time that all of this took.
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
    cut_off: int = 0
    seconds: float = 0.0
    attribution: Attribution = field(init=False)

    def __post_init__(self) -> None:
        self.attribution = Attribution(self.target, self.triage, self.bugs)

    @property
    def hit_bugs(self) -> list[Bug]:
        """The bugs that this run has hit, those that were known before among them."""
        return [bug for bug in self.bugs if bug.hits]

    def handle(self, index: int, case: Case, findings: Sequence[Finding], history: Sequence[Case]) -> None:
        """Handles the findings of case number `index`, in the order of filing; `history` are cases that ran before it.

        The case is a hit of each known bug that explains some of them; the first that none explains is a new bug.
        """
        start = time.monotonic()
        for finding in findings:
            seen = Disagreement(index, start - self.process_start, without_later_calls(case, finding), finding)
            try:
                left = self._unexplained(seen)
                if left is not None:
                    self.deadline.check()
                    left = self._up_to_fault(left)
                if left is not None:
                    self._take_up(left, history, is_filed_first=left.finding is findings[0])
                    break
            except OutOfTime:
                self.cut_off += 1
                self.watcher.on_cut_off(case, finding, index)
                break
        self.seconds += time.monotonic() - start

    def resume(self) -> None:
        """Goes on with what earlier runs saved and had no time to shrink or explain."""
        for bug in [bug for bug in self.bugs if bug.cut_off and not bug.accepted]:
            start = time.monotonic()
            with suppress(OutOfTime, CorpusError):
                entry = corpus.read(Path(bug.path))
                check_fits(entry.case, self.target, Path(bug.path))
                again = shrink_entry(entry, self.triage, self._shrink_budget(), graded=self._grades)
                if again is not None and (same := self._known_with_cause_of(again, bug)):
                    self._join_known(bug, again, same)
                elif again is not None and improves(again, entry, self.target):
                    self._replace_known(bug, entry, again)
            self.seconds += time.monotonic() - start

    def _replace_known(self, bug: Bug, entry: Entry, again: Bug) -> None:
        """Replaces the entry of a known bug, unless somebody else did so meanwhile."""
        before = Path(bug.path)
        with self.file_lock(self.folder / self.target.name):
            if not before.exists():
                return
            bug.path = str(replace_entry(before, entry, again))
        bug.least, bug.triggers, bug.cut_off, bug.grade = again.least, None, again.cut_off, again.grade
        self.watcher.on_saved(bug, str(before) if bug.path != str(before) else "")
        self.watcher.on_shrunk(bug)

    def _known_with_cause_of(self, again: Bug, resumed: Bug) -> Bug | None:
        """The finished bug with the cause of one that is shrunk now: two runs at once may each have saved it."""
        if again.cut_off or resumed.cut_off != SHRINKING:
            return None
        finished = [bug for bug in self.bugs if bug is not resumed and not bug.cut_off]
        return self.attribution.find_same_cause(again, finished)

    def _join_known(self, bug: Bug, again: Bug, same: Bug) -> None:
        """Removes the entry of a known bug that has, now that it is shrunk, the cause of another one.

        The better of the two cases is kept, with the other one's status.
        """
        before, kept = Path(bug.path), Path(same.path)
        with self.file_lock(self.folder / self.target.name):
            if not before.exists() or not kept.exists():
                return
            if self.attribution.is_better(again, same):
                same.path = str(replace_entry(kept, corpus.read(kept), again))
                same.least, same.triggers = again.least, None
            if Path(same.path) != before:
                before.unlink()
        self.bugs.remove(bug)
        for removed in sorted({before, kept} - {Path(same.path)}):
            self.watcher.on_saved(same, str(removed))

    def _unexplained(self, seen: Disagreement) -> Disagreement | None:
        """What of a finding no known bug explains; the case is a hit of the first one that explains some of it."""
        bug, left = self.attribution.attribute(seen.case, seen.finding)
        if bug is not None:
            self.record_hit(bug, seen)
        return None if left is None else replace(seen, finding=left)

    def _up_to_fault(self, seen: Disagreement) -> Disagreement | None:
        """What no bug explains of a fault in the case up to the call that shows it: no later call was made."""
        if seen.finding.oracle == FAULT.name:
            for count in range(1, len(seen.case.calls)):
                shorter = replace(seen.case, calls=seen.case.calls[:count], split=None)
                if self.triage.reproduce(shorter, seen.finding, clean=True):
                    return self._unexplained(replace(seen, case=shorter))
        return seen

    def _take_up(self, seen: Disagreement, history: Sequence[Case], is_filed_first: bool) -> None:
        """Shows what no bug explains and confirms it, or what is filed before it where every oracle examines it."""
        self.watcher.on_disagreement(seen.case, seen.finding, seen.index)
        primary = self.triage.find_primary(seen.case, seen.finding) if is_filed_first else seen.finding
        left = seen if primary is seen.finding else self._unexplained(replace(seen, finding=primary))
        if left is not None:
            self._confirm(left, history)

    def _confirm(self, seen: Disagreement, history: Sequence[Case]) -> None:
        finding = seen.finding.of_filed_class
        bug = self.triage.confirm(self.attribution.without_known(seen.case, finding), finding, history)
        if bug is not None:
            self.add_bug(bug, seen)
            return
        self._drop(seen, NOT_REPRODUCED)
        if finding.oracle == FAULT.name:
            # Something else ended the worker, before it could say what else there is to the case.
            other = self.triage.examine(seen.case, finding.oracle, clean=True, everything=True).primary_finding
            if other and other.oracle != FAULT.name and (left := self._unexplained(replace(seen, finding=other))):
                self._confirm(left, history)

    def _drop(self, seen: Disagreement, reason: str) -> None:
        self.unconfirmed += 1
        self.watcher.on_unconfirmed(seen.finding, seen.index, reason)

    def record_hit(self, bug: Bug, seen: Disagreement) -> None:
        """Counts a hit, once for each case."""
        if not bug.hits:
            bug.origin = replace(bug.origin, index=seen.index, seconds=seen.seconds)
        if bug.last_hit != seen.index:
            bug.hits, bug.last_hit = bug.hits + 1, seen.index

    def add_bug(self, bug: Bug, seen: Disagreement) -> None:
        """Shrinks and explains a confirmed bug, then merges it with an earlier one or saves it."""
        bug.origin, bug.last_hit = replace(bug.origin, index=seen.index, seconds=seen.seconds), seen.index
        bug.first_case = self.options.seed, seen.index
        near = self.attribution.bugs_near(bug.sought)
        bug.others = tuple(other.triggers for other in near if other.triggers and not other.known)
        with suppress(OutOfTime):
            self.triage.shrink(bug, self._shrink_budget())
        bug.keep_shown_subjects()
        same = self._find_same_cause(bug, self.bugs)
        is_kept = same is None or self._replaces(bug, same)
        if is_kept:
            with suppress(OutOfTime):
                self.triage.explain(bug)
            if bug.is_undecided:
                self._drop(seen, UNDECIDED)
                return
        if same is None or not same.grade:
            self._grade(bug)
        if is_kept:
            self._cross_check(bug)
        with self.file_lock(self.folder / self.target.name):
            self._merge_or_save(bug, same)

    def _replaces(self, bug: Bug, same: Bug) -> bool:
        """Whether the entry of a bug with the same cause is to be replaced, or joined by another one."""
        return self.attribution.is_better(bug, same) and (self.keep_smaller_duplicate or not same.known)

    @property
    def _grades(self) -> bool:
        """Whether bugs are graded: planted ones count whatever their severity is."""
        return self.with_grades and not self.options.planted

    def _grade(self, bug: Bug) -> None:
        """Grades a bug as far as time allows."""
        if self._grades:
            with suppress(OutOfTime):
                grade_bug(bug, self.triage, self._grading_budget())

    def _merge_or_save(self, bug: Bug, same: Bug | None) -> None:
        meanwhile = self._saved_meanwhile()
        self.bugs.extend(meanwhile)
        duplicate = self._find_same_cause(bug, meanwhile)
        if duplicate is not None:
            self.attribution.merge(duplicate, bug, replaces=False)
            return
        if same is None:
            self._mention_others(bug)
            self.bugs.append(bug)
        else:
            needed, graded, replaces = same.triggers, same.grade, self._replaces(bug, same)
            self.attribution.merge(same, bug, replaces)
            if same.triggers != needed:
                replaces |= self._absorb_others(same)
            if not replaces and (same.known or same.grade is graded):
                return
        self._save(same or bug)
        self.watcher.on_shrunk(same or bug)

    def _absorb_others(self, bug: Bug) -> bool:
        """Merges bugs of this run that were added as other causes before what one needs was known.

        Returns whether the entry of the bug is to be saved again.
        """
        others = [other for other in self.bugs if other is not bug and not other.known]
        absorbed = [other for other in others if self._find_same_cause(other, [bug])]
        for other in absorbed:
            self.attribution.merge(bug, other, self._replaces(other, bug))
            self.bugs.remove(other)
            Path(other.path).unlink(missing_ok=True)
        return bool(absorbed) and not (bug.known and bug.path)

    def _find_same_cause(self, bug: Bug, among: list[Bug]) -> Bug | None:
        """The bug among some that has the cause of another. Where time ends before that is known, both are kept, unless
        one case showed both, as it does where two runs have one seed.
        """
        try:
            return self.attribution.find_same_cause(bug, among)
        except OutOfTime:
            return next((other for other in among if other.known and bug.has_first_case_of(other)), None)

    def _saved_meanwhile(self) -> list[Bug]:
        """The bugs that other runs saved since this one read the folder."""
        return known_bugs(self.folder, self.target, self.options.planted, {known.path for known in self.bugs})

    def _mention_others(self, bug: Bug) -> None:
        """Says of which known bugs it is not clear that they are others."""
        unclear = [other for other in self.bugs if bug.may_share_cause(other)]
        said = tuple(f"possibly the same cause as {Path(other.path).name}" for other in unclear)
        bug.least = replace(bug.least, diagnosis=(*bug.least.diagnosis, *said))

    def _cross_check(self, bug: Bug) -> None:
        """Runs the bug's least case on the other backends, and the unshrunk one where that says that they differ."""
        if self.with_cross_checks and bug.least.verdict.name != "reference":
            try:
                least = self._ask_other_backends(bug, bug.case)
                is_doubtful = only_on_cpu(least, {}) and bug.origin.case.key != bug.case.key
                unshrunk = self._ask_other_backends(bug, bug.origin.case) if is_doubtful else {}
            except OutOfTime:
                bug.cut_off = bug.cut_off or "cross-check"
                return
            bug.least = replace(bug.least, cross_checks=least, only_on_cpu=only_on_cpu(least, unshrunk))

    def _ask_other_backends(self, bug: Bug, case: Case) -> dict[str, str]:
        """Whether other backends agree that a case shows a bug."""
        limits = self.options.worker_memory, self.target.timeout
        return cross_check(case, bug.finding, self.worker_config, *limits, self.deadline)

    def _save(self, bug: Bug) -> None:
        """Writes the bug's entry, in the place of the one of a larger case."""
        options, previous = self.options, bug.path
        entry = bug.to_entry(
            planted=options.planted or "", backend=self.worker_config.backend, versions=self.versions,
            seed=options.seed, first_case=bug.origin.index,
        )  # fmt: skip
        try:
            bug.path = str(corpus.save_entry(self.folder, entry, Path(previous) if previous else None))
        except CorpusError as error:
            raise CorpusError(f"{error}; {save_elsewhere(entry)}") from None
        self.watcher.on_saved(bug, previous if previous != bug.path else "")

    def _shrink_budget(self) -> Budget:
        """What shrinking one more bug may take: what is left of half the run's time, 10 s at least, but no more than
        leaves as much time to verify the shrunk case and to grade it before the deadline.

        Without a limit of time shrinking ends by itself, so that it does not depend on the machine's speed.
        """
        if self.options.time_limit is None:
            return Budget(seconds=LONGEST_SHRINKING)
        share = SHRINK_SHARE * self.options.time_limit
        seconds = max(share - self.seconds, min(share, 10.0))
        verifying = min(VERIFY_SECONDS, VERIFY_SHARE * self.options.time_limit)
        return Budget(seconds=min(seconds, SHRINK_SHARE * (self.deadline.seconds_left - verifying)))

    def _grading_budget(self) -> Budget:
        """What grading one bug may take."""
        limit = self.options.time_limit
        return Budget(seconds=LONGEST_SHRINKING if limit is None else GRADING_SHARE * limit)


def save_elsewhere(entry: Entry) -> str:
    """Saves an entry in a new temporary folder, and says where; its corpus cannot take it any more."""
    try:
        return f"the finding is kept in {corpus.save_entry(Path(tempfile.mkdtemp(prefix='fuzz-findings-')), entry)}"
    except (CorpusError, OSError) as error:
        return f"nor can the finding be kept elsewhere: {one_line(error)}"


def without_later_calls(case: Case, finding: Finding) -> Case:
    """The case up to the call that shows a finding, where its oracle examines one call after the other."""
    is_last = finding.call + 1 >= len(case.calls)
    if is_last or finding.oracle == FAULT.name or find_oracle_spec(finding.oracle).share:
        return case
    return replace(case, calls=case.calls[: finding.call + 1], split=None)
