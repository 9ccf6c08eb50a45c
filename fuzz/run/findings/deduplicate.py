"""Keeps one bug for each cause: attributes findings to known bugs, and merges bugs.

A finding is attributed to a known bug by evidence: at one place of the kernel both are of one class, or the case agrees
once each trigger of the bug is made false by one edit. Where no trigger of the bug is known, further findings of the
same oracle, outputs and class of symptom are attributed to it, but some of them are shrunk again to see where they end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import reduce

from fuzz.model.case import Case, sort_key
from fuzz.model.finding import Finding, Pattern, Subject, filing_order
from fuzz.model.oracle_specs import ACCURACY, DETERMINISTIC, find_oracle_spec
from fuzz.target.spec import Target
from fuzz.triage.bug import NONFINITE, Bug
from fuzz.triage.error_patterns import PatternCounts
from fuzz.triage.error_size import JUMP, LargerError
from fuzz.triage.input_classes import is_usual
from fuzz.triage.intermediate_cases import intermediate_cases
from fuzz.triage.overflow import find_overflow, nonfinite_outputs
from fuzz.triage.triage import Triage
from fuzz.triage.tries import key_of
from fuzz.triage.triggers import EARLIER_CALLS, Trigger, all_hold, departures
from fuzz.worker.deadline import OutOfTime

ALWAYS_CHECKED, THEN_ONE_IN = 16, 16
"""Of the findings with one bug's subjects, so many are checked with its triggers made false, then one in so many.

