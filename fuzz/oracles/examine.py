"""Runs cases in a worker process and examines them by the oracles. Workers preload this module."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from operator import attrgetter
from pathlib import Path

import torch

from fuzz.backends import BACKENDS
from fuzz.backends import backend as named_backend
from fuzz.backends.base import Backend
from fuzz.backends.execute import FatalError, run
from fuzz.backends.imports import quick_imports
from fuzz.backends.shortage import describe_lack
from fuzz.backends.triton_host.compile_times import count_compile_times
from fuzz.errors import UsageError
from fuzz.model.case import Call, Case
from fuzz.model.finding import Finding, Verdict, filing_order
from fuzz.model.outcome import CompileError, NotRun, Raised, Returned
from fuzz.oracles import ALWAYS, SAMPLED, find_oracle
from fuzz.oracles.accuracy import AccuracyOracle
from fuzz.oracles.base import Oracle, RerunOracle, check_reruns
from fuzz.oracles.comparison.adjudicate import adjudicate
from fuzz.oracles.comparison.eager import compare_eager, evaluate_alone
from fuzz.oracles.comparison.screening import screen
from fuzz.oracles.execution.case_runner import CaseRunner, Unattributed
from fuzz.oracles.execution.examination import Examination
from fuzz.oracles.execution.invalid_input import find_harm
from fuzz.oracles.execution.probe import check_cotangents_of, check_reference, noting_reference
from fuzz.oracles.invariance import InvarianceOracle, split_call
from fuzz.oracles.layout import LayoutOracle, make_contiguous
from fuzz.target.loader import load, load_module, load_planted
from fuzz.target.spec import Launcher, Target
from fuzz.worker.activity import FILE, REFERENCE
from fuzz.worker.channel import LastResponse
from fuzz.worker.child.serve import running
from fuzz.worker.profile import measured
from fuzz.worker.protocol import (
    MOST_DISAGREEING,
    Adjudicate,
    CompareEager,
    Diagnose,
    EagerDeviation,
    EvaluateReference,
    Examine,
    Harm,
    Precompile,
    ReplicaGroup,
    Report,
    TryInvalidInput,
    WorkerConfig,
    report_of_outcome,
)
from fuzz.worker.system import ONE_THREAD, POLITE, keep_freed_memory

GroupAnswer = tuple[Report, ...] | LastResponse
Answer = Report | GroupAnswer | Verdict | tuple[str, ...] | EagerDeviation | Harm | None
UNEXAMINED = Report("returned", False, (), ())
"""The report of a replica that no oracle examined."""
Request = Examine | ReplicaGroup | Adjudicate | Diagnose | CompareEager | EvaluateReference | TryInvalidInput


def set_up_process(config: WorkerConfig) -> tuple[Target, Launcher, Backend]:
    """What a process needs that only runs cases of one config: its target, launcher and backend."""
    target, launcher = load_launcher(config)
    backend = named_backend(config.backend)
    count_compile_times()
    backend.prepare(config.counters)
    return target, launcher, backend


def load_launcher(config: WorkerConfig) -> tuple[Target, Launcher]:
    torch.set_num_threads(1)
    os.environ.update({**ONE_THREAD, **BACKENDS[config.backend].load_environment})
    keep_freed_memory()
    with quick_imports():
        with running(FILE):
            target = load(config.target)
        for module in target.imports:
            # What is wrong with it the launcher tells.
            with suppress(Exception):
                import_module(module)
    return target, load_planted(target, config.planted)[1] if config.planted else target.launcher


def make_loading_handler(file: Path) -> Callable[[object], None]:
    """Makes a handler that does nothing: its process tells whether the file of a target can be loaded."""
    torch.set_num_threads(1)
    with running(FILE), quick_imports():
        load_module(file)
    return lambda request: None


def make_handler(config: WorkerConfig) -> Callable[[Request], Answer]:
    """Makes the handler of a worker: a request of worker/protocol.py -> its response."""
    target, launcher, backend = set_up_process(config)
    if not config.planted:
        with running(REFERENCE):
            check_reference(target)
    runner = CaseRunner(noting_reference(target), launcher, backend)

    @measured("oracles")
    def handle(request: Request) -> Answer:
        answer = answer_or_lack(request)
        if not isinstance(answer, LastResponse):
            # Here no traceback holds tensors any more, and who lacks memory is about to wait for it.
            backend.release_memory()
        return answer

    def answer_or_lack(request: Request) -> Answer:
        try:
            return answer_to(request)
        except FatalError as fatal:
            return LastResponse(report_of_outcome(fatal.outcome))
        except Unattributed:
            # Without an answer the pool asks about each replica alone.
            os._exit(1)
        except Exception as error:
            lack = describe_lack(error, backend, "examine it")
            if not lack:
                if backend.is_fatal(error):
                    # A kernel has left a device on which nothing can be computed any more, whoever notices it.
                    os._exit(1)
                raise
            answer = unexamined(request, lack)
            return LastResponse(answer) if backend.is_fatal(error) else answer

    def answer_to(request: Request) -> Answer:
        if isinstance(request, ReplicaGroup):
            return examine_group(runner, request)
        if isinstance(request, Diagnose):
            return diagnose_case(runner, request)
        if isinstance(request, TryInvalidInput):
            return find_harm(runner, request.case)
        if isinstance(request, EvaluateReference):
            evaluate_alone(runner.not_run(request.case))
            return None
        if isinstance(request, CompareEager):
            return compare_eager(runner.run(request.case), request)
        return examine_or_adjudicate(runner.run_again(request.case), request)

    return handle


def unexamined(request: Request, why: str) -> Answer:
    """The response where memory ran out in the oracles, not in the kernel: nothing is known of the case."""
    report = report_of_outcome(NotRun(why))
    if isinstance(request, ReplicaGroup):
        return tuple(report for _ in request.sampled)
    if isinstance(request, Examine):
        return report
    if isinstance(request, CompareEager | EvaluateReference | TryInvalidInput):
        return None
    return Verdict("unadjudicated", why) if isinstance(request, Adjudicate) else ()


def make_warm_up_handler(config: WorkerConfig) -> Callable[[Precompile], str | LastResponse]:
    """Makes the precompiler's handler: it runs a case to fill Triton's cache, and responds with nothing.

    What is wrong with a case is reported by the worker that examines it.
    """
    target, launcher, backend = set_up_process(config)

    def handle(request: Precompile) -> str | LastResponse:
        try:
            with suppress(UsageError):
                run(target, launcher, request.plan.calls, backend)
        except FatalError:
            return LastResponse("")
        return ""

    return handle


def make_compile_handler(config: WorkerConfig) -> Callable[[Precompile], str]:
    """Makes the precompiler's handler that compiles what a case and its oracles launch, without the device. What else
    fails than a compilation fails again in the worker, which reports it."""
    os.nice(POLITE)
    target, launcher = load_launcher(config)
    backend = BACKENDS[config.backend].compile_only()
    try:
        backend.prepare()
    except (OSError, RuntimeError):
        return lambda request: ""

    def compile_calls(calls: Sequence[Call]) -> str:
        outcome = run(target, launcher, calls, backend)
        # An assembler may have been killed.
        return outcome.message if isinstance(outcome, CompileError) and "PTXASError" not in outcome.message else ""

    def handle(request: Precompile) -> str:
        with suppress(Exception):
            with backend.front_end_only():
                why = compile_calls(request.plan.calls) if request.check_first else ""
            if why := why or compile_calls(request.plan.calls):
                return why
            for call in calls_of_oracles(target, request.plan):
                compile_calls([call])
        return ""

    return handle


def calls_of_oracles(target: Target, case: Case) -> list[Call]:
    """The calls that a case's oracles make that may need other specialisations than its own."""
    calls = []
    if LayoutOracle().applies(target, case):
        calls.append(make_contiguous(case.last))
    if InvarianceOracle().applies(target, case) and (other := split_call(target, case)):
        calls.append(other)
    return calls


