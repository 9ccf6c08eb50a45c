"""Decides which disagreements count: shrinks, adjudicates and grades them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace

from fuzz.judge.problem.severity import DomainPlans, grade_in_domain
from fuzz.judge.processes.isolated_worker import IsolatedWorker
from fuzz.judge.result.judgement import Evidence
from fuzz.model.case import Case
from fuzz.model.finding import Finding, Verdict
from fuzz.model.oracle_specs import ACCURACY
from fuzz.shrink.shrinker import Budget
from fuzz.triage.bug import Bug
from fuzz.triage.triage import Triage
from fuzz.worker.deadline import OutOfTime
from fuzz.worker.protocol import Diagnose

SHRINK_SECONDS = GRADE_SECONDS = 15.0
FAR = 64.0
"""Error over bound from which a disagreement without an exact value counts."""


@dataclass
class Findings:
    """Decides which findings count, and keeps those that do not, so that similar ones are not examined again."""

    worker: IsolatedWorker
    triage: Triage
    low: list[Finding] = field(default_factory=list)
    set_aside: list[Finding] = field(default_factory=list)

    def is_known(self, finding: Finding) -> bool:
        """Whether a similar one does not count, or the problem's own code errs as much in the same dtype."""
        if any(finding.shows_symptom_of(known) for known in self.low) or self._is_excused(finding):
            return True
        # What is no mistake, or could not be decided, takes as long again, and is the same where it is hardly larger.
        return any(finding.shows_symptom_of(known) and finding.ratio <= 2 * known.ratio for known in self.set_aside)

    def _is_excused(self, finding: Finding) -> bool:
        eager = self.worker.last.eager
        return finding.oracle == ACCURACY.name and eager is not None and eager.shares(finding)

    def weigh(self, bug: Bug, case: Case, finding: Finding) -> Evidence | None:
        """The evidence of a confirmed bug, with the least case that the time allows; None where it is no mistake."""
        try:
            self.triage.shrink(bug, Budget(seconds=SHRINK_SECONDS))
            self.triage.explain(bug)
        except OutOfTime:
            if bug.least.verdict.name == "pending":
                bug.least = replace(bug.least, verdict=Verdict("unadjudicated", "the time for it ended"))
        is_open = is_unproven(bug, finding)
        is_no_mistake = bug.is_undecided or bug.least.verdict.name == "reference"
        if is_open or is_no_mistake:
            self.set_aside.append(finding)
        else:
            self.low.append(bug.sought)
        if is_no_mistake and not is_open:
            return None
        bug.grade = grade_in_domain(bug, case, self.triage, self.worker.description, Budget(seconds=GRADE_SECONDS))
        least, rate = bug.least.reported_finding, bug.grade.typical.rate if bug.grade.typical else bug.rate
        evidence = Evidence(
            least.oracle, least.outputs, least.symptom, least.message, bug.grade.severity,
            DomainPlans(self.worker.description).name_class(bug.grade), bug.case, bug.grade, rate,
            bug.least.verdict.name, bug.least.verdict.reason, () if is_open else self._describe(bug), is_open,
            bug.cut_off,
        )  # fmt: skip
        return evidence if evidence.counts or not is_open else None

    def _describe(self, bug: Bug) -> tuple[str, ...]:
        """What is wrong in words; of the typical case where the first one is too large, and the least too small."""
        typical = bug.grade.typical if bug.grade is not None else None
        if bug.least.diagnosis or typical is None or bug.least.verdict.name == "reference":
            return bug.least.diagnosis
        with suppress(OutOfTime):
            return self.worker.diagnose(Diagnose(typical.case, typical.case, bug.finding.oracle))
        return ()


def is_unproven(bug: Bug, finding: Finding) -> bool:
    """Whether nothing but a narrow bound says that a value is wrong, because there is no exact value."""
    verdict = bug.least.verdict
    if bug.finding.oracle != ACCURACY.name or not verdict.reason:
        return False
    return bug.is_undecided or verdict.name == "unadjudicated" and finding.symptom == "value" and finding.ratio < FAR


def leave_open(case: Case, finding: Finding) -> Evidence:
    """Evidence of a finding that ordinary inputs show, and for which there was no time."""
    return Evidence(
        finding.oracle, finding.outputs, finding.symptom, finding.message, "medium", least=case,
        verdict="unadjudicated", reason="the time for it ended", is_open=True,
    )  # fmt: skip
