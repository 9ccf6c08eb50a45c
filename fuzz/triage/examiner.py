"""Runs cases in a worker, and says whether they show a finding: what all steps of triage ask for."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self

from fuzz.errors import ReferenceFailedError
from fuzz.model.case import Case, ListedPlan
from fuzz.model.finding import REFERENCE, Finding, Subject
from fuzz.model.layout import CONTIGUOUS
from fuzz.model.oracle_specs import ACCURACY, FAULT, LAYOUT, find_oracle_spec
from fuzz.model.rate import Rate
from fuzz.shrink.passes import usual_inputs
from fuzz.shrink.shrinker import are_variants
from fuzz.target.spec import Target
from fuzz.worker.pool import WorkerTeam
from fuzz.worker.protocol import Examine, ReplicaGroup, Report
from fuzz.worker.retry_backoff import RetryBackoff
from fuzz.worker.worker import Worker, WorkerCrash, report_of_crash

HANG_SECONDS = 5.0
"""Seconds that a kernel known to hang is waited for while its case shrinks."""


@dataclass
class Examiner:
    """Runs cases of one target in a worker that keeps running, or in a clean one, which is a new process.

    `sampled` names the oracles that run on request. A case that could not run, which shows nothing of the kernel, is
    run again as `backoff` says. `together` is whether the worker runs cases that differ in their values alone together;
    `helpers` run cases that do not depend on each other in parallel.
    """

    target: Target
    worker: Worker
    sampled: tuple[str, ...]
    spare: Worker | None = None
    backoff: RetryBackoff = field(default_factory=RetryBackoff)
    together: bool = True
    helpers: WorkerTeam = field(default_factory=WorkerTeam)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.worker.stop()
        if self.spare is not None:
            self.spare.stop()
        self.helpers.stop()

    def examine(self, case: Case, oracle: str, *, clean: bool = False, everything: bool = False) -> Report:
        """The report on a case from the running worker, or from a clean one."""
        sampled = self.sampled if everything else self.sampled_of(oracle)
        for tries in itertools.count(1):
            if clean:
                self._replace_worker()
            report = self.report_of(self.worker.call(Examine(case, sampled, everything)), case)
            if not (report.not_run and self.backoff.wait(report.lack, tries, self.worker.deadline)):
                break
        return report

    def examine_in_parallel(self, cases: Sequence[Case], oracle: str) -> Iterator[Report]:
        """The reports on cases from running workers, in their order; by the helpers, where there are any.

        What one of them lacked is examined again by the worker.
        """
        if not self.helpers.size:
            yield from (self.examine(case, oracle) for case in cases)
            return
        for case, answer in zip(cases, self.ask_helpers(cases, oracle), strict=True):
            report = self.report_of(answer, case)
            yield self.examine(case, oracle) if report.not_run else report

    def ask_helpers(self, cases: Sequence[Case], oracle: str) -> Iterator[Report | WorkerCrash]:
        """What the helpers answer that are to examine cases, in their order."""
        requests = [Examine(case, self.sampled_of(oracle)) for case in cases]
        return self.helpers.call(requests, self.worker.timeout)

    def sampled_of(self, oracle: str) -> tuple[str, ...]:
        """The oracle where it runs on request, else none."""
        return tuple({oracle} & set(self.sampled))

    def report_of(self, answer: Report | WorkerCrash, case: Case) -> Report:
        """The report on a case that a worker was to examine; where its reference fails, that no oracle has.

        Steps of triage reach sizes that the declaration allows and the reference refuses. They say nothing of the bug.
        """
        if not isinstance(answer, WorkerCrash):
            return answer
        try:
            return report_of_crash(answer, case, self.worker)
        except ReferenceFailedError as error:
            return Report(str(error), False, (), ())

    def _replace_worker(self) -> None:
        """Takes a new process as the worker, and starts the next one while this one works."""
        used, self.worker = self.worker, self.spare or self.worker
        used.stop()
        self.worker.timeout = used.timeout
        self.spare = used.clone()
        self.spare.start()

    def reproduce(self, case: Case, like: Finding, *, clean: bool = False, stateful: bool = False) -> Finding | None:
        """The finding of the same oracle, if the case shows it with the class of symptom in one of the same outputs.

        What a kernel leaves behind from an earlier call may show in any output, as any symptom.
        """
        report = self.examine(case, like.oracle, clean=clean)
        return report.finding_of(like.oracle) if stateful else report.shown(like)

    def reproduce_first(self, cases: Sequence[Case], like: Finding) -> tuple[int, Finding | None]:
        """How many of some cases ran, in their order, up to the first that shows a finding as `reproduce` says, and
        that finding. The cases are of one call each.

        Those that differ in their values alone run together. Of these, those after the first ones are left to the
        caller where they could not: one has ended the process, or lacked something.
        """
        if not (self.runs_together(like) and all(are_variants(cases[0], case) for case in cases)):
            reports = zip(itertools.count(1), self.examine_in_parallel(cases, like.oracle))
            found = ((number, shown) for number, report in reports if (shown := report.shown(like)))
            return next(found, (len(cases), None))
        plan, sampled = ListedPlan.of(cases), self.sampled_of(like.oracle)
        answer = self.worker.call(ReplicaGroup(plan, (sampled,) * len(cases), sought=like))
        ran = [] if isinstance(answer, WorkerCrash) else list(itertools.takewhile(lambda one: not one.not_run, answer))
        for number, report in enumerate(ran, 1):
            if shown := report.shown(like):
                return number, shown
        return (len(ran), None) if ran else (1, self.reproduce(cases[0], like))

    def runs_together(self, like: Finding) -> bool:
        """Whether cases that differ in their values alone run together in search of a finding."""
        return self.together and like.oracle == ACCURACY.name and like.symptom != REFERENCE

    def shows_with_usual_inputs(self, case: Case, finding: Finding) -> bool:
        """Whether a case shows a finding with usual values and plain layouts, where it is of values."""
        return finding.oracle != ACCURACY.name or self.reproduce(usual_inputs(case), finding) is not None

    def shown_subjects(
        self, case: Case, finding: Finding, rate: Rate, clean: bool = False
    ) -> frozenset[Subject] | None:
        """What of a finding's subjects another case shows; None where its oracle does not examine that case, or what it
        compares has none of the finding's outputs there: which ones there are may depend on an option.

        A case without strides has no other layout that the layout oracle could compare it with, and agrees.
        """
        if has_one_layout(case, finding):
            return frozenset()
        with self.impatient_for(finding):
            tries = range(rate.runs_to_try)
            reports = [self.examine(case, finding.oracle, clean=clean and number == 0) for number in tries]
        return subjects_in(reports, finding)

    @contextmanager
    def impatient_for(self, finding: Finding) -> Iterator[None]:
        """Inside, what is known to hang is waited for no longer than that takes to see."""
        timeout = self.worker.timeout
        if finding.symptom == "hung":
            self.worker.timeout = min(timeout, HANG_SECONDS)
        try:
            yield
        finally:
            self.worker.timeout = timeout


def subjects_in(reports: Sequence[Report], finding: Finding) -> frozenset[Subject] | None:
    """What the reports on one case show of a finding's subjects; None as Examiner.shown_subjects says."""
    if not all(examines(report, finding.oracle) and has_outputs(report, finding) for report in reports):
        return None
    similar = (one for report in reports for one in report.findings if one.shows_symptom_of(finding))
    return frozenset[Subject]().union(*(one.subjects & finding.subjects or finding.subjects for one in similar))


def examines(report: Report, oracle: str) -> bool:
    """Whether an oracle examined the case of a report; every case that returns has no fault."""
    return oracle in report.examined or oracle == FAULT.name and report.outcome == "returned"


def has_outputs(report: Report, finding: Finding) -> bool:
    """Whether a case has one of a finding's outputs, where these are what its oracle compares and any is known."""
    compares = finding.oracle == ACCURACY.name or find_oracle_spec(finding.oracle).compares_runs
    names = {name for name, _ in report.output_sizes}
    return not (compares and names) or not names.isdisjoint(finding.outputs)


def has_one_layout(case: Case, finding: Finding) -> bool:
    """Whether a finding is of the layout oracle, and every tensor of a case contiguous."""
    return finding.oracle == LAYOUT.name and all(
        value.layout == CONTIGUOUS for call in case.calls for value in call.tensors.values()
    )
