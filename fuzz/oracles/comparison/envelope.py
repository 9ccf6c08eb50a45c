"""Envelope: the accuracy oracle's bounds for oracles that compare two runs."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from fuzz.backends.memory import NAMES
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.oracles.base import Examination
from fuzz.oracles.comparison.compare import allowed
from fuzz.oracles.comparison.expected import STAGES, THOROUGH, expect


def bounds(exam: Examination) -> Mapping[str, torch.Tensor]:
    """How far each element of the last call's outputs may be from the truth; 0 where it is no float."""
    call = len(exam.case.calls) - 1
    outputs = exam.returned.calls[call].outputs
    found = {}
    for name, expected in expect(exam, call, STAGES.index(THOROUGH)).items():
        kind = named_dtype(NAMES[outputs[name].dtype])
        exact = not outputs[name].is_floating_point()
        bound = torch.zeros_like(expected.spread) if exact else allowed(expected, kind, exam.precision)[2]
        found[name] = bound.to(outputs[name].device)
    return found