def examine_or_adjudicate(exam: Examination, request: Examine | Adjudicate) -> Report | Verdict:
    """The report on a case, or the verdict on its accuracy finding."""
    if isinstance(request, Examine):
        return examine(exam, request)
    finding = AccuracyOracle().check_case(exam) if isinstance(exam.outcome, Returned) else None
    if finding is None:
        return Verdict("unadjudicated", "it did not disagree again")
    return adjudicate(exam, finding, request.seconds)


def diagnose_case(runner: CaseRunner, request: Diagnose) -> tuple[str, ...]:
    """The diagnosis of a case by the oracle of its finding, which the least case does not contradict."""
    cases = {case.key: case for case in (request.case, request.least)}
    exams = [runner.run(case) for case in cases.values()]
    if not all(isinstance(exam.outcome, Returned) for exam in exams):
        return ()
    return find_oracle(request.oracle).diagnose(exams[0], exams[-1])


def examine_group(runner: CaseRunner, group: ReplicaGroup) -> GroupAnswer:
    """Runs the replicas of a plan, as many together as is possible, and examines them.

    Where the first MOST_DISAGREEING ones all fail or are refused the others do not run, nor where the first one does
    not compile: each of them would compile the same again.
    """
    reports: tuple[Report, ...] = ()
    while len(reports) < len(group.sampled) and not all_fail([report.failure for report in reports]):
        answer = examine_first(runner, group.after(len(reports)))
        if isinstance(answer, LastResponse):
            return LastResponse((*reports, *answer.response))
        reports += answer
    return reports


