"""Triage: from the first disagreement to one finding per cause: confirm and shrink.

Small questions go to a worker that keeps running; an answer that must not depend on what ran before comes from a clean
one, a new process.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fuzz.model.case import Case
from fuzz.model.finding import Finding, Verdict, finding_order
from fuzz.model.oracles import ACCURACY, AUTOGRAD, MUTATION
from fuzz.model.rate import Rate
from fuzz.shrink.shrinker import Budget, Shrinker
from fuzz.target.spec import Target
from fuzz.triage.bug import NONFINITE, REFERENCE, Bug
from fuzz.triage.conditions import describe_triggers, non_defaults
from fuzz.worker.process import Worker, WorkerCrash
from fuzz.worker.protocol import Adjudicate, Diagnose, Examine, Report, report_outcome

TRIES = 10
"""Runs from which the rate of a disagreement is estimated."""
REMEMBERED = 8
"""Cases before the one in question that may have left the state that it depends on."""
ADJUDICATION = 30.0
"""Seconds that the exact value of one case may take."""
SLACK = 30.0
"""Seconds that a worker has beyond them, for the kernel and its envelope."""
PICTURED = 1 << 15
"""Elements of the largest case whose outputs are looked at as a whole."""
PATIENCE = 5.0
"""Seconds that a kernel known to hang is waited for while its case shrinks."""


@dataclass
class Triage:
    """Confirms, shrinks and merges the findings of one target, with one worker."""

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
            self._renew()
        sampled = self.sampled if everything else tuple({oracle} & set(self.sampled))
        answer = self.worker.call(Examine(case, sampled, everything))
        return report_outcome(answer.outcome) if isinstance(answer, WorkerCrash) else answer

    def _renew(self) -> None:
        """Puts a new process in the worker's place, and starts the next one while this one works."""
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
        filed = next((found for found in filings if found.oracle == like.oracle), None)
        return filed if filed and (stateful or filed.same_bug(like)) else None

    def find_primary(self, case: Case, finding: Finding) -> Finding:
        """The finding under which the case is filed when every oracle is asked, not only those of its share."""
        found = self.examine(case, finding.oracle, clean=True, everything=True).primary_finding
        return found if found and finding_order(found) < finding_order(finding) else finding

    def confirm(self, case: Case, finding: Finding, history: Sequence[Case]) -> Bug | None:
        """A bug with its rate; with earlier calls put before it where the state they left matters; None if never."""
        rate = self.measure_rate(case, finding)
        if killed(finding) and 2 * rate.shown <= rate.runs:
            return None
        if rate.shown:
            return Bug(finding, case, case, 0, 0.0, rate=rate)
        for before in self._prefixes(history):
            longer = replace(case, calls=tuple(call for one in before for call in one.calls) + case.calls, split=None)
            found = self.reproduce(longer, finding, clean=True)
            if found:
                return Bug(found, longer, case, 0, 0.0, stateful=True)
        return None

    def measure_rate(self, case: Case, finding: Finding) -> Rate:
        """How often it shows itself, first in a clean worker; in fewer runs where each takes long."""
        shown, runs, started = 0, 0, time.monotonic()
        while runs < TRIES and (runs < 2 or time.monotonic() - started < PATIENCE):
            shown += self.reproduce(case, finding, clean=runs == 0) is not None
            runs += 1
            if finding.symptom == "hung" and shown:
                break
        return Rate(shown, runs)

    def _prefixes(self, history: Sequence[Case]) -> list[Sequence[Case]]:
        if not history:
            return []
        return [history[:1], history[-1:], history[-REMEMBERED:]]

    def shrink(self, bug: Bug, budget: Budget) -> None:
        """Moves the bug to the least case that still shows it, verified in a clean worker."""
        bug.initial_symptom = bug.initial_symptom or bug.finding.symptom
        timeout = self.worker.timeout
        if bug.finding.symptom == "hung":
            self.worker.timeout = min(timeout, PATIENCE)
        self._leave_earlier_calls_out(bug)
        least = self.run_shrinker(bug, budget)
        accuracy = bug.finding.oracle == ACCURACY.name
        while accuracy and not set(least.finding.outputs) <= set(bug.widened_finding.outputs):
            # Outputs that are wrong together allow cases in which only the other one is.
            bug.outputs.update(least.finding.outputs)
            bug.case, bug.finding = least.case, least.finding
            least = self.run_shrinker(bug, budget)
        if least.case.key != bug.case.key and not self._certain(least, bug):
            least = self.run_shrinker(bug, budget, clean=True)
        bug.case, bug.finding = least.case, least.finding
        bug.executions += budget.used
        bug.needs = non_defaults(bug.case, self.target)
        if not bug.rate.certain:
            again = self.measure_rate(bug.case, bug.finding)
            bug.rate = again if again.shown else bug.rate
        self.worker.timeout = timeout
        self.look_around(bug)
        self.adjudicate(bug)
        self.diagnose(bug)

    def adjudicate(self, bug: Bug) -> None:
        """Sets the bug's verdict. Where the least case is undecided, the unshrunk one may tell, and is kept then.

        A step of shrinking may lead to where kernel and reference differ by no more than either may.
        """
        if bug.finding.oracle != ACCURACY.name:
            return
        verdict = self.request_verdict(bug, bug.case)
        if verdict.name == "undecided" and bug.case.key != bug.original.key:
            first = self.request_verdict(bug, bug.original)
            if first.name in ("kernel", "reference"):
                bug.case, verdict = bug.original, first
        bug.verdict, bug.oracle_symptom = verdict, bug.finding.symptom
        bug.finding = verdict.finding or bug.finding

    def request_verdict(self, bug: Bug, case: Case) -> Verdict:
        """The verdict on one case, asked until it disagrees."""
        timeout, verdict = self.worker.timeout, Verdict("unadjudicated", "it did not disagree again")
        for _ in range(bug.rate.runs_to_decide):
            if len(case.calls) > 1:
                self._renew()
            self.worker.timeout = max(timeout, ADJUDICATION + SLACK)
            answer = self.worker.call(Adjudicate(case, ADJUDICATION))
            self.worker.timeout = timeout
            if not isinstance(answer, Verdict):
                return Verdict("unadjudicated", "the worker ended before it had an exact value")
            verdict = answer
            if verdict.finding is not None:
                break
        return verdict

    def diagnose(self, bug: Bug) -> None:
        """Says in words what is wrong: patterns are clearer in the unshrunk case, what triggers it in the least one."""
        found: tuple[str, ...] = describe_consequences(bug)
        if bug.finding.oracle == ACCURACY.name and bug.verdict.name != "reference":
            timeout, self.worker.timeout = self.worker.timeout, self.worker.timeout + SLACK
            for case in bug.diagnosis_cases:
                if not found and case.elements() <= PICTURED:
                    answer = self.worker.call(Diagnose(case, bug.case))
                    found = () if isinstance(answer, WorkerCrash | Report) else answer
            self.worker.timeout = timeout
        bug.diagnosis = (*found, *describe_triggers(bug.case, self.target))

    def look_around(self, bug: Bug) -> None:
        """Asks every oracle about the bug's case, for the others that fire and the finding as it is filed."""
        report = self.examine(bug.case, bug.finding.oracle, clean=True, everything=True)
        same = [found for found in report.findings if found.oracle == bug.finding.oracle]
        bug.finding = same[0] if same else bug.finding
        bug.also = tuple(found for found in report.findings if finding_order(found)[0] > finding_order(bug.finding)[0])
        if bug.finding.oracle == MUTATION.name and self.target.differentiable:
            # What a write over an input does to gradients shows badly in the least case, where most are 0.
            report = self.examine(bug.original, bug.finding.oracle, everything=True)
            seen = tuple(found for found in report.findings if found.oracle == AUTOGRAD.name)
            bug.also = (*(found for found in bug.also if not seen or found.oracle != AUTOGRAD.name), *seen)

    def _leave_earlier_calls_out(self, bug: Bug) -> None:
        """Takes the last call where it alone shows the same: then a case need not be asked of a clean worker each."""
        if bug.stateful or len(bug.case.calls) < 2:
            return
        alone = replace(bug.case, calls=(bug.case.last,))
        found = self.reproduce(alone, bug.widened_finding, clean=True)
        if found and found.symptom == bug.finding.symptom:
            bug.case, bug.finding = alone, found

    def run_shrinker(self, bug: Bug, budget: Budget, clean: bool = False) -> Shrinker:
        """From the bug's case on; in clean workers where asked for, and where calls may leave something behind: as
        long as the case has several, and for what is to take its place."""
        clean = clean or bug.stateful
        tries, like = bug.rate.runs_to_try, bug.widened_finding

        def shows(case: Case) -> Finding | None:
            apart = clean or max(len(case.calls), len(shrinker.case.calls)) > 1
            for _ in range(tries):
                found = self.reproduce(case, like, clean=apart, stateful=bug.stateful)
                same = found is not None and (found.symptom == REFERENCE) == bug.blames_reference
                if same and not (bug.has_nan_cause and found is not None and found.symptom == NONFINITE):
                    return found
            return None

        shrinker = Shrinker(self.target, bug.case, bug.finding, shows, budget)
        shrinker.run()
        return shrinker

    def _certain(self, least: Shrinker, bug: Bug) -> bool:
        return any(
            self.reproduce(least.case, bug.widened_finding, clean=True, stateful=bug.stateful)
            for _ in range(bug.rate.runs_to_decide)
        )


def killed(finding: Finding) -> bool:
    """Whether a worker died of the signal that comes from outside: only where it repeats is it the case's."""
    return finding.symptom == "died" and finding.message.endswith("SIGKILL")


def describe_consequences(bug: Bug) -> tuple[str, ...]:
    """What a write over an input does to the gradients of other operations, in words."""
    if bug.finding.oracle not in (MUTATION.name, AUTOGRAD.name):
        return ()
    return tuple(found.message for found in (bug.finding, *bug.also) if found.oracle == AUTOGRAD.name)
