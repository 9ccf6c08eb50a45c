"""Runs a finding's least case on the other backends, so that a backend's own mistake shows itself.

Triton's interpreter runs where its own faults do not matter: wrong values in float32 and float16. It computes bfloat16
on its bit patterns and float8 not at all, and corrupts memory outside of buffers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fuzz.backends import BACKENDS
from fuzz.backends.interpreter import InterpreterBackend
from fuzz.escaping import clean_text
from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.model.oracle_specs import ACCURACY
from fuzz.worker.deadline import Deadline
from fuzz.worker.protocol import HANDLER, Examine, WorkerConfig
from fuzz.worker.worker import Worker, WorkerCrash, report_of_crash

MAX_REASON = 160
"""Characters of the reason why a backend cannot run a case."""
AGREES, DISAGREES = "agrees", "disagrees"
CROSS_CHECK = "cross-check"
"""The step of triage in which other backends run a case."""


def cross_check(
    case: Case,
    finding: Finding,
    config: WorkerConfig,
    memory: int,
    timeout: float,
    deadline: Deadline | None = None,
) -> dict[str, str]:
    """Backend -> whether it agrees on an accuracy finding, or why it cannot tell, of each other backend here.

    Raises OutOfTime where the deadline passes meanwhile.
    """
    if finding.oracle != ACCURACY.name:
        return {}
    answers = {}
    for name, backend in BACKENDS.items():
        if name == config.backend or (backend.selectable and backend.unavailable_reason()):
            continue
        refusal = backend.cross_check_refusal(case)
        answers[name] = refusal or run_on(
            replace(config, backend=name), case, finding, memory, timeout, deadline or Deadline()
        )
    return answers


def run_on(config: WorkerConfig, case: Case, finding: Finding, memory: int, timeout: float, deadline: Deadline) -> str:
    """Whether a new process with the config's backend agrees that the case shows the finding."""
    with Worker(HANDLER, config, memory, timeout, BACKENDS[config.backend].environment, deadline) as worker:
        answer = worker.call(Examine(case))
        report = report_of_crash(answer, case, worker) if isinstance(answer, WorkerCrash) else answer
    if report.outcome != "returned":
        return f"cannot run it: {clean_text(report.outcome, MAX_REASON)}"
    return AGREES if any(other.shares_output(finding) for other in report.findings) else DISAGREES


def only_on_cpu(least: Mapping[str, str], unshrunk: Mapping[str, str]) -> bool:
    """Whether it is the backends that differ, by the answers for the least and for the unshrunk case.

    Triton's interpreter does not show what `cpu` shows in the least case. That alone may be another rounding of a
    kernel whose error there is hardly larger than the bound, so that it must not show it in the unshrunk case either.
    """
    name = InterpreterBackend.name
    return least.get(name) == DISAGREES and unshrunk.get(name) != AGREES
