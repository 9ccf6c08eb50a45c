"""Envelope: the accuracy oracle's bounds for oracles that compare two runs."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from fuzz.backends.memory import DTYPE_NAMES
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.oracles.comparison.elements import error_bounds
from fuzz.oracles.comparison.expected import STAGES, THOROUGH, evaluate_reference
from fuzz.oracles.examination import Examination


def bounds(exam: Examination) -> Mapping[str, torch.Tensor]:
    """How far each element of the last call's outputs may be from the truth; 0 where it is no float."""
    call = len(exam.case.calls) - 1
    outputs = exam.returned.calls[call].outputs
    found = {}
    for name, expected in evaluate_reference(exam, call, STAGES.index(THOROUGH)).items():
        kind = named_dtype(DTYPE_NAMES[outputs[name].dtype])
        exact = not outputs[name].is_floating_point()
        bound = torch.zeros_like(expected.spread) if exact else error_bounds(expected, kind, exam.precision)[2]
        found[name] = bound.to(outputs[name].device)
    return found