Where each check takes a new process, the first, second, third, fifth, ninth and so on are.
"""
SHRUNK_AGAIN = tuple(8**power for power in range(6))
"""Which findings with the subjects of a bug without known triggers are shrunk, by their number."""
Subjects = frozenset[Subject]


@dataclass
class Attribution:
    """Attributes findings to the known bugs of one target, by running edits of their cases where that is needed."""

    target: Target
    triage: Triage
    bugs: list[Bug]
    counts: Counter[object] = field(default_factory=Counter)
    errors: dict[int, float] = field(default_factory=dict)
    patterns: PatternCounts = field(default_factory=PatternCounts)
    shared: dict[tuple[int, int], list[Trigger]] = field(default_factory=dict)
    """Of two bugs that only values need, the edits of these that rid both; by their ids."""
    ruled_out: set[tuple[object, ...]] = field(default_factory=set)
    """What a postponed bug needs, a case, and subjects of it that show without some of that."""

    def attribute(self, case: Case, finding: Finding, *, doubts: bool = True) -> tuple[Bug | None, Finding | None]:
        """(a bug that explains part of a finding, the part that no bug explains) in a case; None for what is not.

        Of what bugs explain without evidence a finding is left where it is its turn to be shrunk again, with `doubts`.
        """
        causes: list[tuple[Bug, Finding | None]] = []
        left: Finding | None = finding
        for bug in sorted(self.bugs, key=lambda bug: (bug.sought.other_than is None, -bug.sought.least_error)):
            if left is not None and (explained := self._explained(bug, case, left)):
                causes.append((bug, left if explained >= left.subjects else left.restricted_to(explained)))
                left = left.restricted_to(left.subjects - explained)
        overflowing: Bug | None = None
        if left is not None:
            overflowing, left = self._attribute_overflow(case, left)
        if left is None and doubts:
            # Whose turn it is to be shrunk again counts where it is shrunk, and nothing else of the case is.
            # A finding has one error: where a bug that needs something is among its causes, that is not the others'.
            own_error = not any(bug.triggers for bug, _ in causes)
            turns = (self._doubt(bug, case, part, own_error) for bug, part in causes if part is not None)
            left = next(filter(None, turns), None)
        return causes[0][0] if causes else overflowing, left

    def _attribute_overflow(self, case: Case, finding: Finding) -> tuple[Bug | None, Finding | None]:
        """(a bug whose wrong values a case's dtypes cannot hold, the part of a finding that is no such overflow)."""
        cause: Bug | None = None
        left: Finding | None = finding
        bugs = [bug for bug in self.bugs if bug.wrong_outputs & nonfinite_outputs(finding)]
        while left is not None and bugs and (overflow := find_overflow(case, left, self.target, self.triage)):
            explained = ((bug, self._explained(bug, *overflow)) for bug in bugs)
            bug, subjects = next((one for one in explained if one[1]), (None, frozenset[Subject]()))
            if bug is None:
                break
            cause, outputs = cause or bug, {subject[-1] for subject in subjects}
            left = left.restricted_to({one for one in left.subjects if one[1] != NONFINITE or one[-1] not in outputs})
        return cause, left

    def _explained(self, bug: Bug, case: Case, finding: Finding) -> Subjects:
        """Those of a finding's subjects that a bug explains."""
        if bug.finding.shares_place(finding) or self._compares_with_wrong_run(bug, case, finding):
            return finding.subjects
        if bug.finding.is_other_fault(finding) or not finding.meets(bug.sought):
            return frozenset()
        finding = replace(finding, least_error=bug.sought.least_error, other_than=bug.sought.other_than)
        # What earlier calls leave behind shows in any output, as any symptom and to any oracle.
        part = finding if bug.stateful else finding.restricted_to(bug.subjects)
        if bug.is_postponed and part is not None and not self._may_explain(bug, case, finding):
            return frozenset()
        if bug.is_postponed or bug.is_unshrunk and self.triage.worker.deadline.has_passed:
            return part.subjects if part else frozenset()
        if part is None and filing_order(bug.finding)[0] < filing_order(finding)[0] and self.triage.find_triggers(bug):
            part = finding
        if part is None or not self.triage.find_triggers(bug):
            return part.subjects if part else frozenset()
        is_checked = self._is_to_check(bug, part)
        return self.vanishing(bug, case, part, self.triage.find_triggers(bug)) if is_checked else part.subjects

    def _may_explain(self, bug: Bug, case: Case, finding: Finding) -> bool:
        """Whether a postponed bug may explain what a case shows; after the deadline nobody will know more."""
        if self.triage.worker.deadline.has_passed:
            return True
        return bug.is_known_of(usual=is_usual(case, self.target)) and not self.is_ruled_out(bug, case, finding)

    def rules_out(self, bug: Bug, case: Case, finding: Finding) -> bool:
        """Whether a postponed bug is not the cause of a finding that shares subjects with it: the case lacks one of the
        departures from defaults that the bug needs, or shows all of the finding without it. Runs what tells that.
        """
        self.triage.find_departures(bug)
        if bug.needs and not self.is_ruled_out(bug, case, finding):
            finding = replace(finding, least_error=bug.sought.least_error, other_than=bug.sought.other_than)
            shown = (self.triage.shown_subjects(one.edit(case), finding, bug.rate) for one in bug.needs)
            if any(one is not None and one >= finding.subjects for one in shown):
                self.ruled_out.add((bug.needs, key_of(case), finding.subjects))
        return self.is_ruled_out(bug, case, finding)

    def is_ruled_out(self, bug: Bug, case: Case, finding: Finding) -> bool:
        """Whether that is known already, of a case of one call."""
        if not (bug.is_postponed and bug.needs and bug.subjects & finding.subjects) or len(case.calls) > 1:
            return False
        lacks = not all(one.changes(case) for one in bug.needs)
        return lacks or (bug.needs, key_of(case), finding.subjects) in self.ruled_out

    def _is_to_check(self, bug: Bug, part: Finding) -> bool:
        """Whether it is a finding's turn to be checked with a bug's triggers made false, by its number."""
        like = id(bug), part.oracle if bug.stateful else part.subjects
        count = self.counts[like]
        self.counts[like] += 1
        if bug.needs_clean_workers:
            return count.bit_count() <= 1
        return count < ALWAYS_CHECKED or count % THEN_ONE_IN == 0

    def _doubt(self, bug: Bug, case: Case, finding: Finding, own_error: bool) -> Finding | None:
        """What is to be shrunk of a finding although it looks like one of a bug without known triggers.

        `own_error` is whether bugs like it alone make the finding's error.
        """
        is_costly = finding.symptom in ("hung", "out-of-memory")
        if is_costly or bug.triggers or bug.stateful or bug.finding.shares_place(finding):
            return None
        self.counts[id(bug)] += 1
        if own_error and bug.rate.certain and (least := self._find_jump(bug, case, finding)):
            return replace(finding, least_error=least)
        if bug.rate.certain and (pattern := self._find_other_pattern(bug, finding)):
            self.counts[id(bug), pattern] += 1
            if self.counts[id(bug), pattern] in SHRUNK_AGAIN:
                return replace(finding, other_than=pattern)
        again = self.counts[id(bug)] - bug.known in SHRUNK_AGAIN
        return finding if again or self._needs_departure(bug, case, finding) else None

    def _find_other_pattern(self, bug: Bug, finding: Finding) -> Pattern | None:
        """A pattern that a finding lacks, and that most findings of the run, or of the bug, showed before it."""
        of_bug = self.patterns.find_other(id(bug), finding)
        return finding.unlike if finding.unlike and finding.unlike[0] in finding.outputs else of_bug

    def _find_jump(self, bug: Bug, case: Case, finding: Finding) -> float:
        """An error between that of a case and that with one edit, which is far smaller; 0 where there is no such edit.

        Looked for where the error is far larger than any before.
        """
        before = self.errors.get(id(bug), min(bug.sought.error, bug.finding.error))
        if finding.error <= JUMP * before:
            return 0.0
        self.errors[id(bug)] = finding.error
        return LargerError(self.target, self.triage, finding).find(case) or 0.0

    def _needs_departure(self, bug: Bug, case: Case, finding: Finding) -> bool:
        """Whether a case agrees once all is at its default, as no case of a bug does that needs no departure.

        Departures are tried once for each combination of them.
        """
        triggers = list(departures(case, self.target))
        combination = id(bug), frozenset(trigger.name for trigger in triggers)
        self.counts[combination] += 1
        if not triggers or self.counts[combination] > 1:
            return False
        plain = reduce(lambda edited, trigger: trigger.edit(edited), triggers, case)
        return self.triage.shown_subjects(plain, finding, bug.rate) == frozenset()

    def vanishing(self, bug: Bug, case: Case, finding: Finding, triggers: Sequence[Trigger]) -> Subjects:
        """Those of a finding's subjects that a case no longer shows, whichever of a bug's triggers is made false."""
        # What an earlier case left behind does not stand in the case.
        if not (bug.stateful or all_hold(triggers, case)):
            return frozenset()
        vanishing = finding.subjects
        for trigger in triggers:
            shown = self.triage.shown_subjects(trigger.edit(case), finding, bug.rate, clean=bug.needs_clean_workers)
            vanishing -= vanishing if shown is None else shown
            if not vanishing:
                break
        return vanishing

    def _compares_with_wrong_run(self, bug: Bug, case: Case, finding: Finding) -> bool:
        """Whether the finding compares the case with a run that may be wrong by a known bug of accuracy.

        The other run has other layouts or other rows, so that triggers about these may hold there.
        """
        wrong = {subject[-1] for subject in bug.subjects if subject[0] == ACCURACY.name}
        reruns = find_oracle_spec(finding.oracle).compares_runs
        reruns |= bug.counts_calls and finding.oracle == DETERMINISTIC.name
        if not reruns or not wrong & set(finding.outputs):
            return False
        # The other run is also a later one.
        others = {self.target.batch_dim, EARLIER_CALLS.name}
        kept = (one for one in self.triage.find_triggers(bug) if not one.name.endswith(" layout"))
        return all(one.holds(case) for one in kept if one.name not in others)

    def without_known(self, case: Case, finding: Finding) -> Case:
        """The case with a trigger of each known bug made false that explains nothing of the finding though all hold."""
        for bug in self.bugs_near(finding):
            if all_hold(bug.needs, case):
                edits = (trigger.edit(case) for trigger in bug.needs)
                shown = ((one, self.triage.shown_subjects(one, finding, bug.rate)) for one in edits)
                case = next((one for one, subjects in shown if subjects == finding.subjects), case)
        return case

    def is_near_postponed(self, case: Case, finding: Finding, *, is_first: bool) -> bool:
        """Whether more will be known about what explains a case's finding, once a bug with its subjects is shrunk.

        What is known by now counts for the first finding of a case only: the others may be consequences of that.
        """
        postponed = [bug for bug in self.bugs if bug.is_postponed]
        usual = bool(postponed) and is_usual(case, self.target)
        near = (bug for bug in postponed if bug.is_postponed_with(finding, usual=usual))
        return any(not (is_first and self.is_ruled_out(bug, case, finding)) for bug in near)

    def bugs_near(self, finding: Finding) -> list[Bug]:
        """The known bugs into which a case with this finding may shrink: they show its subjects as well."""
        return [
            bug
            for bug in self.bugs
            if finding.subjects & bug.subjects.union(*(other.subjects for other in bug.least.also))
        ]

    def find_same_cause(self, new: Bug, among: list[Bug]) -> Bug | None:
        """The first of these bugs that is equal to a new one, or else that has its cause."""
        equal = (old for old in among if old.is_equal_to(new))
        return next(equal, None) or next((old for old in among if self.have_same_cause(old, new)), None)

    def have_same_cause(self, old: Bug, new: Bug) -> bool:
        """Whether both have one place or one least case, either one's triggers explain the other, or nothing speaks
        against it: one case showed both, and neither needs anything.

        Faults of two kinds, or raised at two places, have two causes.
        """
        if old.is_equal_to(new):
            return True
        if old.finding.is_other_fault(new.finding):
            return False
        for bug, other in ((old, new), (new, old)):
            if bug.counts_calls and self._compares_with_wrong_run(bug, other.case, other.finding):
                return True
            if self._is_overflow_of(bug, other):
                bug.overflows = True
                return True
        if not any([self.triage.find_triggers(old), self.triage.find_triggers(new)]):
            return old.was_seen_with(new) or new.was_seen_with(old)
        if new.sought.least_error and new.needs_values_only and old.subjects & new.subjects:
            # Some values make a larger error of a bug that shows always.
            return True
        return self._is_cause_of(old, new) or self._is_cause_of(new, old) or self._is_one_region(old, new)

    def _is_overflow_of(self, bug: Bug, other: Bug) -> bool:
        """Whether in both cases of a bug what is not finite is the overflow of wrong values that another one explains.

        One with triggers explains them where they vanish without each of these.
        """
        outputs = nonfinite_outputs(bug.sought)
        if bug.sought.symptom != NONFINITE or not outputs <= other.wrong_outputs:
            return False
        for case in {case.key: case for case in (bug.origin.case, bug.case)}.values():
            overflow = find_overflow(case, bug.sought, self.target, self.triage)
            part = overflow and overflow[1].restricted_to(other.subjects)
            if overflow is None or part is None or not outputs <= {subject[-1] for subject in part.subjects}:
                return False
            triggers = self.triage.find_triggers(other)
            if triggers and self.vanishing(other, overflow[0], part, triggers) != part.subjects:
                return False
        return True

    def _is_cause_of(self, bug: Bug, other: Bug) -> bool:
        """Whether a bug's triggers explain another, which must need the same values where they are of values alone.

        Plainer values rid a case of many causes; of one cause they do with the same edit, whatever else it may need.
        """
        if not self._is_explained(other, bug, bug.triggers or ()):
            return False
        if not bug.needs_values_only or bug.finding.oracle != other.finding.oracle:
            return True
        names = {trigger.name for trigger in bug.triggers or ()}
        same = [trigger for trigger in other.triggers or () if trigger.name in names]
        return len(same) == len(names) and self._is_explained(bug, other, same)

    def _is_one_region(self, old: Bug, new: Bug) -> bool:
        """Whether one edit of values rids both bugs, and all cases between their least ones show both their subjects.

        How far values must change depends on the other values: a product below a limit is above it where either factor
        is raised, the further the smaller the other one is. What else the bugs need must be the same.
        """
        subjects = old.sought.subjects & new.sought.subjects
        both = (old, new), (new, old)
        if old.needs_clean_workers or any(bug.is_beyond_another for bug in (old, new)) or not subjects:
            return False
        if len({frozenset(one.name for one in bug.triggers or () if not one.is_of_values) for bug in (old, new)}) > 1:
            return False
        names = {one.name for one in old.triggers or ()} & {one.name for one in new.triggers or ()}
        edits = [
            one
            for bug, other in both
            for one in bug.triggers or ()
            if one.is_of_values and one.name in names and self._is_explained(other, bug, [one])
        ]
        between = intermediate_cases(old.case, new.case) if edits else ()
        shown = (self.triage.shown_subjects(case, old.sought, old.rate) for case in between)
        if not between or not all(found and subjects <= found for found in shown):
            return False
        self.shared[id(old), id(new)] = list({one.name: one for one in edits}.values())
        return True

    def _is_explained(self, bug: Bug, by: Bug, triggers: Sequence[Trigger]) -> bool:
        """Whether a bug's cases, unshrunk and least, agree whichever of these triggers of another is made false."""
        cases = {case.key: case for case in (bug.origin.case, bug.case)}
        subjects = bug.sought.subjects
        return bool(triggers) and all(
            self.vanishing(by, case, bug.sought, triggers) == subjects for case in cases.values()
        )

    def merge(self, old: Bug, new: Bug, replaces: bool) -> None:
        """Merges a new bug into an old one with the same cause, whose example it `replaces`, if it is better.

        The merged bug keeps its path, the entry there is replaced, unless that entry was there before the run. What
        either does not need is no trigger.
        """
        if shared := self.shared.pop((id(old), id(new)), None):
            for bug in (old, new):
                bug.triggers = (*(one for one in bug.triggers or () if not one.is_of_values), *shared)
        with suppress(OutOfTime):
            self.triage.keep_triggers_of(old, new)
            if replaces:
                names = {trigger.name for trigger in old.triggers or ()}
                old.triggers = tuple(one for one in self.triage.find_triggers(new) if one.name in names)
        if replaces:
            before = old.sought
            old.sought = replace(new.sought, least_error=before.least_error, other_than=before.other_than)
            old.least, old.rate, old.stateful = new.least, new.rate, new.stateful
            old.path = "" if old.known else old.path
        # The case that was counted last for both is one.
        old.hits += new.hits - (new.last_hit == old.last_hit >= 0)
        old.last_hit = max(old.last_hit, new.last_hit)
        old.subjects = old.lasting_subjects | new.lasting_subjects
        old.overflows = old.overflows and new.overflows
        old.shown_by_usual |= new.shown_by_usual
        old.grade = old.grade or new.grade

    def is_better(self, new: Bug, old: Bug) -> bool:
        """Whether a new bug's example is the better one of two of one cause: filed earlier, then smaller."""
        return self._order(new) < self._order(old)

    def _order(self, bug: Bug) -> tuple[object, ...]:
        return (bug.filing_order, *sort_key(bug.case, self.target.defaults))
