"""Turns a disagreement into a bug: confirms it, shrinks its case, adjudicates and diagnoses it.

Most requests go to a worker that keeps running. A report that must not depend on what ran before comes from a clean
worker, which is a new process.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fuzz.model.case import Case
from fuzz.model.finding import Finding, Verdict, finding_order
from fuzz.model.oracle_specs import ACCURACY, AUTOGRAD, MUTATION, find_oracle_spec
from fuzz.model.rate import Rate
from fuzz.shrink.shrinker import Budget, Shrinker
from fuzz.target.spec import Target
from fuzz.triage.bug import NONFINITE, REFERENCE, Bug, Example, Sighting
from fuzz.triage.conditions import describe_triggers, non_defaults
from fuzz.worker.process import Worker, WorkerCrash
from fuzz.worker.protocol import Adjudicate, Diagnose, Examine, Report, report_outcome

RATE_RUNS = 10
"""Runs from which the rate of a disagreement is estimated."""
REMEMBERED = 8
"""Cases before the one in question that may have left the state that it depends on."""
ADJUDICATION_SECONDS = 30.0
"""Seconds that the exact value of one case may take."""
EXTRA_SECONDS = 30.0
"""Seconds that a worker has beyond them, for the kernel and its envelope."""
MAX_DIAGNOSED_ELEMENTS = 1 << 15
"""Elements of the largest case whose outputs are diagnosed."""
SHRINKING = "shrinking"
"""The first step of triage that may be cut off once a bug is confirmed."""
HANG_SECONDS = 5.0
"""Seconds that a kernel known to hang is waited for while its case shrinks."""


@dataclass
class Triage:
    """Confirms, shrinks and explains the findings of one target. `sampled` names the oracles that run on request."""

    target: Target
    worker: Worker
    sampled: tuple[str, ...]
    spare: Worker | None = None

    def __enter__(self) -> Triage:
        return self

    def __exit__(self, *error: object) -> None:
        self.worker.stop()
        if self.spare is not None:
            self.spare.stop()

    def examine(self, case: Case, oracle: str, *, clean: bool = False, everything: bool = False) -> Report:
        """The report on a case from the running worker, or from a clean one."""
        if clean:
            self._replace_worker()
        sampled = self.sampled if everything else tuple({oracle} & set(self.sampled))
        answer = self.worker.call(Examine(case, sampled, everything))
        return report_outcome(answer.outcome) if isinstance(answer, WorkerCrash) else answer

    def _replace_worker(self) -> None:
        """Takes a new process as the worker, and starts the next one while this one works."""
        used, self.worker = self.worker, self.spare or self.worker
        used.stop()
        self.worker.timeout = used.timeout
        self.spare = used.clone()
        self.spare.start()

    def reproduce(self, case: Case, like: Finding, *, clean: bool = False, stateful: bool = False) -> Finding | None:
        """The finding, if the case is filed under the same oracle with an output in common, or only after a write.

        What a kernel leaves behind from an earlier call may show in any output.
        """
        filings = self.examine(case, like.oracle, clean=clean).filed_findings
        filed = next((finding for finding in filings if finding.oracle == like.oracle), None)
        return filed if filed and (stateful or filed.same_bug(like)) else None

    def find_primary(self, case: Case, finding: Finding) -> Finding:
        """The finding under which the case is filed when every oracle examines it, not only those of its share."""
        filed = self.examine(case, finding.oracle, clean=True, everything=True).primary_finding
        return filed if filed and finding_order(filed) < finding_order(finding) else finding

    def confirm(self, case: Case, finding: Finding, history: Sequence[Case]) -> Bug | None:
        """A bug with its rate; with earlier calls put before it where the state they left matters; None if never."""
        rate = self.measure_rate(case, finding)
        if was_killed(finding) and 2 * rate.disagreements <= rate.runs:
            return None
        if rate.disagreements:
            return Bug(Example(case, finding), Sighting(case, finding.symptom), rate)
        for before in self._prefixes(history):
            calls = tuple(call for earlier in before for call in earlier.calls)
            longer = replace(case, calls=calls + case.calls, split=None)
            reproduced = self.reproduce(longer, finding, clean=True)
            if reproduced:
                return Bug(Example(longer, reproduced), Sighting(case, reproduced.symptom), stateful=True)
        return None

    def measure_rate(self, case: Case, finding: Finding) -> Rate:
        """How often it shows itself, first in a clean worker; in fewer runs where each takes long."""
        times, runs, start = 0, 0, time.monotonic()
        while runs < RATE_RUNS and (runs < 2 or time.monotonic() - start < HANG_SECONDS):
            times += self.reproduce(case, finding, clean=runs == 0) is not None
            runs += 1
            if finding.symptom == "hung" and times:
                break
        return Rate(times, runs)

    def _prefixes(self, history: Sequence[Case]) -> list[Sequence[Case]]:
        if not history:
            return []
        return [history[:1], history[-1:], history[-REMEMBERED:]]

    def shrink(self, bug: Bug, budget: Budget) -> None:
        """Moves the bug to the least case that still shows it, verified in a clean worker, and explains that case.

        `cut_off` of the bug names the step at which the budget ended, or at which OutOfTime was raised; what comes
        after it was not done then.
        """
        bug.cut_off = SHRINKING
        if bug.finding.oracle == ACCURACY.name and bug.least.verdict.name == "unadjudicated":
            bug.least = replace(bug.least, verdict=Verdict("pending"))
        timeout = self.worker.timeout
        if bug.finding.symptom == "hung":
            self.worker.timeout = min(timeout, HANG_SECONDS)
        self._drop_earlier_calls(bug)
        shrunk = self.run_shrinker(bug, budget)
        is_accuracy = bug.finding.oracle == ACCURACY.name
        while is_accuracy and not set(shrunk.finding.outputs) <= set(bug.widened_finding.outputs):
            # Outputs that are wrong together allow cases in which only the other one is.
            bug.outputs.update(shrunk.finding.outputs)
            bug.least = replace(bug.least, case=shrunk.case, finding=shrunk.finding)
            shrunk = self.run_shrinker(bug, budget)
        if shrunk.case.key != bug.case.key and not self._is_reproducible(shrunk, bug):
            shrunk = self.run_shrinker(bug, budget, clean=True)
        cut_off = "" if budget.left() else SHRINKING
        bug.least = replace(bug.least, case=shrunk.case, finding=shrunk.finding)
        bug.executions += budget.used
        bug.needs = non_defaults(bug.case, self.target)
        if not bug.rate.certain:
            rate = self.measure_rate(bug.case, bug.finding)
            bug.rate = rate if rate.disagreements else bug.rate
        self.worker.timeout = timeout
        steps = {"examination": self.collect_findings, "adjudication": self.adjudicate, "diagnosis": self.diagnose}
        for name, step in steps.items():
            bug.cut_off = cut_off or name
            step(bug)
        bug.cut_off = cut_off

    def collect_findings(self, bug: Bug) -> None:
        """Examines the least case with every oracle: sets the finding as it is filed, and the others that fire."""
        finding = bug.finding
        report = self.examine(bug.case, finding.oracle, clean=True, everything=True)
        finding = next((other for other in report.findings if other.oracle == finding.oracle), finding)
        also = [other for other in report.findings if finding_order(other)[0] > finding_order(finding)[0]]
        if finding.oracle == MUTATION.name and self.target.differentiable:
            # What a write over an input does to gradients shows badly in the least case, where most are 0.
            report = self.examine(bug.origin.case, finding.oracle, everything=True)
            if spoilt := [other for other in report.findings if other.oracle == AUTOGRAD.name]:
                also = [*(other for other in also if other.oracle != AUTOGRAD.name), *spoilt]
        bug.least = replace(bug.least, finding=finding, also=tuple(also))

    def adjudicate(self, bug: Bug) -> None:
        """Sets the bug's verdict. Where the least case is undecided, the unshrunk one may tell, and is kept then.

        A step of shrinking may lead to where kernel and reference differ by no more than either may.
        """
        if bug.finding.oracle != ACCURACY.name:
            return
        case, verdict = bug.case, self.request_verdict(bug, bug.case)
        if verdict.name == "undecided" and case.key != bug.origin.case.key:
            first = self.request_verdict(bug, bug.origin.case)
            if first.name in ("kernel", "reference"):
                case, verdict = bug.origin.case, first
        finding, symptom = verdict.finding or bug.finding, bug.finding.symptom
        bug.least = replace(bug.least, case=case, finding=finding, verdict=verdict, oracle_symptom=symptom)

    def request_verdict(self, bug: Bug, case: Case) -> Verdict:
        """The verdict on one case, requested until the case disagrees."""
        timeout, verdict = self.worker.timeout, Verdict("unadjudicated", "it did not disagree again")
        for _ in range(bug.rate.runs_to_decide):
            if len(case.calls) > 1:
                self._replace_worker()
            self.worker.timeout = max(timeout, ADJUDICATION_SECONDS + EXTRA_SECONDS)
            answer = self.worker.call(Adjudicate(case, ADJUDICATION_SECONDS))
            self.worker.timeout = timeout
            if not isinstance(answer, Verdict):
                return Verdict("unadjudicated", "the worker ended before it had an exact value")
            verdict = answer
            if verdict.finding is not None:
                break
        return verdict

    def diagnose(self, bug: Bug) -> None:
        """Says in words what is wrong: patterns are clearer in the unshrunk case, what triggers it in the least one."""
        diagnosis = describe_consequences(bug.least)
        if find_oracle_spec(bug.finding.oracle).has_diagnosis and bug.least.verdict.name != "reference":
            timeout, self.worker.timeout = self.worker.timeout, self.worker.timeout + EXTRA_SECONDS
            for case in bug.diagnosis_cases:
                if not diagnosis and case.elements() <= MAX_DIAGNOSED_ELEMENTS:
                    answer = self.worker.call(Diagnose(case, bug.case, bug.finding.oracle))
                    diagnosis = () if isinstance(answer, WorkerCrash | Report) else answer
            self.worker.timeout = timeout
        bug.least = replace(bug.least, diagnosis=(*diagnosis, *describe_triggers(bug.case, self.target)))

    def _drop_earlier_calls(self, bug: Bug) -> None:
        """Takes the last call where it alone shows the same: then a case does not need a clean worker each time."""
        if bug.stateful or len(bug.case.calls) < 2:
            return
        alone = replace(bug.case, calls=(bug.case.last,))
        finding = self.reproduce(alone, bug.widened_finding, clean=True)
        if finding and finding.symptom == bug.finding.symptom:
            bug.least = replace(bug.least, case=alone, finding=finding)

    def run_shrinker(self, bug: Bug, budget: Budget, clean: bool = False) -> Shrinker:
        """The finished shrinker, which began with the bug's case.

        Clean workers run the cases with `clean`, and where calls may leave something behind: as long as the case has
        several calls, and for the case that is to take its place.
        """
        clean = clean or bug.stateful
        tries, like = bug.rate.runs_to_try, bug.widened_finding

        def reproduce(case: Case) -> Finding | None:
            isolated = clean or max(len(case.calls), len(shrinker.case.calls)) > 1
            for _ in range(tries):
                finding = self.reproduce(case, like, clean=isolated, stateful=bug.stateful)
                if finding is None or (finding.symptom == REFERENCE) != bug.least.blames_reference:
                    continue
                if not (bug.has_nan_cause and finding.symptom == NONFINITE):
                    return finding
            return None

        shrinker = Shrinker(self.target, bug.case, bug.finding, reproduce, budget)
        shrinker.run()
        return shrinker

    def _is_reproducible(self, shrunk: Shrinker, bug: Bug) -> bool:
        """Whether a clean worker shows the shrunk case's finding again."""
        return any(
            self.reproduce(shrunk.case, bug.widened_finding, clean=True, stateful=bug.stateful)
            for _ in range(bug.rate.runs_to_decide)
        )


def was_killed(finding: Finding) -> bool:
    """Whether a worker died of the signal that comes from outside: only where it repeats is it the case's."""
    return finding.symptom == "died" and finding.message.endswith("SIGKILL")


def describe_consequences(example: Example) -> tuple[str, ...]:
    """What a write over an input does to the gradients of other operations, in words."""
    if example.finding.oracle not in (MUTATION.name, AUTOGRAD.name):
        return ()
    findings = (example.finding, *example.also)
    return tuple(finding.message for finding in findings if finding.oracle == AUTOGRAD.name)
