"""Recognises what a kernel that keeps intermediate values in the dtype of its inputs makes wrong."""

from __future__ import annotations

import torch

from fuzz.oracles.comparison.elements import compare_elements
from fuzz.oracles.comparison.expected import STAGES, THOROUGH, evaluate_reference
from fuzz.oracles.execution.examination import Examination
from fuzz.reference.envelope import Expected, make_precision, working_dtype

STAGE = STAGES.index(THOROUGH)
ADVICE = '; accumulate="inputs" promises no more'
"""What the author of a target can write instead."""


def describe_input_precision(exam: Examination, least: Examination) -> str:
    """What the target may promise instead, where that explains all that is wrong in two cases; else empty."""
    if exam.target.accumulate == "inputs" or exam.target.contract.kind != "envelope":
        return ""
    dtypes = {find_input_dtype(one) for one in (exam, least)}
    if "float32" in dtypes or not all(agrees_in_input_precision(one) for one in (exam, least)):
        return ""
    kept = " or ".join(sorted(dtypes))
    return f"it looks accumulated in {kept}: nothing is wrong if a value may be rounded to that on the way{ADVICE}"


def find_input_dtype(exam: Examination) -> str:
    """The coarsest floating dtype among the inputs of the last call, float32 at best."""
    return working_dtype("inputs", (value.dtype for value in exam.case.last.tensors.values()))


def agrees_in_input_precision(exam: Examination) -> bool:
    """Whether no output of the last call disagrees where the working precision is that of its inputs."""
    call = len(exam.case.calls) - 1
    precision = make_precision(exam.backend.arithmetic, find_input_dtype(exam), exam.target.dot, True)
    expected = evaluate_reference(exam, call, STAGE, precision=precision)
    outputs = exam.returned.calls[call].outputs
    return not any(
        compare_elements(outputs[name], one, precision).wrong or is_other_nan(outputs[name], one)
        for name, one in expected.items()
    )


def is_other_nan(output: torch.Tensor, expected: Expected) -> bool:
    """Whether some element is NaN and should be a number: where that may overflow anything is allowed, but what is
    rounded to infinity is no NaN yet.
    """
    if not output.is_floating_point():
        return False
    return bool((output.to(expected.value.device).isnan() & ~expected.value.isnan()).any())
