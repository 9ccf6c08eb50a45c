"""Examine: run one case in a worker and ask the oracles about it. The module that workers preload."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import torch

from fuzz.backends import backend as named_backend
from fuzz.backends.base import Backend
from fuzz.backends.execute import FatalError, run
from fuzz.errors import UsageError, one_line
from fuzz.model.case import Call, Case
from fuzz.model.finding import Finding, Verdict, finding_order
from fuzz.model.outcome import Returned
from fuzz.oracles import ALWAYS, SAMPLED
from fuzz.oracles.accuracy import Accuracy
from fuzz.oracles.adjudicate import adjudicate
from fuzz.oracles.base import Oracle
from fuzz.oracles.comparison.screening import screen
from fuzz.oracles.diagnosis import diagnose, make_context
from fuzz.oracles.examination import Examination
from fuzz.oracles.invariance import Invariance, split_call
from fuzz.oracles.layout import Layout, plain
from fuzz.oracles.probe import check_precision
from fuzz.oracles.rejects import Rejects
from fuzz.oracles.replicas import ReplicaRunner, Rerunning, Unattributed
from fuzz.target.loader import load, load_planted
from fuzz.target.spec import Launcher, Target
from fuzz.worker.process import LastResponse
from fuzz.worker.protocol import Adjudicate, Diagnose, Examine, ReplicaGroup, Report, WorkerConfig, report_outcome

Answer = Report | tuple[Report, ...] | Verdict | tuple[str, ...] | LastResponse
Request = Examine | ReplicaGroup | Adjudicate | Diagnose
Exam = Callable[[Examine], Examination]
POLITE = 5
"""How much a process that compiles for later yields to others."""


def set_up_process(config: WorkerConfig) -> tuple[Target, Launcher, Backend]:
    """What a process needs that only runs cases of one config: its target, launcher and backend."""
    target, launcher = loaded(config)
    backend = named_backend(config.backend)
    backend.prepare(config.counters)
    return target, launcher, backend


def loaded(config: WorkerConfig) -> tuple[Target, Launcher]:
    torch.set_num_threads(1)
    target = load(config.target)
    return target, load_planted(target, config.planted)[1] if config.planted else target.launcher


def make_handler(config: WorkerConfig) -> Callable[[Request], Answer]:
    """The worker's handler, request -> report, group -> reports, appeal -> verdict, request -> words."""
    target, launcher, backend = set_up_process(config)
    if not config.planted:
        check_precision(target)

    def exam(request: Examine | Adjudicate) -> Examination:
        outcome = run(target, launcher, request.case.calls, backend)
        return Examination(target, launcher, request.case, backend, outcome)

    def handle(request: Request) -> Answer:
        try:
            if isinstance(request, ReplicaGroup):
                return examine_group(exam, ReplicaRunner(target, launcher, backend), request)
            if isinstance(request, Diagnose):
                return described(exam, request)
            return judged(exam(request), request)
        except FatalError as fatal:
            return LastResponse(report_outcome(fatal.outcome))
        except Unattributed:
            # Without an answer the pool asks about each replica alone.
            os._exit(1)
        except Exception as error:
            if not isinstance(error, torch.OutOfMemoryError | MemoryError) and not backend.external_oom_reason(error):
                raise
            answer = unexamined(request, f"no memory to examine it: {one_line(error)}")
            return LastResponse(answer) if backend.is_fatal(error) else answer

    return handle


def unexamined(request: Request, why: str) -> Answer:
    """The answer where memory ended in the oracles, not in the kernel: nothing is known of the case."""
    report = Report(why, True, (), ())
    if isinstance(request, ReplicaGroup):
        return tuple(report for _ in request.sampled)
    if isinstance(request, Examine):
        return report
    return Verdict("unadjudicated", why) if isinstance(request, Adjudicate) else ()


def make_warm_up_handler(config: WorkerConfig) -> Callable[[Case], bool | LastResponse]:
    """The scout's handler: runs a case for what it leaves in Triton's cache, and answers whether it returned.

    What is wrong with a case is told by the worker that examines it.
    """
    target, launcher, backend = set_up_process(config)

    def handle(case: Case) -> bool | LastResponse:
        try:
            return isinstance(run(target, launcher, case.calls, backend), Returned)
        except UsageError:
            return False
        except FatalError:
            return LastResponse(False)

    return handle


def make_compile_handler(config: WorkerConfig) -> Callable[[Case], bool]:
    """The scout's handler where kernels run on a GPU: compiles what a case and its oracles launch, without the GPU.

    It answers whether everything was compiled; what fails, fails again in the worker, which says how.
    """
    from fuzz.backends.cuda.compile_only import CompileOnlyBackend

    os.nice(POLITE)
    target, launcher = loaded(config)
    backend = CompileOnlyBackend()
    try:
        backend.prepare()
    except (OSError, RuntimeError):
        return lambda case: False

    def handle(case: Case) -> bool:
        try:
            outcomes = [run(target, launcher, [call], backend) for call in launched(target, case)]
        except Exception:
            return False
        return all(isinstance(outcome, Returned) for outcome in outcomes)

    return handle


