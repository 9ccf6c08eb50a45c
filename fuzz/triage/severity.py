"""Grades a bug: looks for its finding in one class of inputs after another, from ordinary to extreme ones.

The first class that shows it gives the severity, and its first plan the typical case. What a target states as a promise
is graded by its inputs as well, and is at least medium.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import compress, islice

from fuzz.model.case import Case
from fuzz.model.dims import resolve
from fuzz.model.finding import Finding, Verdict, filing_order
from fuzz.model.grade import FOR_NOW, INPUT_CLASSES, SEVERITY_OF_CLASS, Grade, TypicalCase
from fuzz.model.oracle_specs import ACCURACY, BOUNDS, FAULT, LAYOUT, find_oracle_spec
from fuzz.model.rate import Rate
from fuzz.shrink.shrinker import Budget
from fuzz.target.spec import Target
from fuzz.triage.bug import SHRINKING, Bug
from fuzz.triage.input_classes import classify, plans
from fuzz.triage.refused_dtypes import describe_refusal, find_refused_dtypes
from fuzz.triage.triage import Triage
from fuzz.worker.deadline import OutOfTime
from fuzz.worker.protocol import MOST_DISAGREEING, Adjudicate, CompareEager, EagerDeviation, ReplicaGroup, Report
from fuzz.worker.worker import WorkerCrash

GRADING = "grading"
"""The step of triage in which a bug gets its severity."""
SEARCH_REPLICAS = {"ordinary": 3, "special": 1, "layout": 3, "extreme": 3}
"""Replicas of each plan in search of one that shows the finding: fewer where plans differ in their values."""
RATE_REPLICAS = 60
"""Replicas of the typical plan of which the rate is counted; with those of the search at most 200 inputs a class."""
GROUP_ELEMENTS = 1 << 17
"""Elements of the replicas that one request runs together."""
FIRST_REPLICAS = 4
"""Replicas of the first request, by which it is known how long one takes."""
REQUEST_SECONDS = 1.0
"""Seconds that a later request is to take: between requests the budget is asked."""
COUNT_SHARE = 0.2
"""The share of the time for grading that counting the rate may take; fewer replicas are counted then."""
MAX_REJECTED = 16
"""Cases of one class in which another bug may show instead, after which the class counts as showing nothing."""
MAX_EXAMPLES = 3
"""Cases of one class that are tried again; where none of them holds, the class counts as showing nothing."""
VERDICT_SECONDS = 15.0
"""Seconds that the exact value of a typical case may take."""
FEW_PLANS = 6
"""Plans of each class of inputs, at most, before a finding of extreme inputs is low for now."""
ENOUGH_CASES = 400
"""Cases of usual inputs that show nothing of a finding, after which what shows in one of 87 has shown with 99 %."""
UNCERTAIN = ("unadjudicated", "pending")
"""Verdicts with which a wrong value is at most of medium severity."""
SMALLEST_NORMAL = 2.0**-126
"""Of float32 and bfloat16: kernels and compilers may flush what is smaller, as float16 is computed in float32."""
SMALLEST_NORMAL_DOUBLE, DOUBLE_WORD = 2.0**-1022, len("0x") + 16
"""The same of float64, and the length of its words in hex."""
OFFSET_LIMIT = 1 << 31
"""Elements beyond which an offset does not fit 32 bits."""
IsOwn = Callable[[Bug, Case, Finding], bool]
"""Whether a finding like a bug's is the bug's own in a case, and not that of another bug."""


def always_own(bug: Bug, case: Case, finding: Finding) -> bool:
    """The answer where no other bugs are known."""
    return True


@dataclass
class Grader:
    """Grades bugs of one target. Raises OutOfTime where the budget ends, and where the worker's deadline passes.

    `plans` are the plans of a class of inputs that are like a case, `replicas` how many of each are tried by class.
    Only cases in which the finding `is_own` are evidence.
    """

    target: Target
    triage: Triage
    budget: Budget
    plans: Callable[[Case, Target, str], Iterator[Case]] = plans
    replicas: Mapping[str, int] = field(default_factory=lambda: SEARCH_REPLICAS)
    rate_replicas: int = RATE_REPLICAS
    is_own: IsOwn = always_own

    def grade(self, bug: Bug) -> Grade:
        """The severity of a bug, with its typical case."""
        with self.triage.impatient_for(bug.finding):
            if is_limit(bug.finding, bug.case, self.target):
                return Grade("low", "extreme", reason="a limit: sizes that need offsets of more than 32 bits")
            if refused := find_refused_dtypes(bug, self.triage):
                return Grade("low", classify(bug.case, self.target), reason=describe_refusal(refused))
            found = next(filter(None, (self._search(bug, name) for name in INPUT_CLASSES)), None)
            input_class, typical = found or (classify(bug.case, self.target), None)
            finding = typical.finding if typical else bug.finding
            eager = self._compare_eager(bug, typical.case if typical else bug.case, finding)
            shared = eager is not None and eager.shares(worse_of(finding, bug.finding))
            tiny = all(is_subnormal(one, self.target) for one in (bug.sought, bug.finding, finding))
            severity, reason = decide_severity(bug, input_class, shared, self.target, tiny=tiny)
            ratio, dtype = (eager.ratio, eager.dtype) if eager else (None, "")
            return Grade(severity, input_class, typical, ratio, dtype, reason)

    def grade_for_now(self, bug: Bug) -> Grade | None:
        """The severity of a wrong value by a bug's own inputs, where these are extreme and of few others none shows it.

        Most of what extreme inputs show nothing else does, and to look for it everywhere takes long.
        """
        if classify(bug.case, self.target) != "extreme" or bug.finding.oracle != ACCURACY.name:
            return None
        for input_class in INPUT_CLASSES[:-1]:
            few = plans(bug.case, self.target, input_class, FEW_PLANS)
            if any(self._find_examples(bug, input_class, few)):
                return None
        return grade_extreme(bug, self.target, f"{FOR_NOW}few other inputs were tried")

    def _search(self, bug: Bug, input_class: str) -> tuple[str, TypicalCase] | None:
        """The class with the first case that shows the bug, if any does."""
        drawn = self.plans(bug.case, self.target, input_class)
        for plan, case, finding in islice(self._find_examples(bug, input_class, drawn), MAX_EXAMPLES):
            if self._is_certain(bug, case):
                rate = self._count(bug, plan, 1 if bug.finding.oracle == FAULT.name else self.rate_replicas)
                return input_class, TypicalCase(case, finding, rate)
        return None

    def _find_examples(self, bug: Bug, input_class: str, drawn: Iterator[Case]) -> Iterator[tuple[Case, Case, Finding]]:
        """(plan, its replica, finding) of the cases of a class that show the bug, in the order of the plans drawn."""
        replicas, rejected = 1 if bug.finding.oracle == FAULT.name else self.replicas[input_class], 0
        for plan, reports in self._examine_plans(drawn, range(replicas), bug.finding.oracle):
            for number, report in enumerate(reports):
                if (finding := find_alike(report, bug)) is None:
                    continue
                if self.is_own(bug, plan.replica(number), finding):
                    yield plan, plan.replica(number), finding
                elif (rejected := rejected + 1) == MAX_REJECTED:
                    return

    def _is_certain(self, bug: Bug, case: Case) -> bool:
        """Whether a clean worker shows it again, and the exact value does not say that nobody is wrong there."""
        if not self.triage.reproduce(case, bug.sought, clean=True, stateful=bug.stateful):
            return False
        if bug.finding.oracle != ACCURACY.name or bug.least.verdict.name not in ("kernel", "reference"):
            return True
        answer = self.triage.worker.call(Adjudicate(case, VERDICT_SECONDS))
        return isinstance(answer, Verdict) and answer.name in (bug.least.verdict.name, "unadjudicated")

    def _count(self, bug: Bug, plan: Case, count: int) -> Rate:
        """In how many of a plan's replicas the bug shows, of as many as there is time for; all of them are examined."""
        counting, shown, runs = Budget(seconds=COUNT_SHARE * self.budget.seconds), 0, 0
        for report in self._examine(plan, range(count), bug.finding.oracle, together=MOST_DISAGREEING):
            finding = find_alike(report, bug)
            shown += finding is not None and self.is_own(bug, plan.replica(runs), finding)
            runs += 1
            if not counting.left():
                break
        return Rate(shown, max(runs, 1))

    def _examine_plans(
        self, drawn: Iterator[Case], numbers: range, oracle: str
    ) -> Iterator[tuple[Case, Iterator[Report]]]:
        """Each plan with the reports on some of its replicas: of several plans at a time where there are helpers."""
        helpers, timeout = self.triage.helpers, self.triage.worker.timeout
        if not helpers.size:
            yield from ((plan, self._examine(plan, numbers, oracle)) for plan in drawn)
            return
        while some := list(islice(drawn, helpers.size)):
            self._check_time()
            small = [len(numbers) * plan.elements() <= GROUP_ELEMENTS for plan in some]
            requests = [self._request(plan, numbers, oracle) for plan in compress(some, small)]
            answers = helpers.call(requests, timeout)
            for plan, is_small in zip(some, small, strict=True):
                reports = self._reports(next(answers), plan, numbers, oracle) if is_small else None
                yield plan, reports or self._examine(plan, numbers, oracle)

    def _examine(self, plan: Case, numbers: range, oracle: str, together: int = RATE_REPLICAS) -> Iterator[Report]:
        """The reports on replicas of a plan, as many `together` at most as one request may run and has time for."""
        left, most = numbers, min(together, most_together(plan))
        size = min(FIRST_REPLICAS, most)
        while left:
            self._check_time()
            some, left = left[:size], left[size:]
            start = time.monotonic()
            answer = self.triage.worker.call(self._request(plan, some, oracle))
            yield from self._reports(answer, plan, some, oracle)
            fitting = REQUEST_SECONDS * len(some) / max(time.monotonic() - start, 1e-9)
            size = int(min(max(fitting, 1), most))

    def _check_time(self) -> None:
        """Raises OutOfTime where the budget has ended."""
        if not self.budget.left():
            raise OutOfTime

    def _request(self, plan: Case, numbers: range, oracle: str) -> ReplicaGroup:
        """The request to run replicas of a plan together."""
        return ReplicaGroup(plan.replica(numbers[0]), (self.triage.sampled_of(oracle),) * len(numbers))

    def _reports(
        self, answer: tuple[Report, ...] | WorkerCrash, plan: Case, numbers: range, oracle: str
    ) -> Iterator[Report]:
        """The reports of such a request's answer; where the process ended, those of the replicas one by one."""
        if not isinstance(answer, WorkerCrash):
            yield from answer
        elif len(numbers) == 1:
            yield self.triage.report_of(answer, plan.replica(numbers[0]))
        else:
            yield from (self.triage.examine(plan.replica(number), oracle) for number in numbers)

    def _compare_eager(self, bug: Bug, case: Case, finding: Finding) -> EagerDeviation | None:
        """The error of eager PyTorch in a case, where a wrong value of the kernel is the finding."""
        if finding.oracle != ACCURACY.name or bug.least.verdict.name == "reference":
            return None
        answer = self.triage.worker.call(CompareEager(case, finding.call, finding.outputs))
        return answer if isinstance(answer, EagerDeviation) else None