def examine_first(runner: CaseRunner, group: ReplicaGroup) -> GroupAnswer:
    """The same for as many of the replicas as run together, or all of them one by one."""
    try:
        exams = runner.run_replicas(group.plan, len(group.sampled))
    except FatalError as fatal:
        return LastResponse((report_of_outcome(fatal.outcome),))
    if not any(exam.stack for exam in exams):
        return examine_in_turn(runner, exams, group)
    try:
        return examine_stack(runner, exams, group.until(len(exams)))
    except FatalError as fatal:
        raise Unattributed from fatal


def examine_in_turn(runner: CaseRunner, first: Sequence[Examination], group: ReplicaGroup) -> GroupAnswer:
    """Runs the replicas after the first ones and examines all, up to a replica that ends the process."""
    exams = list(first)
    reports: list[Report] = []
    last: tuple[Report, ...] = ()
    try:
        for number in range(len(first), len(group.sampled)):
            if number <= MOST_DISAGREEING and all_fail([failure_of(exam) for exam in exams]):
                break
            exams.append(runner.run(group.plan.replica(number)))
        screen(exams)
    except FatalError as fatal:
        last = (report_of_outcome(fatal.outcome),)
    try:
        for number, exam in enumerate(exams):
            enough = not exam.cleared and has_enough_disagreements(reports, group)
            reports.append(UNEXAMINED if enough else examine(exam, group.request(number)))
    except FatalError as fatal:
        last = (report_of_outcome(fatal.outcome),)
    if reports:
        reports[0] = replace(reports[0], one_by_one=True, output_sizes=output_sizes(exams[0]))
    return LastResponse((*reports, *last)) if last else tuple(reports)


def examine_stack(runner: CaseRunner, exams: Sequence[Examination], group: ReplicaGroup) -> tuple[Report, ...]:
    """The reports on replicas that ran together. A replica with a finding is examined again in a run of its own."""
    stacked = [exam for exam in exams if exam.stack]
    screen(stacked)
    screen([exam for exam in exams if not exam.stack])
    target = stacked[0].target
    compares = AccuracyOracle().applies(target, group.plan)
    suspects = {exam.row for exam in stacked if compares and not exam.cleared}
    backend = stacked[0].backend
    sampled = [oracle for oracle in SAMPLED if oracle.applies(target, group.plan) and oracle.runs_on(backend)]
    suspects |= check_sampled(sampled, [exam for exam in stacked if exam.row not in suspects], group)
    always = tuple(oracle.name for oracle in ALWAYS if oracle.applies(target, group.plan))
    # Most replicas have nothing to report and share their sampled oracles: they share one report.
    silent = {
        names: Report("returned", False, (), (*always, *(oracle.name for oracle in sampled if oracle.name in names)))
        for names in set(group.sampled)
    }
    reports = [silent[names] for names in group.sampled]
    agreeing = [exam for exam in stacked if exam.row not in suspects]
    if agreeing:
        # The first replica reports what the kernels of all did, and the nearest to its bound the worst error.
        if agreeing[0].row == 0:
            features, constants = backend.collect_feedback(agreeing[0].returned)
            reports[0] = replace(reports[0], features=features, constants=constants)
        nearest = max(agreeing, key=attrgetter("worst"))
        reports[nearest.row] = replace(reports[nearest.row], worst=nearest.worst)
    special: list[Report] = []
    for row in sorted({*range(len(exams))} - {exam.row for exam in agreeing}):
        request, exam = group.request(row), exams[row]
        if exam.stack is not None and has_enough_disagreements(special, group):
            reports[row] = UNEXAMINED
        else:
            reports[row] = examine(exam if exam.stack is None else run_alone(runner, exam), request)
        special.append(reports[row])
    one_by_one = 2 * len(stacked) < len(exams) or any(exam.diverged for exam in stacked)
    first = replace(reports[0], one_by_one=one_by_one, output_sizes=output_sizes(exams[0]))
    return (first, *reports[1:])


