"""Judges any program with Triton kernels by what they do to memory; there is no reference to compare with."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from fuzz.judge.indirect import is_indirect
from fuzz.judge.processes.requests import RunScript, ScriptConfig, ScriptReport
from fuzz.judge.result.judgement import PROGRAM_INPUTS, RIGHT, SOLUTION, UNSUPPORTED, WRONG, Evidence, Judgement
from fuzz.judge.waiting import waits
from fuzz.model.finding import Finding, filing_order
from fuzz.model.outcome import Hung, describe
from fuzz.worker.system import total_memory
from fuzz.worker.worker import Worker, WorkerCrash

HANDLER = "fuzz.judge.processes.script_worker:make_handler"
SECONDS = 300.0
"""Seconds that a program may take."""
WAITING_SECONDS = 30.0
"""Seconds after which a program whose kernels may wait for each other is run in the reverse order."""
LONG_SECONDS = 60.0
"""Seconds from which a program is not run again in other orders of its programs."""
BACKEND = "cpu"
"""The backend that observes accesses."""
UNWRITTEN = "unwritten-read"
CONFLICT = "write-conflict"
RACES = ("race", CONFLICT)
"""What another order of the programs of a launch may change."""
REVERSED = -1
ORDERS = (REVERSED, 1)
"""Program orders of the runs that are compared with the first: reversed, then permuted."""
MOST_PLACES = 8
"""Places that are shown."""


def judge_file(path: Path, seconds: float = SECONDS, memory: int = 0) -> Judgement:
    """Judges a program: WRONG where an access is, UNSUPPORTED where it cannot be run here.

    `memory` limits its process, in bytes; 0 is half of the machine's.
    """
    start = time.monotonic()
    judgement = Judgement(RIGHT, "", "", str(path), BACKEND)
    memory = memory or max(total_memory() // 2, 1 << 30)
    with Worker(HANDLER, ScriptConfig(path.resolve()), memory, seconds) as worker:
        report = run_program(worker, waits(path))
        judgement.seconds = time.monotonic() - start
        if isinstance(report, WorkerCrash):
            judgement.verdict, judgement.reason = UNSUPPORTED, f"the program {describe(report.outcome)}"
            judgement.cause = SOLUTION
        else:
            conclude(judgement, report, worker)
    judgement.seconds = time.monotonic() - start
    return judgement


def run_program(worker: Worker, may_wait: bool) -> ScriptReport | WorkerCrash:
    """Runs a program; where it hangs, and its kernels may wait for each other, in the reverse order as well.

    Programs run one after another, so that one which waits for a later one waits for ever.
    """
    limit = worker.timeout
    if not may_wait:
        return ask(worker, RunScript())
    worker.timeout = min(WAITING_SECONDS, limit)
    report = ask(worker, RunScript())
    worker.timeout = limit
    hangs = isinstance(report, WorkerCrash) and isinstance(report.outcome, Hung)
    return ask(worker, RunScript(order=REVERSED)) if hangs else report


def ask(worker: Worker, request: RunScript) -> ScriptReport | WorkerCrash:
    answer = worker.call(request)
    assert isinstance(answer, ScriptReport | WorkerCrash)
    return answer


def conclude(judgement: Judgement, report: ScriptReport, worker: Worker) -> None:
    """Writes what was seen into a judgement."""
    judgement.cases, judgement.calls, judgement.launches = 1, 1, len(report.kernels)
    judgement.kinds = [PROGRAM_INPUTS]
    places: dict[str, Finding] = {}
    for finding in report.findings:
        if finding.symptom not in RACES:
            places.setdefault(f"{finding.symptom} {finding.source_line}", finding)
    unwritten = any(one.symptom == UNWRITTEN for one in places.values())
    harmless = unwritten and is_unwritten_harmless(report, worker)
    for finding in sorted(places.values(), key=filing_order):
        judgement.evidence.append(make_evidence(finding, harmless))
    if judgement.seconds > LONG_SECONDS:
        judgement.notes.append("races were not looked for, since the program takes long")
    elif not report.raised and report.kernels:
        judgement.evidence += find_races(Path(judgement.solution), report, worker)
    del judgement.evidence[MOST_PLACES:]
    counting = [one for one in judgement.evidence if one.counts]
    if report.raised:
        judgement.notes.append(f"the program raises {report.raised}")
    if counting:
        judgement.verdict, judgement.reason = WRONG, counting[0].message
    elif report.raised:
        judgement.verdict, judgement.reason = UNSUPPORTED, f"the program raises {report.raised}"
        judgement.cause = SOLUTION
    elif not report.kernels:
        judgement.verdict, judgement.reason = UNSUPPORTED, "the program launches no Triton kernel"
        judgement.cause = SOLUTION
    else:
        judgement.reason = f"every access of {len(report.kernels)} launches is inside its tensor, and written before"


def make_evidence(finding: Finding, harmless: bool) -> Evidence:
    """One place where accesses are wrong."""
    severity = "low" if finding.symptom == UNWRITTEN and harmless else "high"
    details = (f"at {finding.source_line}",) if finding.source_line else ()
    if severity == "low":
        details = (*details, "what the program computes does not depend on it")
    return Evidence(
        finding.oracle, finding.outputs, finding.symptom, finding.message, severity, "ordinary", details=details
    )


def find_races(path: Path, report: ScriptReport, worker: Worker) -> Iterator[Evidence]:
    """Accesses whose order decides what the program computes; none where programs wait for each other.

    In another order of programs it computes something else, or programs update one element without atomics. Stores
    of different values at indices that the kernel loads are low: a program may mean them.
    """
    if waits(path):
        return
    changed = depends_on_order(report, worker)
    if not changed and not any(one.symptom == CONFLICT for one in report.findings):
        return
    observed = worker.call(RunScript(races=True))
    if not isinstance(observed, ScriptReport):
        return
    races = [one for one in observed.findings if one.symptom in RACES]
    buffers = [{one.outputs for one in races if one.symptom == symptom} for symptom in RACES]
    updated = set.intersection(*buffers)
    places = {one.source_line: one for one in reversed(races) if changed or one.outputs in updated}
    meaning = "in another order of its programs it computes something else" if changed else "an update may be lost"
    for finding in sorted(places.values(), key=filing_order):
        meant = finding.symptom == CONFLICT and finding.outputs not in updated and repeats_indices(finding)
        reason = "where indices repeat, that may be meant" if meant else meaning
        yield Evidence(
            finding.oracle, finding.outputs, finding.symptom, finding.message, "low" if meant else "medium", "ordinary",
            details=(f"at {finding.source_line}", reason),
        )  # fmt: skip


def repeats_indices(finding: Finding) -> bool:
    """Whether programs store to one element because the program's own indices, which the kernel loads, repeat."""
    path, _, line = finding.source_line.rpartition(":")
    try:
        return is_indirect(Path(path).read_text(encoding="utf-8"), int(line))
    except (OSError, ValueError, SyntaxError):
        return False


def depends_on_order(report: ScriptReport, worker: Worker) -> bool:
    """Whether the program computes something else in another order of its programs, and the same in the same order."""
    return any(is_changed(report, worker, one) for one in ORDERS) and not is_changed(report, worker, None)


def is_changed(report: ScriptReport, worker: Worker, order: int | None) -> bool:
    """Whether the program computes something else when it runs again, its programs in this order."""
    again = worker.call(RunScript(order=order))
    return isinstance(again, ScriptReport) and not again.raised and again.digest != report.digest


def is_unwritten_harmless(report: ScriptReport, worker: Worker) -> bool:
    """Whether the program computes the same where memory that nobody wrote holds another value."""
    worker.restart()
    again = worker.call(RunScript(poison=False, order=report.order))
    return isinstance(again, ScriptReport) and bool(again.digest) and again.digest == report.digest
