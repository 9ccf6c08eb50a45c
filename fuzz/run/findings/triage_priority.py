"""Chooses which disagreement is triaged next: the one least like those before it, the most ordinary inputs first.

One bug may show in every case. Where the time of a run ends before all of them are triaged, a rare second bug that came
after them would be lost. What the errors of a finding have in common may be the only thing in which it differs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from fuzz.model.finding import Finding
from fuzz.model.grade import INPUT_CLASSES
from fuzz.run.findings.triage_queue import InOrder, Suspect
from fuzz.target.spec import Target
from fuzz.triage.bug import Bug
from fuzz.triage.input_classes import classify_drawn
from fuzz.worker.deadline import Deadline

Sign = tuple[object, ...]
IN_ORDER = InOrder()


@dataclass
class TriagePriority:
    """Counts the signs of what was triaged: oracle, class of symptom, outputs and source line of a finding.

    A case is like what was triaged as often as the rarest of its findings was. Of cases with findings that were triaged
    equally often, those come first whose errors lack a pattern that is usual in the run, as fewer of the triaged did,
    then those in a class of inputs in which that happened less often, then those with more ordinary inputs, then the
    oldest.

    What is left of a case whose first finding was triaged counts as like that one, which may be its cause.

    A task waits for findings that are like none before them, but not until less than `reserve` seconds are left. After
    the deadline, when the hundreds that may wait are but counted, all comes in the order in which it came.
    """

    target: Target
    deadline: Deadline = field(default_factory=Deadline)
    reserve: float = 0.0
    counts: Counter[Sign] = field(default_factory=Counter)
    _classes: dict[int, str] = field(default_factory=dict)

    def know(self, bugs: Sequence[Bug]) -> None:
        """Counts bugs that were known before the run as triaged once."""
        for bug in bugs:
            self._count([bug.finding, *bug.least.also], classify_drawn(bug.case, self.target))

    def has_news(self, waiting: Sequence[Suspect]) -> bool:
        """Whether a case waits whose finding is like nothing before, unless the time left is reserved for tasks."""
        findings = (one for suspect in waiting if not suspect.is_rest for one in suspect.findings)
        is_new = any(not self.counts[sign_of(one)] for one in findings)
        return is_new and self.deadline.seconds_left >= self.reserve

    def choose(self, waiting: Sequence[Suspect], task_waits: bool) -> Suspect | None:
        """The next one, which counts as triaged from now on; None where a task comes first."""
        if self.deadline.has_passed:
            return IN_ORDER.choose(waiting, task_waits)
        if not waiting:
            return None
        keys = {suspect.index: self._key(suspect) for suspect in waiting}
        chosen = min(waiting, key=lambda suspect: keys[suspect.index])
        if task_waits and (keys[chosen.index][0] or self.deadline.seconds_left < self.reserve):
            return None
        self._count(chosen.findings, self._classes.pop(chosen.index))
        return chosen

    def _key(self, suspect: Suspect) -> tuple[int, ...]:
        input_class = self._class_of(suspect)
        often = min(
            (tuple(self.counts[one] for one in signs(finding, input_class)) for finding in suspect.findings),
            default=(0, 0, 0),
        )
        first, *others = often
        return (max(first, suspect.is_rest), *others, INPUT_CLASSES.index(input_class), suspect.index)

    def _class_of(self, suspect: Suspect) -> str:
        if suspect.index not in self._classes:
            self._classes[suspect.index] = classify_drawn(suspect.case, self.target)
        return self._classes[suspect.index]

    def _count(self, findings: Sequence[Finding], input_class: str) -> None:
        for finding in findings:
            self.counts.update(signs(finding, input_class))


def sign_of(finding: Finding) -> Sign:
    """What a finding is recognized by before anything is known of its cause."""
    return finding.subjects, finding.source_line


def signs(finding: Finding, input_class: str) -> tuple[Sign, ...]:
    """What a finding is recognized by, and that with more about it."""
    sign = sign_of(finding)
    return sign, (*sign, "unlike", finding.unlike), (*sign, "class", input_class)
