"""Finds out whether Triton refuses a dtype of a kernel that does not compile, and compiles it with plain ones."""

from __future__ import annotations

from fuzz.model.oracle_specs import FAULT
from fuzz.target.spec import Target
from fuzz.triage.bug import Bug
from fuzz.triage.triage import Triage
from fuzz.triage.triggers import set_dtype

TRITON_NAMES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}
"""What Triton calls dtypes in its messages; those of 8 bits begin like this."""
EIGHT_BITS = "fp8"


def find_refused_dtypes(bug: Bug, triage: Triage) -> dict[str, str]:
    """The dtypes that the message of a compile error names, each with the plainest one of its argument, which compiles.

    Empty where the kernel does not compile with plain dtypes either, or the message is of something else.
    """
    if bug.finding.symptom != "compile-error":
        return {}
    named = named_dtypes(bug, triage.target)
    if not named:
        return {}
    plain = bug.case
    for name, default in triage.target.defaults.items():
        if default is not None and name in plain.last.tensors:
            plain = set_dtype(triage.target, name, str(default), plain)
    report = triage.examine(plain, FAULT.name)
    return named if report.outcome == "returned" else {}


def named_dtypes(bug: Bug, target: Target) -> dict[str, str]:
    """The dtypes of a bug's least case that are not the plainest of their argument, and that its message names.

    Not those that the author of the target lists, which are a promise.
    """
    message, found = bug.finding.message, {}
    for name, value in bug.case.last.tensors.items():
        default = target.defaults.get(name) if name in target.assumed_dtypes else None
        short = TRITON_NAMES.get(value.dtype, EIGHT_BITS if value.dtype.startswith("float8") else "")
        if default is not None and value.dtype != default and short and short in message:
            found[value.dtype] = str(default)
    return found


def describe_refusal(refused: dict[str, str]) -> str:
    """Why such a bug is low, in words."""
    return "; ".join(
        f"{dtype} is not supported: Triton refuses it, and compiles the kernel with {plain}"
        for dtype, plain in refused.items()
    )
