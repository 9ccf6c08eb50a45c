"""Chooses which disagreement is triaged next: the one least like those before it, the most ordinary inputs first.

One bug may show in every case. Where the time of a run ends before all of them are triaged, a rare second bug that came
after them would be lost. What the errors of a finding have in common may be the only thing in which it differs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from fuzz.model.case import Case
from fuzz.model.finding import Finding, Subject
from fuzz.model.grade import INPUT_CLASSES
from fuzz.run.findings.triage_queue import InOrder, Suspect
from fuzz.target.spec import Target
from fuzz.triage.bug import Bug
from fuzz.triage.input_classes import classify_drawn
from fuzz.triage.triggers import Trigger
from fuzz.worker.deadline import Deadline, OutOfTime

Sign = tuple[object, ...]
IN_ORDER = InOrder()
MOST_ASKED = 8
"""Cases that are run with usual inputs, at most, before one of them is chosen; and, for each postponed bug, those that
are run without what it needs."""


def shows_anything(case: Case, finding: Finding) -> bool:
    return True


def explains_anything(bug: Bug, case: Case, finding: Finding) -> bool:
    return True


@dataclass
class TriagePriority:
    """Counts the signs of what was triaged: oracle, class of symptom, outputs and source line of a finding.

    A case is like what was triaged as often as the rarest of its findings was. Findings of a case that lacks what each
    known bug of their subjects needs are counted apart, as another bug shows there; so are wrong values of usual inputs
    where only extreme ones are known to show each of these bugs. Of cases with findings that were
    triaged equally often, those come first whose errors lack a pattern that is usual in the run, as fewer of the
    triaged did, then those in a class of inputs in which that happened less often. Of the cases that are like none
    before them one comes first that `shows_usually`: shows its first finding with usual inputs as well, whatever its
    own are. Then come those with more ordinary inputs, then the oldest.

    What is left of a case whose first finding was triaged counts as like that one, which may be its cause. So does what
    a bug may explain that is not shrunk yet: it waits for that, unless `explains` says that what the bug needs does not
    explain it, which a few cases are run for each time before a task comes first.

    A task waits for findings that are like none before them, but not until less than `reserve` seconds are left. After
    the deadline, when the hundreds that may wait are but counted, all comes in the order in which it came. `bugs` are
    those that are known so far.
    """

    target: Target
    deadline: Deadline = field(default_factory=Deadline)
    reserve: float = 0.0
    bugs: Sequence[Bug] = ()
    shows_usually: Callable[[Case, Finding], bool] = shows_anything
    explains: Callable[[Bug, Case, Finding], bool] = explains_anything
    counts: Counter[Sign] = field(default_factory=Counter)
    _current: frozenset[Subject] = frozenset()
    """What the case shows that is triaged now."""
    _classes: dict[int, str] = field(default_factory=dict)
    _usual: dict[tuple[int, bool], bool] = field(default_factory=dict)
    """By a case's index, and whether it is what is left of it, whether it shows its first finding usually."""
    _lacking: dict[tuple[int, tuple[Trigger, ...]], bool] = field(default_factory=dict)
    """By a case's index, and what a bug needs, whether the case lacks some of that, or shows a finding without it."""
    _asked: dict[int, set[int]] = field(default_factory=dict)
    """By the id of a postponed bug the indices of cases that were run without what it needs."""

    def know(self, bugs: Sequence[Bug]) -> None:
        """Counts bugs that were known before the run as triaged once; others may be added to them.

        That usual inputs show one is what its case says, or its grade.
        """
        self.bugs = bugs
        for bug in bugs:
            input_class = classify_drawn(bug.case, self.target)
            graded = [bug.grade.input_class] if bug.grade else []
            bug.shown_by_usual |= any(shown != "extreme" for shown in (input_class, *graded))
            for finding in (bug.finding, *bug.least.also):
                self.counts.update(signs(sign_of(finding), finding, input_class))

    def has_news(self, waiting: Sequence[Suspect]) -> bool:
        """Whether a case waits whose finding is like nothing before, unless the time left is reserved for tasks."""
        findings = ((suspect, one) for suspect in waiting if not suspect.is_rest for one in suspect.findings)
        is_new = any(not (self._count(self._sign(*one), *one) or self._current & one[1].subjects) for one in findings)
        return is_new and self.deadline.seconds_left >= self.reserve

    def choose(self, waiting: Sequence[Suspect], task_waits: bool) -> Suspect | None:
        """The next one, which counts as triaged from now on; None where a task comes first."""
        self._current = frozenset()
        if self.deadline.has_passed:
            return IN_ORDER.choose(waiting, task_waits)
        if not waiting:
            return None
        chosen, is_news = self._first(waiting)
        in_time = self.deadline.seconds_left >= self.reserve
        if task_waits and in_time and not is_news and self._ask_about_postponed(waiting):
            chosen, is_news = self._first(waiting)
        if task_waits and not (is_news and in_time):
            return None
        self.counts.update(sign for finding in chosen.findings for sign in self._signs(chosen, finding))
        del self._classes[chosen.index]
        self._current = frozenset[Subject]().union(*(finding.subjects for finding in chosen.findings))
        return chosen

    def _first(self, waiting: Sequence[Suspect]) -> tuple[Suspect, bool]:
        """The one that comes first, and whether its finding is like nothing before."""
        keys = {suspect.index: self._key(suspect) for suspect in waiting}
        first, *others = sorted(waiting, key=lambda suspect: keys[suspect.index])
        tied = [first, *(one for one in others if keys[one.index][:-2] == keys[first.index][:-2])]
        is_news = not keys[first.index][0]
        if is_news and len(tied) > 1:
            first = next(filter(self._shows_usually, tied[:MOST_ASKED]), first)
        return first, is_news

    def _ask_about_postponed(self, waiting: Sequence[Suspect]) -> bool:
        """Runs cases without what a postponed bug needs, up to one that it does not explain; False where none waits."""
        for bug in [bug for bug in tuple(self.bugs) if bug.is_postponed]:
            asked = self._asked.setdefault(id(bug), set())
            near = (one for one in sorted(waiting, key=self._key) if self._is_near(one, bug))
            fresh = [suspect for suspect in near if suspect.index not in asked][: MOST_ASKED - len(asked)]
            for suspect in fresh:
                asked.add(suspect.index)
                if not self._explains(bug, suspect):
                    break
            if fresh:
                return True
        return False

    def _is_near(self, suspect: Suspect, bug: Bug) -> bool:
        """Whether a postponed bug may explain what a case is filed under, as far as is known.

        What is filed after that may be a consequence of it.
        """
        usual, shared = self._is_usual(suspect), bug.subjects & suspect.findings[0].subjects
        may_be = bool(shared) and not suspect.is_rest and bug.is_known_of(usual=usual)
        return may_be and not self._lacks(suspect, bug)

    def _explains(self, bug: Bug, suspect: Suspect) -> bool:
        """Whether a postponed bug explains what a case is filed under; remembered where it does not."""
        try:
            explains = self.explains(bug, suspect.case, suspect.findings[0])
        except OutOfTime:
            return True
        if not explains and bug.triggers:
            self._lacking[suspect.index, bug.triggers] = True
        return explains and not self._lacks(suspect, bug)

    def _key(self, suspect: Suspect) -> tuple[int, ...]:
        first, *others = min((self._often(suspect, finding) for finding in suspect.findings), default=(0, 0, 0))
        of_class = INPUT_CLASSES.index(self._class_of(suspect))
        return (max(first, suspect.is_rest), *others, of_class, suspect.index)

    def _often(self, suspect: Suspect, finding: Finding) -> tuple[int, ...]:
        """How often what has each sign of a finding was triaged."""
        first, *others = self._signs(suspect, finding)
        return (self._count(first, suspect, finding), *(self.counts[sign] for sign in others))

    def _count(self, sign: Sign, suspect: Suspect, finding: Finding) -> int:
        """How often what has a finding's sign was triaged; what a postponed bug may explain counts as that."""
        usual = self._is_usual(suspect)
        waits = any(bug.is_postponed_with(finding, usual=usual) for bug in tuple(self.bugs))
        return max(self.counts[sign], waits)

    def _shows_usually(self, suspect: Suspect) -> bool:
        key = suspect.index, suspect.is_rest
        if key not in self._usual:
            self._usual[key] = False
            with suppress(OutOfTime):
                self._usual[key] = self.shows_usually(suspect.case, suspect.findings[0])
        return self._usual[key]

    def _class_of(self, suspect: Suspect) -> str:
        if suspect.index not in self._classes:
            self._classes[suspect.index] = classify_drawn(suspect.case, self.target)
        return self._classes[suspect.index]

    def _signs(self, suspect: Suspect, finding: Finding) -> tuple[Sign, ...]:
        return signs(self._sign(suspect, finding), finding, self._class_of(suspect))

    def _sign(self, suspect: Suspect, finding: Finding) -> Sign:
        sign = sign_of(finding)
        near = [bug for bug in tuple(self.bugs) if bug.subjects & finding.subjects]
        fitting = [bug for bug in near if not self._lacks(suspect, bug)]
        if not near or not fitting:
            return (*sign, "other") if near else sign
        usual = self._is_usual(suspect)
        return sign if any(bug.is_known_of(usual=usual) for bug in fitting) else (*sign, "usual")

    def _is_usual(self, suspect: Suspect) -> bool:
        return self._class_of(suspect) != "extreme"

    def _lacks(self, suspect: Suspect, bug: Bug) -> bool:
        """Whether a case lacks something that a bug is known to need: nothing of numbers, which takes long to see."""
        if not bug.triggers:
            return False
        key = suspect.index, bug.triggers
        if key not in self._lacking:
            edits = (one.edit for one in bug.triggers if not one.is_of_values)
            self._lacking[key] = any(edit(suspect.case).key == suspect.case.key for edit in edits)
        return self._lacking[key]


def sign_of(finding: Finding) -> Sign:
    """What a finding is recognized by before anything is known of its cause."""
    return finding.subjects, finding.source_line


def signs(sign: Sign, finding: Finding, input_class: str) -> tuple[Sign, ...]:
    """What a finding is recognized by, and that with more about it."""
    return sign, (*sign, "unlike", finding.unlike), (*sign, "class", input_class)
