"""Compares eager PyTorch with the reference: the reference itself, called with tensors of the working precision.

It says how well anybody's straightforward code in that precision computes a case. Outputs are rounded to the dtypes of
the kernel's, and gradients are autograd's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from fuzz.backends.guarded_memory import TORCH_DTYPES
from fuzz.model.outcome import Returned
from fuzz.oracles.comparison.elements import SYMPTOMS, ElementComparison, compare_elements
from fuzz.oracles.comparison.expected import STAGES, evaluate_reference, reference_inputs
from fuzz.oracles.execution.examination import Examination
from fuzz.reference.envelope import COTANGENT, with_gradients, working_dtype
from fuzz.worker.protocol import CompareEager, EagerDeviation

LAST = len(STAGES) - 1


def compare_eager(exam: Examination, request: CompareEager) -> EagerDeviation | None:
    """The error of eager PyTorch in some outputs of a call. None where nothing is to be compared with."""
    target = exam.target
    if not isinstance(exam.outcome, Returned) or target.reference is None or target.contract.kind == "bitwise":
        return None
    name = working_dtype(target.accumulate, (value.dtype for value in exam.case.calls[request.call].tensors.values()))
    try:
        eager = run_eager(exam, request.call, TORCH_DTYPES[name])
    except Exception:
        # A reference is written for float64; whatever keeps it from other dtypes says nothing of the kernel.
        return None
    expected, outputs = evaluate_reference(exam, request.call, LAST), exam.returned.calls[request.call].outputs
    shared = [
        output
        for output in request.outputs
        if output in eager and output in expected and eager[output].shape == outputs[output].shape
    ]
    if not shared:
        return None

    def compare(others: Mapping[str, torch.Tensor]) -> list[ElementComparison]:
        """How some outputs compare with what is due, in the dtypes of the kernel's."""
        typed = {name: others[name].to(outputs[name].dtype) for name in shared}
        return [compare_elements(typed[name], expected[name], exam.precision, target.contract) for name in shared]

    compared = compare(eager)
    symptoms = [int(one.symptom[one.symptom > 0].min()) for one in compared if one.wrong]
    symptom = SYMPTOMS[min(symptoms) - 1] if symptoms else ""
    own = max(one.worst for one in compare(outputs))
    return EagerDeviation(name, max(one.worst for one in compared), symptom, own)


def evaluate_alone(exam: Examination) -> None:
    """Evaluates the reference for each call of a case that did not run. ReferenceFailedError where it fails."""
    if exam.target.reference is not None:
        for index in range(len(exam.case.calls)):
            evaluate_reference(exam, index, LAST)


def run_eager(exam: Examination, index: int, dtype: torch.dtype) -> Mapping[str, torch.Tensor]:
    """The reference's outputs, and gradients where the kernel has any, computed in a dtype."""
    inputs, cotangents = reference_inputs(exam, index)
    target, call = exam.target, exam.case.calls[index]
    assert target.reference is not None
    arguments: dict[str, Any] = {**inputs, **{COTANGENT + name: value for name, value in cotangents.items()}}
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor):
            # The reference may write into its arguments.
            arguments[name] = value.to(dtype if value.is_floating_point() else value.dtype, copy=True)
    wrt = [name for name in call.arguments if call.arguments[name].is_float]
    reference = with_gradients(target.reference, tuple(cotangents), wrt) if target.differentiable else target.reference
    return {name: value.detach() for name, value in reference(**arguments).items()}
