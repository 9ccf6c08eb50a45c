"""Turns a disagreement into a bug: confirms it, shrinks its case, adjudicates and diagnoses it.

Most requests go to a worker that keeps running. A report that must not depend on what ran before comes from a clean
worker, which is a new process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from fuzz.model.case import Case
from fuzz.model.finding import Finding, Verdict, filing_order
from fuzz.model.oracle_specs import ACCURACY, AUTOGRAD, MUTATION, find_oracle_spec
from fuzz.model.rate import Rate
from fuzz.shrink.shrinker import MOST_TOGETHER, MOST_TOGETHER_SECONDS, Budget, Shrinker
from fuzz.triage.bug import SHRINKING, Bug, Example, Origin
from fuzz.triage.call_number import equal_calls, find_call
from fuzz.triage.conditions import describe_conditions
from fuzz.triage.examiner import HANG_SECONDS, Examiner
from fuzz.triage.tries import Tries
from fuzz.triage.triggers import EARLIER_CALLS, Trigger, all_hold, find_triggers
from fuzz.worker.protocol import Adjudicate, Diagnose, Report
from fuzz.worker.worker import WorkerCrash

RATE_RUNS = 10
"""Runs from which the rate of a disagreement is estimated."""
REMEMBERED = 8
"""Cases before the one in question that may have left the state that it depends on."""
ADJUDICATION_SECONDS = 30.0
"""Seconds that the exact value of one case may take."""
EXTRA_SECONDS = 30.0
"""Seconds that a worker has beyond them, for the kernel and its envelope."""
TIMEOUT_SHARE = 0.25
"""The part of the time of one request that candidates which run together may take by what the last ones took."""
MAX_DIAGNOSED_ELEMENTS = 1 << 15
"""Elements of the largest case whose outputs are diagnosed."""


class Triage(Examiner):
    """Confirms, shrinks and explains the findings of one target."""

    def find_triggers(self, bug: Bug) -> tuple[Trigger, ...]:
        """What the bug needs; found at the first call."""
        if bug.triggers is None and bug.stateful:
            bug.triggers = (EARLIER_CALLS,)
        if bug.triggers is None:
            bug.triggers = self._find_triggers(bug, costly=bug.finding.symptom in ("hung", "out-of-memory"))
        return bug.triggers

    def find_departures(self, bug: Bug) -> tuple[Trigger, ...]:
        """What of its case's departures from defaults a postponed bug of wrong values needs; found at the first call.

        What other oracles see has a place, which tells causes apart; and where a run tells little none is looked for.
        """
        if bug.departures is None:
            tells = bug.sought.oracle == ACCURACY.name and bug.rate.certain and not bug.needs_clean_workers
            bug.departures = self._find_triggers(bug, costly=True) if tells else ()
        return bug.departures

    def _find_triggers(self, bug: Bug, *, costly: bool) -> tuple[Trigger, ...]:
        tries = Tries(bug, self)
        how = tries.agrees, tries.shows, tries.prefetch
        return find_triggers(bug.case, bug.origin.case, self.target, *how, costly=costly)

    def keep_triggers_of(self, bug: Bug, other: Bug) -> None:
        """Drops the triggers that the unshrunk case of another bug of the same cause does not need to show that one."""
        agrees = Tries(other, self).agrees
        needed = (one for one in self.find_triggers(bug) if one.is_needed(other.origin.case, agrees))
        bug.triggers = tuple(needed)

    def find_primary(self, case: Case, finding: Finding) -> Finding:
        """The finding under which the case is filed when every oracle examines it, not only those of its share."""
        filed = self.examine(case, finding.oracle, clean=True, everything=True).primary_finding
        return filed if filed and filing_order(filed) < filing_order(finding) else finding

    def confirm(self, case: Case, finding: Finding, history: Sequence[Case]) -> Bug | None:
        """A bug with its rate; with earlier calls put before it where the state they left matters; None if never."""
        rate = self.measure_rate(case, finding)
        if was_killed(finding) and 2 * rate.disagreements <= rate.runs:
            return None
        if rate.disagreements:
            if finding.oracle == ACCURACY.name and not finding.largest and (shown := self.reproduce(case, finding)):
                # An entry does not keep how large what is wrong is, by which it is graded.
                finding = replace(finding, largest=shown.largest)
            counted = None if rate.certain or len(case.calls) > 1 else find_call(case, finding, self)
            if counted is None:
                return Bug(Example(case, finding), Origin(case, finding.symptom), rate)
            origin = Origin(case, finding.symptom)
            return Bug(Example(*counted), origin, stateful=True, single_call=(finding, rate))
        for before in self._prefixes(history):
            calls = tuple(call for earlier in before for call in earlier.calls)
            longer = replace(case, calls=calls + case.calls, split=None)
            reproduced = self.reproduce(longer, finding, clean=True)
            if reproduced:
                # It showed once by now; of what shows by chance the rate says so.
                rate = self.measure_rate(longer, reproduced, stateful=True).at_least_once
                return Bug(Example(longer, reproduced), Origin(case, reproduced.symptom), rate, stateful=True)
        return None

    def measure_rate(self, case: Case, finding: Finding, *, stateful: bool = False) -> Rate:
        """How often it shows itself, first in a clean worker; in fewer runs where each takes long.

        What is `stateful` runs in a clean worker each time.
        """
        times, runs, start = 0, 0, time.monotonic()
        while runs < RATE_RUNS and (runs < 2 or time.monotonic() - start < HANG_SECONDS):
            clean = stateful or runs == 0
            times += self.reproduce(case, finding, clean=clean, stateful=stateful) is not None
            runs += 1
            if finding.symptom == "hung" and times:
                break
        return Rate(times, runs)

    def _prefixes(self, history: Sequence[Case]) -> list[Sequence[Case]]:
        if not history:
            return []
        return [history[:1], history[-1:], history[-REMEMBERED:]]

    def shrink(self, bug: Bug, budget: Budget) -> None:
        """Moves the bug to the least case that still shows it, verified in a clean worker.

        `cut_off` of the bug names the step at which the budget ended, or at which OutOfTime was raised.
        """
        bug.cut_off = SHRINKING
        if bug.finding.oracle == ACCURACY.name and bug.least.verdict.name == "unadjudicated":
            bug.least = replace(bug.least, verdict=Verdict("pending"))
        with self.impatient_for(bug.finding):
            self._drop_earlier_calls(bug)
            if not self._shrink_single_call(bug, budget):
                shrunk = self.run_shrinker(bug, budget)
                if shrunk.case.key != bug.case.key and not self._is_reproducible(shrunk, bug):
                    shrunk = self.run_shrinker(bug, budget, clean=True)
                bug.least = replace(bug.least, case=shrunk.case, finding=shrunk.finding)
            cut_off = "" if budget.left() else SHRINKING
            bug.executions += budget.used
            lost_calls = bug.stateful and len(bug.case.calls) == 1
            bug.stateful = bug.stateful and not lost_calls
            if lost_calls or not bug.rate.certain:
                rate = self.measure_rate(bug.case, bug.finding, stateful=bug.stateful)
                bug.rate = rate.at_least_once if rate.disagreements or bug.rate.certain else bug.rate
        bug.cut_off = cut_off

    def explain(self, bug: Bug) -> None:
        """Certifies a bug, and says in words what is wrong, which takes longest.

        Where OutOfTime is raised, `cut_off` of the bug names the step; what comes after it was not done then.
        """
        self.certify(bug)
        self._do_step(bug, "diagnosis", self.diagnose)

    def certify(self, bug: Bug) -> None:
        """Examines the bug's least case with every oracle, and adjudicates it; OutOfTime as in explain."""
        self._do_step(bug, "examination", self.collect_findings)
        self._do_step(bug, "adjudication", self.adjudicate)

    def _do_step(self, bug: Bug, name: str, step: Callable[[Bug], None]) -> None:
        cut_off = bug.cut_off
        bug.cut_off = cut_off or name
        step(bug)
        bug.cut_off = cut_off

    def collect_findings(self, bug: Bug) -> None:
        """Examines the least case with every oracle: sets the finding as it is filed, and the others that fire."""
        finding = bug.finding
        report = self.examine(bug.case, finding.oracle, clean=True, everything=True)
        finding = next((other for other in report.findings if other.oracle == finding.oracle), finding)
        also = [other for other in report.findings if filing_order(other)[0] > filing_order(finding)[0]]
        if finding.oracle == MUTATION.name and self.target.differentiable:
            # What a write over an input does to gradients shows badly in the least case, where most are 0.
            report = self.examine(bug.origin.case, finding.oracle, everything=True)
            if spoilt := [other for other in report.findings if other.oracle == AUTOGRAD.name]:
                also = [*(other for other in also if other.oracle != AUTOGRAD.name), *spoilt]
        bug.least = replace(bug.least, finding=finding, also=tuple(also))

    def adjudicate(self, bug: Bug) -> None:
        """Sets the bug's verdict. Where the least case is undecided, the unshrunk one may tell, and is kept then,
        also where it has no exact value and is beyond doubt.

        A step of shrinking may lead to where kernel and reference differ by no more than either may.
        """
        if bug.finding.oracle != ACCURACY.name:
            return
        case, verdict = bug.case, self.request_verdict(bug, bug.case)
        if verdict.name == "undecided" and case.key != bug.origin.case.key:
            first = self.request_verdict(bug, bug.origin.case)
            if first.name != "undecided" and first.finding is not None:
                case, verdict = bug.origin.case, first
        bug.least = replace(bug.least, case=case, finding=verdict.finding or bug.finding, verdict=verdict)

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
        tries = Tries(bug, self)
        conditions = describe_conditions(
            bug.case, self.target, tries.agrees, shows=tries.shows, unshrunk=bug.origin.case, prefetch=tries.prefetch
        )
        bug.least = replace(bug.least, diagnosis=(*diagnosis, *conditions))

    def _drop_earlier_calls(self, bug: Bug) -> None:
        """Takes the last call where it alone shows the same: then a case does not need a clean worker each time."""
        if bug.stateful or len(bug.case.calls) < 2:
            return
        alone = replace(bug.case, calls=(bug.case.last,))
        finding = self.reproduce(alone, bug.sought, clean=True)
        if finding:
            bug.least = replace(bug.least, case=alone, finding=finding)

    def _shrink_single_call(self, bug: Bug, budget: Budget) -> bool:
        """Shrinks the call that a bug's case repeats, in a running worker: a new one for each try takes far longer.

        Returns whether it has become smaller. All calls stay equal then: only their number matters.
        """
        if bug.single_call is None:
            return False
        finding, rate = bug.single_call
        shrunk = self.run_shrinker(Bug(Example(bug.origin.case, finding), bug.origin, rate), budget)
        repeated = equal_calls(shrunk.case, len(bug.case.calls))
        found = self.reproduce(repeated, bug.sought, clean=True)
        if found:
            bug.least = replace(bug.least, case=repeated, finding=found)
        return found is not None and shrunk.case.key != bug.origin.case.key

    def run_shrinker(self, bug: Bug, budget: Budget, clean: bool = False) -> Shrinker:
        """The finished shrinker, which began with the bug's case, and kept what the headline of its finding is about.

        Where the bug does not show each time, any of its outputs may stay.
        Clean workers run the cases with `clean`, and where calls may leave something behind: as long as the case has
        several calls, and for the case that is to take its place.
        """
        clean = clean or bug.stateful
        tries, kept = bug.rate.runs_to_try, bug.sought.headline_part if bug.rate.certain else bug.sought
        others = [triggers for triggers in bug.others if not all_hold(triggers, bug.case)]

        def is_other(case: Case) -> bool:
            return any(all_hold(triggers, case) for triggers in others)

        def reproduce(case: Case) -> Finding | None:
            if is_other(case):
                return None
            isolated = clean or max(len(case.calls), len(shrinker.case.calls)) > 1
            runs = (self.reproduce(case, kept, clean=isolated, stateful=bug.stateful) for _ in range(tries))
            return next((finding for finding in runs if finding), None)

        def reproduce_first(cases: Sequence[Case]) -> tuple[int, Finding | None]:
            if len(shrinker.case.calls) > 1:
                return 1, reproduce(cases[0])
            own = [number for number, case in enumerate(cases) if not is_other(case)]
            if not own:
                return len(cases), None
            several = [cases[number] for number in own]
            tried, finding = self.reproduce_first(several, kept) if len(own) > 1 else (1, reproduce(several[0]))
            return (len(cases) if tried == len(own) and finding is None else own[tried - 1] + 1), finding

        are_alone = clean or tries > 1 or kept.symptom == "out-of-memory"
        shrinker = Shrinker(
            self.target, bug.case, bug.finding, reproduce, budget, None if are_alone else reproduce_first,
            seconds_together=min(MOST_TOGETHER_SECONDS, TIMEOUT_SHARE * self.worker.timeout),
            together=MOST_TOGETHER if self.runs_together(kept) else 1, parallel=max(self.helpers.size, 1),
        )  # fmt: skip
        shrinker.run()
        return shrinker

    def _is_reproducible(self, shrunk: Shrinker, bug: Bug) -> bool:
        """Whether a clean worker shows the shrunk case's finding again."""
        return any(
            self.reproduce(shrunk.case, bug.sought, clean=True, stateful=bug.stateful)
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
