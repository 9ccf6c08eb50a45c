"""Remembers what cases show of one bug: each is tried once, and several that will be asked about in parallel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

from fuzz.model.case import Case
from fuzz.model.finding import Subject
from fuzz.triage.bug import Bug
from fuzz.triage.examiner import Examiner, has_one_layout, subjects_in
from fuzz.worker.protocol import Report
from fuzz.worker.worker import WorkerCrash

AT_A_TIME = 4
"""Cases for each helper that are held at a time."""
Key = tuple[object, ...]


def key_of(case: Case) -> Key:
    """A hashable value that is equal for equal cases, and tells options apart that Python calls equal: 1 and True."""
    return case.key, repr([call.options for call in case.calls])


@dataclass
class Tries:
    """What cases have shown of a bug; None where that cannot be said. `answers` are those of helpers."""

    bug: Bug
    examiner: Examiner
    shown: dict[Key, frozenset[Subject] | None] = field(default_factory=dict)
    answers: dict[Key, Report | WorkerCrash] = field(default_factory=dict)

    def agrees(self, case: Case) -> bool:
        """Whether a case is examined and shows nothing of the bug."""
        return self._shown(case) == frozenset()

    def shows(self, case: Case) -> bool:
        """Whether a case is examined and shows something of the bug."""
        return bool(self._shown(case))

    def prefetch(self, cases: Iterable[Case]) -> None:
        """Has helpers try cases that may be asked about later, where there are any; else no case is drawn.

        What a case did that nobody asks about does not count, whatever that is.
        """
        bug, sought, helpers = self.bug, self.bug.sought, self.examiner.helpers
        is_costly = sought.symptom == "out-of-memory"
        if not helpers.size or bug.needs_clean_workers or bug.rate.runs_to_try > 1 or is_costly:
            return
        drawn = (case for case in cases if not has_one_layout(case, sought))
        while some := {key_of(case): case for case in islice(drawn, AT_A_TIME * helpers.size)}:
            fresh = {key: case for key, case in some.items() if not (key in self.shown or key in self.answers)}
            with self.examiner.impatient_for(sought):
                answers = self.examiner.ask_helpers([*fresh.values()], sought.oracle)
                self.answers |= dict(zip(fresh, answers, strict=True))

    def _shown(self, case: Case) -> frozenset[Subject] | None:
        key = key_of(case)
        if key not in self.shown:
            self.shown[key] = self._try(case, self.answers.pop(key, None))
        return self.shown[key]

    def _try(self, case: Case, answer: Report | WorkerCrash | None) -> frozenset[Subject] | None:
        """What a case shows by a helper's answer; without one, and where the helper could not run it, by a try."""
        bug, report = self.bug, None if answer is None else self.examiner.report_of(answer, case)
        if report is None or report.not_run:
            return self.examiner.shown_subjects(case, bug.sought, bug.rate, clean=bug.needs_clean_workers)
        return subjects_in([report], bug.sought)