def output_sizes(exam: Examination) -> tuple[tuple[str, int], ...]:
    """The names and elements of the outputs of the last call; none where it did not return."""
    if not isinstance(exam.outcome, Returned):
        return ()
    return tuple((name, output.numel()) for name, output in exam.outputs.items())


def run_alone(runner: CaseRunner, exam: Examination) -> Examination:
    """Runs a replica of a stack in a run of its own, for which what screening evaluated of its reference holds too."""
    alone = runner.run(exam.case)
    alone.uncleared = exam.uncleared
    return alone


def check_sampled(oracles: Sequence[Oracle], exams: Sequence[Examination], group: ReplicaGroup) -> set[int]:
    """The rows of replicas of one stack in which a sampled oracle finds something, each in its share of them."""
    by_names: dict[tuple[str, ...], list[Examination]] = {}
    for exam in exams:
        if names := group.sampled[exam.row]:
            by_names.setdefault(names, []).append(exam)
    checks = []
    for oracle in oracles:
        some = [exam for names, share in by_names.items() if oracle.name in names for exam in share]
        checks.append((oracle, sorted(some, key=attrgetter("row"))))
    reruns = [(oracle, some) for oracle, some in checks if isinstance(oracle, RerunOracle)]
    found = list(zip((some for _, some in reruns), check_reruns(reruns), strict=True))
    found += [(some, oracle.check(some)) for oracle, some in checks if not isinstance(oracle, RerunOracle)]
    return {exam.row for some, findings in found for exam, finding in zip(some, findings, strict=True) if finding}


def failure_of(exam: Examination) -> str:
    """As that of its report."""
    return "" if isinstance(exam.outcome, Returned) else report_of_outcome(exam.outcome).failure


def all_fail(failures: Sequence[str]) -> bool:
    """Whether the first replicas of a plan have all failed, and are enough to say so."""
    does_not_compile = list(failures[:1]) == ["compile-error"]
    return len(failures) == (1 if does_not_compile else MOST_DISAGREEING) and all(failures)


def has_enough_disagreements(reports: Sequence[Report], group: ReplicaGroup) -> bool:
    """Whether so much was seen of a plan's replicas that the others that may disagree are not examined."""
    if group.sought is not None:
        return any(report.shown(group.sought) for report in reports)
    return sum(bool(report.findings) for report in reports) >= MOST_DISAGREEING


def examine(exam: Examination, request: Examine) -> Report:
    """Runs the oracles on a case. Raises TargetError where the target contradicts itself."""
    if not isinstance(exam.outcome, Returned):
        if isinstance(exam.outcome, Raised):
            check_cotangents_of(exam.target, exam.case.last)
        return report_of_outcome(exam.outcome)
    findings: list[Finding] = []
    examined: list[str] = []
    for oracle in (*ALWAYS, *(oracle for oracle in SAMPLED if oracle.name in request.sampled)):
        if not (oracle.applies(exam.target, exam.case) and oracle.runs_on(exam.backend)):
            continue
        examined.append(oracle.name)
        (finding,) = oracle.check([exam])
        if finding:
            findings.append(finding)
            if oracle.spec.stops and not request.everything:
                break
    findings.sort(key=filing_order)
    return Report(
        "returned", False, tuple(findings), tuple(examined), exam.worst, *exam.backend.collect_feedback(exam.outcome),
        output_sizes=output_sizes(exam),
    )  # fmt: skip
