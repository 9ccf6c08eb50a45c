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
from fuzz.model.oracle_specs import FAULT
from fuzz.run.deduplicate import covering_bug, known_bugs, merge_bug, same_cause
from fuzz.run.options import RunOptions
from fuzz.run.shrink_entry import improves, replace_entry, shrink_entry
from fuzz.run.watcher import Watcher
from fuzz.shrink.shrinker import Budget
from fuzz.target.loader import check_fits
from fuzz.target.spec import Target
from fuzz.triage.bug import Bug
from fuzz.triage.cross_check import cross_check, only_on_cpu
from fuzz.triage.triage import Triage
from fuzz.worker.deadline import Deadline, OutOfTime
from fuzz.worker.protocol import WorkerConfig

NOT_REPRODUCED = "did not disagree again in clean processes"
UNDECIDED = "disagrees by no more than kernel and reference may, by its exact value"
"""Why a disagreement is no finding."""
SHRINK_SHARE = 0.5
"""Shrinking and adjudication may take this share of the run's time before each bug is limited by itself."""
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
    unconfirmed: int = 0
    cut_off: int = 0
    seconds: float = 0.0

    @property
    def hit_bugs(self) -> list[Bug]:
        """The bugs that this run has hit, those that were known before among them."""
        return [bug for bug in self.bugs if bug.hits]

    def handle(self, index: int, case: Case, findings: Sequence[Finding], history: Sequence[Case]) -> None:
        """Handles the findings under which case number `index` is filed; `history` are cases that ran before it."""
        start = time.monotonic()
        unknown = (finding for finding in findings if not self._covering(finding, case))
        seen = Disagreement(index, start - self.process_start, case, next(unknown, findings[0]))
        if not self._count_known(seen):
            try:
                self.deadline.check()
                self._examine_unknown(seen, history)
            except OutOfTime:
                self.cut_off += 1
                self.watcher.on_cut_off(case, seen.finding, index)
        self.seconds += time.monotonic() - start

    def _examine_unknown(self, seen: Disagreement, history: Sequence[Case]) -> None:
        self.watcher.on_disagreement(seen.case, seen.finding, seen.index)
        primary = replace(seen, finding=self.triage.find_primary(seen.case, seen.finding))
        if primary.finding.oracle == seen.finding.oracle or not self._count_known(primary):
            self._confirm(primary, history)

    def resume(self) -> None:
        """Goes on with what earlier runs saved and had no time to shrink or explain."""
        for bug in [bug for bug in self.bugs if bug.cut_off and not bug.accepted]:
            start = time.monotonic()
            with suppress(OutOfTime, CorpusError):
                entry = corpus.read(Path(bug.path))
                check_fits(entry.case, self.target, Path(bug.path))
                again = shrink_entry(entry, self.triage, self._shrink_budget())
                if again is not None and improves(again, entry, self.target):
                    self._replace_known(bug, entry, again)
            self.seconds += time.monotonic() - start

    def _replace_known(self, bug: Bug, entry: Entry, again: Bug) -> None:
        """Replaces the entry of a known bug, unless somebody else did so meanwhile."""
        before = Path(bug.path)
        with self.file_lock(self.folder / self.target.name):
            if not before.exists():
                return
            bug.path = str(replace_entry(before, entry, again))
        bug.least, bug.needs, bug.cut_off = again.least, again.needs, again.cut_off
        self.watcher.on_saved(bug, str(before) if bug.path != str(before) else "")
        self.watcher.on_shrunk(bug)

    def _covering(self, finding: Finding, case: Case) -> Bug | None:
        return covering_bug(self.bugs, finding, case, self.target)

    def _count_known(self, seen: Disagreement) -> bool:
        """Counts a hit of the bug that covers the finding; False where there is none."""
        bug = self._covering(seen.finding, seen.case)
        if bug is not None:
            self.record_hit(bug, seen)
        return bug is not None

    def _confirm(self, seen: Disagreement, history: Sequence[Case]) -> None:
        bug = self.triage.confirm(seen.case, seen.finding, history)
        if bug is not None:
            self.add_bug(bug, seen)
            return
        self._drop(seen, NOT_REPRODUCED)
        if seen.finding.oracle == FAULT.name:
            # Something else ended the worker, before it could say what else there is to the case.
            other = self.triage.examine(seen.case, seen.finding.oracle, clean=True, everything=True).primary_finding
            if other and other.oracle != FAULT.name and not self._count_known(replace(seen, finding=other)):
                self._confirm(replace(seen, finding=other), history)

    def _drop(self, seen: Disagreement, reason: str) -> None:
        self.unconfirmed += 1
        self.watcher.on_unconfirmed(seen.finding, seen.index, reason)

    def record_hit(self, bug: Bug, seen: Disagreement) -> None:
        """Counts a hit; where it links outputs that were not seen together yet, they may allow a smaller case."""
        if not bug.hits:
            bug.origin = replace(bug.origin, index=seen.index, seconds=seen.seconds)
        bug.hits += 1
        outputs = set(seen.finding.outputs)
        linked = seen.finding.oracle == bug.finding.oracle and not bug.known
        if linked and outputs & bug.outputs and not outputs <= bug.outputs:
            bug.outputs |= outputs
            before = replace(bug)
            self._shrink(bug)
            if bug.is_undecided:
                bug.least = before.least
            elif bug.is_smaller_than(before, self.target.defaults):
                self._cross_check(bug)
            self._absorb_others(bug)
            self._save(bug)

    def _absorb_others(self, bug: Bug) -> None:
        """Merges bugs that were added as other causes before this hit showed that they are one."""
        for other in [other for other in self.bugs if other is not bug and not other.known]:
            if merge_bug([bug], other, self.target.defaults):
                self.bugs.remove(other)
                Path(other.path).unlink(missing_ok=True)

    def add_bug(self, bug: Bug, seen: Disagreement) -> None:
        """Shrinks and explains a confirmed bug, then merges it with an earlier one or saves it."""
        bug.origin = replace(bug.origin, index=seen.index, seconds=seen.seconds)
        bug.outputs = set(seen.finding.outputs)
        bug.has_nan_cause = any(other.may_hide(seen.finding) for other in self.bugs)
        self._shrink(bug)
        if bug.is_undecided:
            self._drop(seen, UNDECIDED)
            return
        defaults = self.target.defaults
        if not any(same_cause(old, bug) and not bug.is_smaller_than(old, defaults) for old in self.bugs):
            self._cross_check(bug)
        with self.file_lock(self.folder / self.target.name):
            self._merge_or_save(bug, seen.finding)

    def _shrink(self, bug: Bug) -> None:
        """Shrinks and explains a bug as far as time allows; `cut_off` of the bug says where that ended."""
        with suppress(OutOfTime):
            self.triage.shrink(bug, self._shrink_budget())

    def _merge_or_save(self, bug: Bug, original: Finding) -> None:
        duplicate = self._find_duplicate(bug)
        if duplicate is not None:
            duplicate.hits += bug.hits
            duplicate.aliases.append((original, bug.origin.case))
            return
        merged = merge_bug(self.bugs, bug, self.target.defaults)
        if merged is None:
            self.bugs.append(bug)
            merged = bug
        else:
            merged.aliases.append((original, bug.origin.case))
        if not (merged.known and merged.case.key == merged.origin.case.key):
            self._save(merged)
            self.watcher.on_shrunk(merged)

    def _find_duplicate(self, bug: Bug) -> Bug | None:
        """The same cause among entries that are not replaced: those that other runs saved meanwhile, or all."""
        paths = {known.path for known in self.bugs}
        others = known_bugs(self.folder, self.target, self.options.planted, paths)
        self.bugs += others
        kept = others if self.keep_smaller_duplicate else [other for other in self.bugs if other.known]
        return next((other for other in kept if same_cause(other, bug)), None)

    def _cross_check(self, bug: Bug) -> None:
        """Runs the bug's least case on the other backends."""
        if self.with_cross_checks and bug.least.verdict.name != "reference":
            limits = self.options.worker_memory, self.target.timeout
            try:
                answers = cross_check(bug.case, bug.finding, self.worker_config, *limits, self.deadline)
            except OutOfTime:
                bug.cut_off = bug.cut_off or "cross-check"
                return
            bug.least = replace(bug.least, cross_checks=answers, only_on_cpu=only_on_cpu(answers))

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
        leaves time to verify the shrunk case before the deadline.

        Without a limit of time shrinking ends by itself, so that it does not depend on the machine's speed.
        """
        if self.options.time_limit is None:
            return Budget(seconds=LONGEST_SHRINKING)
        share = SHRINK_SHARE * self.options.time_limit
        seconds = max(share - self.seconds, min(share, 10.0))
        verifying = min(VERIFY_SECONDS, VERIFY_SHARE * self.options.time_limit)
        return Budget(seconds=min(seconds, self.deadline.seconds_left - verifying))


def save_elsewhere(entry: Entry) -> str:
    """Saves an entry in a new temporary folder, and says where; its corpus cannot take it any more."""
    try:
        return f"the finding is kept in {corpus.save_entry(Path(tempfile.mkdtemp(prefix='fuzz-findings-')), entry)}"
    except (CorpusError, OSError) as error:
        return f"nor can the finding be kept elsewhere: {one_line(error)}"
