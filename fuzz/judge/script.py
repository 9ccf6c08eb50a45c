"""Judges any program with Triton kernels by what they do to memory; there is no reference to compare with."""

from __future__ import annotations

import time
from pathlib import Path

from fuzz.judge.judgement import PROGRAM_INPUTS, RIGHT, SOLUTION, UNSUPPORTED, WRONG, Evidence, Judgement
from fuzz.judge.processes.requests import RunScript, ScriptConfig, ScriptReport
from fuzz.model.finding import Finding, finding_order
from fuzz.model.outcome import describe
from fuzz.worker.process import Worker, WorkerCrash
from fuzz.worker.system import total_memory

HANDLER = "fuzz.judge.processes.script_worker:make_handler"
SECONDS = 120.0
"""Seconds that a program may take."""
BACKEND = "cpu"
"""The backend that observes accesses."""
UNWRITTEN = "unwritten-read"
IGNORED = ("write-conflict",)
"""Programs that store different values to one element: where indices repeat, that may be meant."""
MOST = 8
"""Places that are shown."""


def judge_file(path: Path, seconds: float = SECONDS) -> Judgement:
    """Judges a program: WRONG where an access is, UNSUPPORTED where it cannot be run here."""
    start = time.monotonic()
    judgement = Judgement(RIGHT, "", "", str(path), BACKEND)
    with Worker(HANDLER, ScriptConfig(path.resolve()), max(total_memory() // 2, 1 << 30), seconds) as worker:
        report = worker.call(RunScript())
        if isinstance(report, WorkerCrash):
            judgement.verdict, judgement.reason = UNSUPPORTED, f"the program {describe(report.outcome)}"
            judgement.cause = SOLUTION
        else:
            conclude(judgement, report, worker)
    judgement.seconds = time.monotonic() - start
    return judgement


def conclude(judgement: Judgement, report: ScriptReport, worker: Worker) -> None:
    """Writes what was seen into a judgement."""
    judgement.cases, judgement.calls, judgement.launches = 1, 1, len(report.kernels)
    judgement.kinds = [PROGRAM_INPUTS]
    places: dict[str, Finding] = {}
    for finding in report.findings:
        if finding.symptom not in IGNORED:
            places.setdefault(f"{finding.symptom} {finding.source_line}", finding)
    unwritten = any(one.symptom == UNWRITTEN for one in places.values())
    harmless = unwritten and is_unwritten_harmless(report, worker)
    for finding in sorted(places.values(), key=finding_order):
        judgement.evidence.append(make_evidence(finding, harmless))
    del judgement.evidence[MOST:]
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


def is_unwritten_harmless(report: ScriptReport, worker: Worker) -> bool:
    """Whether the program computes the same where memory that nobody wrote holds another value."""
    worker.restart()
    again = worker.call(RunScript(poison=False))
    return isinstance(again, ScriptReport) and bool(again.digest) and again.digest == report.digest