def launched(target: Target, case: Case) -> list[Call]:
    """The calls of a case, and those that its oracles make that may ask for other specialisations."""
    calls = list(case.calls)
    if Layout().applies(target, case):
        calls.append(plain(case.last)[0])
    if Invariance().applies(target, case) and (second := split_call(target, case)):
        calls.append(second)
    return calls


def judged(exam: Examination, request: Examine | Adjudicate) -> Report | Verdict:
    """The report on a case, or the verdict on its accuracy finding."""
    if isinstance(request, Examine):
        return examine(exam, request)
    found = Accuracy().examine(exam) if isinstance(exam.outcome, Returned) else None
    if found is None:
        return Verdict("unadjudicated", "it did not disagree again")
    return adjudicate(exam, found, request.seconds)


def described(exam: Exam, request: Diagnose) -> tuple[str, ...]:
    """The diagnosis of the outputs of a case, which those of the least one do not contradict."""
    cases = {case.key: case for case in (request.case, request.least)}
    exams = [exam(Examine(case)) for case in cases.values()]
    if not all(isinstance(one.outcome, Returned) for one in exams):
        return ()
    pictures = [make_context(one) for one in exams]
    return diagnose(pictures[0], pictures[-1])


def examine_group(exam: Exam, replicas: ReplicaRunner, group: ReplicaGroup) -> Answer:
    """Runs all replicas, screens them at once, then asks the oracles; up to a replica that ends the process."""
    count = len(group.sampled)
    exams: list[Examination] = []
    reports: list[Report] = []
    last: tuple[Report, ...] = ()
    try:
        exams += replicas.run(group.plan, count)
        if any(one.stack for one in exams):
            return examine_together(exam, replicas, exams, group)
        for number in range(len(exams), count):
            exams.append(exam(group.request(number)))
    except FatalError as fatal:
        last = (report_outcome(fatal.outcome),)
    if exams and not last:
        screen(exams)
    try:
        for number, made in enumerate(exams):
            reports.append(examine(made, group.request(number)))
    except FatalError as fatal:
        last = (report_outcome(fatal.outcome),)
    return LastResponse((*reports, *last)) if last else tuple(reports)


def examine_together(
    exam: Exam, replicas: ReplicaRunner, exams: Sequence[Examination], group: ReplicaGroup
) -> tuple[Report, ...]:
    """Reports on replicas that ran together. What they only seem to do, they have to do in a run of their own."""
    together = [one for one in exams if one.stack]
    screen(together)
    target = together[0].target
    accuracy = Accuracy().applies(target, group.plan)
    suspects = {one.row for one in together if accuracy and not one.cleared}
    applying = [oracle for oracle in SAMPLED if oracle.applies(target, group.plan)]
    for oracle in applying:
        asked = [one for one in together if one.row not in suspects and oracle.name in group.sampled[one.row]]
        for one, finding in zip(asked, answers_of(oracle, replicas, asked), strict=True):
            if finding:
                suspects.add(one.row)
    always = ("fault", *(oracle.name for oracle in ALWAYS if oracle.applies(target, group.plan)))
    sampled = set(group.sampled)
    examined = {asked: (*always, *(oracle.name for oracle in applying if oracle.name in asked)) for asked in sampled}
    silent = {asked: Report("returned", False, (), names) for asked, names in examined.items()}
    fine = (one for one in together if one.row not in suspects)
    nearest = max(fine, key=lambda one: one.worst, default=None)

    def report(row: int, one: Examination) -> Report:
        if one.stack is None:
            return examine(one, group.request(row))
        if row in suspects:
            request = group.request(row)
            return examine(exam(request), request)
        asked = group.sampled[row]
        # What all of them did is told of the first, and of their errors the one that is nearest to its bound.
        if row == 0 or one is nearest:
            told = ((), ()) if row else one.backend.collect_feedback(one.returned)
            return Report("returned", False, (), examined[asked], one.worst if one is nearest else 0.0, *told)
        return silent[asked]

    return tuple(report(row, one) for row, one in enumerate(exams))


def answers_of(oracle: Oracle, replicas: ReplicaRunner, asked: Sequence[Examination]) -> list[Finding | None]:
    """What an oracle finds in each of some replicas that ran together."""
    if isinstance(oracle, Rerunning):
        return replicas.ask(oracle, asked)
    return oracle.examine_replicas(asked) if isinstance(oracle, Rejects) else [oracle.examine(one) for one in asked]


def examine(exam: Examination, request: Examine) -> Report:
    """Asks the oracles. Raises TargetError where the target contradicts itself."""
    if not isinstance(exam.outcome, Returned):
        return report_outcome(exam.outcome)
    findings: list[Finding] = []
    examined: list[str] = ["fault"]
    asked = [*ALWAYS, *(oracle for oracle in SAMPLED if oracle.name in request.sampled)]
    for oracle in asked:
        if not oracle.applies(exam.target, exam.case):
            continue
        examined.append(oracle.name)
        found = oracle.examine(exam)
        if found:
            findings.append(found)
            if not request.everything and oracle.name not in ("bounds", "mutation"):
                break
    findings.sort(key=finding_order)
    return Report(
        "returned", False, tuple(findings), tuple(examined), exam.worst, *exam.backend.collect_feedback(exam.outcome)
    )
