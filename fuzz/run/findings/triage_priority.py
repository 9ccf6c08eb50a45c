"""Chooses which disagreement is triaged next: the one least like those before it, the most ordinary inputs first.

One bug may show in every case. Where the time of a run ends before all of them are triaged, a rare second bug that came
after them would be lost. What the errors of a finding have in common may be the only thing in which it differs.
"""

from __future__ import annotations

import math
import time
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
"""Cases that are run with usual inputs, at most, before one of them is chosen; and those that are run without what a
postponed bug needs, before a task comes first, and for each of these bugs."""


def shows_anything(case: Case, finding: Finding) -> bool:
    return True


def rules_out_nothing(bug: Bug, case: Case, finding: Finding) -> bool:
    return False


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
    a bug may explain that is not shrunk yet: it waits for that, unless `rules_out` says that the first finding of a
    case is not that bug's, as other findings may be consequences of the first. Before a task comes first a few cases
    are run to tell, for `seconds_to_ask` in all.

    A task waits for findings that are like none before them, but not until less than `reserve` seconds are left. After
    the deadline, when the hundreds that may wait are but counted, all comes in the order in which it came. `bugs` are
    those that are known so far.
    """

    target: Target
    deadline: Deadline = field(default_factory=Deadline)
    reserve: float = 0.0
    bugs: Sequence[Bug] = ()
    shows_usually: Callable[[Case, Finding], bool] = shows_anything
    rules_out: Callable[[Bug, Case, Finding], bool] = rules_out_nothing
    seconds_to_ask: float = math.inf
    counts: Counter[Sign] = field(default_factory=Counter)
    _current: frozenset[Subject] = frozenset()
    """What the case shows that is triaged now."""
    _classes: dict[int, str] = field(default_factory=dict)
    _usual: dict[tuple[int, bool], bool] = field(default_factory=dict)
    """By a case's index, and whether it is what is left of it, whether it shows its first finding usually."""
    _lacking: dict[tuple[int, tuple[Trigger, ...]], bool] = field(default_factory=dict)
    """By a case's index, and what a bug needs, whether the case lacks some of that, or shows the same without it."""
    _asked: dict[int, tuple[Bug, set[int]]] = field(default_factory=dict)
    """By the id of a postponed bug that bug, and the indices of cases that were run without what it needs."""
    _seconds_asked: float = 0.0

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
        return is_new and self._is_in_time

    def choose(self, waiting: Sequence[Suspect], task_waits: bool) -> Suspect | None:
        """The next one, which counts as triaged from now on; None where a task comes first."""
        self._current = frozenset()
        if self.deadline.has_passed:
            return IN_ORDER.choose(waiting, task_waits)
        if not waiting:
            return None
        chosen, is_news = self._first(waiting)
        if task_waits and not is_news and self._ask_about_postponed(waiting):
            chosen, is_news = self._first(waiting)
        if task_waits and not (is_news and self._is_in_time):
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

    @property
    def _is_in_time(self) -> bool:
        return self.deadline.seconds_left >= self.reserve

    def _ask_about_postponed(self, waiting: Sequence[Suspect]) -> bool:
        """Runs cases without what postponed bugs need that may explain them, up to one that none of these explains.

        Returns whether any was run.
        """
        postponed, asked = [bug for bug in tuple(self.bugs) if bug.is_postponed], 0
        for suspect in sorted(waiting, key=self._key) if postponed else ():
            near = [bug for bug in postponed if self._may_explain(bug, suspect, suspect.findings[0])]
            if near and all(self._may_ask(bug, suspect) for bug in near):
                asked += len(near)
                if all(self._asks(bug, suspect) for bug in near) or asked >= MOST_ASKED:
                    break
        return asked > 0

    def _may_explain(self, bug: Bug, suspect: Suspect, finding: Finding) -> bool:
        """Whether a postponed bug may explain a finding of a case, as far as is known."""
        usual = self._is_usual(suspect)
        return bug.is_postponed_with(finding, usual=usual) and not self._is_ruled_out(suspect, bug, finding)

    def _may_ask(self, bug: Bug, suspect: Suspect) -> bool:
        """Whether a run of a case may tell that a postponed bug does not explain it, and was not made before."""
        _, asked = self._asked.setdefault(id(bug), (bug, set()))
        tells = bug.departures != () and len(suspect.case.calls) == 1 and not suspect.is_rest
        is_in_time = self._is_in_time and self._seconds_asked < self.seconds_to_ask
        return tells and is_in_time and suspect.index not in asked and len(asked) < MOST_ASKED

    def _asks(self, bug: Bug, suspect: Suspect) -> bool:
        """Whether a postponed bug is found not to explain what a case is filed under, which is remembered."""
        self._asked[id(bug)][1].add(suspect.index)
        start = time.monotonic()
        with suppress(OutOfTime):
            if self.rules_out(bug, suspect.case, suspect.findings[0]):
                self._lacking[suspect.index, bug.needs] = True
        self._seconds_asked += time.monotonic() - start
        return self._lacks(suspect, bug)

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
        waits = any(self._may_explain(bug, suspect, finding) for bug in tuple(self.bugs))
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
        fitting = [bug for bug in near if not self._is_ruled_out(suspect, bug, finding)]
        if not near or not fitting:
            return (*sign, "other") if near else sign
        usual = self._is_usual(suspect)
        return sign if any(bug.is_known_of(usual=usual) for bug in fitting) else (*sign, "usual")

    def _is_usual(self, suspect: Suspect) -> bool:
        return self._class_of(suspect) != "extreme"

    def _is_ruled_out(self, suspect: Suspect, bug: Bug, finding: Finding) -> bool:
        """Whether a bug is known not to explain a finding of a case: a postponed one, what one call is filed under."""
        is_told = not bug.is_postponed or len(suspect.case.calls) == 1 and finding is suspect.findings[0]
        return is_told and self._lacks(suspect, bug)

    def _lacks(self, suspect: Suspect, bug: Bug) -> bool:
        """Whether a case lacks something that a bug is known to need: nothing of numbers, which takes long to see."""
        needs = bug.needs
        if not needs:
            return False
        key = suspect.index, needs
        if key not in self._lacking:
            self._lacking[key] = not all(one.changes(suspect.case) for one in needs if not one.is_of_values)
        return self._lacking[key]


def sign_of(finding: Finding) -> Sign:
    """What a finding is recognized by before anything is known of its cause."""
    return finding.subjects, finding.source_line


def signs(sign: Sign, finding: Finding, input_class: str) -> tuple[Sign, ...]:
    """What a finding is recognized by, and that with more about it."""
    return sign, (*sign, "unlike", finding.unlike), (*sign, "class", input_class)
