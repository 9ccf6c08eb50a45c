"""Witness: another backend that is asked about a finding's least case, so that a backend's own mistake shows itself.

Triton's interpreter runs where its own faults do not matter: wrong values in float32 and float16. It computes bfloat16
on its bit patterns and float8 not at all, and corrupts memory outside of buffers.
"""

from __future__ import annotations

from dataclasses import replace

from fuzz.backends import BACKENDS
from fuzz.backends.interpreter import ENVIRONMENT
from fuzz.model.case import Case
from fuzz.model.finding import Finding
from fuzz.model.oracles import ACCURACY
from fuzz.worker.process import Worker, WorkerCrash
from fuzz.worker.protocol import HANDLER, Examine, WorkerConfig, report_outcome

SOUND = ("float32", "float16", "int32", "int64", "int16", "int8", "uint8", "bool")
"""Dtypes that Triton's interpreter computes with."""
LARGEST = 1 << 12
"""Elements of a case that the interpreter is asked about: it takes half a millisecond for each program instance."""
TOLD = 60
"""Characters of an outcome that are told."""
AGREES, DISAGREES = "agrees", "disagrees"


def cross_check(case: Case, finding: Finding, config: WorkerConfig, memory: int, timeout: float) -> dict[str, str]:
    """What each other backend here says of an accuracy finding: agrees, disagrees, or why it cannot tell."""
    if finding.oracle != ACCURACY.name:
        return {}
    said = {}
    for name in ("cpu", "cuda", "interpreter"):
        if name == config.backend or (name != "interpreter" and BACKENDS[name].unavailable_reason()):
            continue
        refusal = interpreter_refusal(case) if name == "interpreter" else ""
        said[name] = refusal or asked(case, finding, replace(config, backend=name), memory, timeout)
    return said


def interpreter_refusal(case: Case) -> str:
    """Why Triton's interpreter is no witness for a case; empty where it is one."""
    for name, value in case.last.tensors.items():
        if value.dtype not in SOUND:
            return f"cannot compute with {name} in {value.dtype}"
        if value.layout.reach:
            return f"cannot reach as far as {name} does"
    return "would take too long" if case.elements() > LARGEST else ""


def asked(case: Case, finding: Finding, config: WorkerConfig, memory: int, timeout: float) -> str:
    """What a new process with that backend says."""
    environment = ENVIRONMENT if config.backend == "interpreter" else {}
    with Worker(HANDLER, config, memory, timeout, environment=environment) as worker:
        answer = worker.call(Examine(case))
    report = report_outcome(answer.outcome) if isinstance(answer, WorkerCrash) else answer
    if report.outcome != "returned":
        return f"cannot run it: {report.outcome[:TOLD]}"
    agrees = any(found.same_bug(finding) for found in report.findings)
    return AGREES if agrees else DISAGREES


def only_on_cpu(cross_checks: dict[str, str]) -> bool:
    """Whether Triton's interpreter does not see what `cpu` saw, so that it is the backends that differ."""
    return cross_checks.get("interpreter") == DISAGREES
