"""Witness: another backend that is asked about a finding's least case, so that a backend's own mistake shows itself.

Triton's interpreter runs where its own faults do not matter: wrong values in float32 and float16. It computes bfloat16
on its bit patterns and float8 not at all, and corrupts memory outside of buffers.
"""

from __future__ import annotations

from dataclasses import replace

from fuzz.backends import BACKENDS
from fuzz.backends.interpreter import InterpreterBackend
from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.model.oracles import ACCURACY
from fuzz.worker.process import Worker, WorkerCrash
from fuzz.worker.protocol import HANDLER, Examine, WorkerConfig, report_outcome

TOLD = 60
"""Characters of an outcome that are told."""
AGREES, DISAGREES = "agrees", "disagrees"


def cross_check(case: Case, finding: Finding, config: WorkerConfig, memory: int, timeout: float) -> dict[str, str]:
    """What each other backend here says of an accuracy finding: agrees, disagrees, or why it cannot tell."""
    if finding.oracle != ACCURACY.name:
        return {}
    said = {}
    for name, backend in BACKENDS.items():
        if name == config.backend or (backend.selectable and backend.unavailable_reason()):
            continue
        refusal = backend.cross_check_refusal(case)
        said[name] = refusal or asked(case, finding, replace(config, backend=name), memory, timeout)
    return said


def asked(case: Case, finding: Finding, config: WorkerConfig, memory: int, timeout: float) -> str:
    """What a new process with that backend says."""
    with Worker(HANDLER, config, memory, timeout, BACKENDS[config.backend].environment) as worker:
        answer = worker.call(Examine(case))
    report = report_outcome(answer.outcome) if isinstance(answer, WorkerCrash) else answer
    if report.outcome != "returned":
        return f"cannot run it: {report.outcome[:TOLD]}"
    agrees = any(found.same_bug(finding) for found in report.findings)
    return AGREES if agrees else DISAGREES


def only_on_cpu(cross_checks: dict[str, str]) -> bool:
    """Whether Triton's interpreter does not see what `cpu` saw, so that it is the backends that differ."""
    return cross_checks.get(InterpreterBackend.name) == DISAGREES