def most_together(plan: Case) -> int:
    """How many replicas of a plan one request may run."""
    return max(1, GROUP_ELEMENTS // max(plan.elements(), 1))


def find_alike(report: Report, bug: Bug) -> Finding | None:
    """The finding of a report that may be the bug, and shows the class of its symptom."""
    return next((finding for finding in report.findings if is_alike(finding, bug)), None)


def is_alike(finding: Finding, bug: Bug) -> bool:
    """Whether a finding may be a bug: classes of symptoms are kept apart, but for what earlier calls leave behind."""
    return finding.shows_symptom_of(bug.sought) or bug.stateful and finding.oracle == bug.finding.oracle


def is_limit(finding: Finding, case: Case, target: Target) -> bool:
    """Whether it is an offset of more than 32 bits where no size that the target declares needs one.

    A device that checks no access has no word for it: the launch fails where the least case still has a huge stride.
    """
    overflows = finding.oracle == BOUNDS.name and finding.symptom == "offset-overflow"
    fails = finding.oracle == FAULT.name and case.has_huge_stride()
    return (overflows or fails) and not promises_large(target)


def promises_large(target: Target) -> bool:
    """Whether a target promises tensors of 2^31 elements and more, or declares such sizes."""
    largest = {dim.name: dim.clamp(dim.high) for dim in target.sizes}
    declared = (math.prod(resolve(value.shape, largest)) for value in target.tensors.values())
    return target.large or max(declared, default=0) >= OFFSET_LIMIT


def is_subnormal(finding: Finding, target: Target) -> bool:
    """Whether all that is wrong is, and should be, below the smallest normal number of float32: of float64 where a
    target accumulates in that and an output is not known to be narrower.
    """
    narrow = {element.output for element in finding.elements if len(element.got_word) < DOUBLE_WORD}

    def limit(output: str) -> float:
        return SMALLEST_NORMAL_DOUBLE if target.accumulate == "float64" and output not in narrow else SMALLEST_NORMAL

    return bool(finding.largest) and all(number < limit(output) for output, number in finding.largest)


def decide_severity(bug: Bug, input_class: str, shared: bool, target: Target, *, tiny: bool = False) -> tuple[str, str]:
    """(severity, why it is not that of the input class, if so).

    `shared` says that eager PyTorch errs as much, `tiny` that only subnormal results are wrong, whatever the inputs.
    """
    severity, finding = SEVERITY_OF_CLASS[input_class], bug.finding
    if bug.blames_reference:
        return "low", "the reference is wrong, and the kernel right"
    if states_promise(finding, target):
        return ("medium", "at least medium, by what it breaks") if severity == "low" else (severity, "")
    if shared:
        return "low", "eager PyTorch is wrong in the same way"
    if tiny and bug.finding.symptom != "nonfinite":
        return "low", "only results below the smallest normal number are wrong"
    if severity == "high" and finding.oracle == ACCURACY.name and bug.least.verdict.name in UNCERTAIN:
        return "medium", "no exact value certifies it"
    return severity, ""


def worse_of(finding: Finding, other: Finding) -> Finding:
    """A finding with the worse one of two findings' symptoms."""
    return replace(finding, symptom=min(finding, other, key=filing_order).symptom)


def states_promise(finding: Finding, target: Target) -> bool:
    """Whether a finding breaks what a target states, or harms memory, so that it is never low."""
    if finding.oracle == ACCURACY.name:
        return target.contract.kind != "envelope" or target.exact is not None
    if finding.oracle == LAYOUT.name:
        return target.layout == "bitwise"
    return find_oracle_spec(finding.oracle).is_promise


def grade_by_run(bug: Bug, target: Target, usual_cases: int) -> Grade | None:
    """The severity for now of a wrong value that its run had no time to grade, by what the run has shown of it.

    None unless every case that showed it is extreme, its least one as well, and ENOUGH_CASES that are not were examined
    beside them. Where the reference is wrong inputs do not matter.
    """
    if bug.grade is not None or bug.finding.oracle != ACCURACY.name:
        return None
    input_class = classify(bug.case, target)
    if bug.blames_reference:
        severity, reason = decide_severity(bug, input_class, False, target)
        return Grade(severity, input_class, reason=reason)
    if bug.shown_by_usual or usual_cases < ENOUGH_CASES or input_class != "extreme":
        return None
    return grade_extreme(bug, target, f"{FOR_NOW}none of {usual_cases:,} other inputs of the run showed it")


def grade_extreme(bug: Bug, target: Target, why: str) -> Grade:
    """The grade of a bug that extreme inputs alone show, without a typical case; `why` ends its reason."""
    severity, reason = decide_severity(bug, "extreme", False, target, tiny=is_subnormal(bug.finding, target))
    return Grade(severity, "extreme", reason="; ".join(filter(None, (reason, why))))


def grade_bug(bug: Bug, triage: Triage, budget: Budget, is_own: IsOwn = always_own) -> None:
    """Grades a bug of which nothing but shrinking is cut off, which `cut_off` goes on to name.

    Where OutOfTime is raised, it names this step in place of none, and the bug may have a grade for now, in doubt.
    """
    if bug.cut_off in ("", SHRINKING, GRADING):
        cut_off = bug.cut_off if bug.cut_off == SHRINKING else ""
        bug.cut_off, bug.grade_in_doubt = cut_off or GRADING, True
        grader = Grader(triage.target, triage, budget, is_own=is_own)
        if bug.grade is None:
            bug.grade = grader.grade_for_now(bug)
        bug.grade = grader.grade(bug)
        bug.cut_off, bug.grade_in_doubt = cut_off, False
