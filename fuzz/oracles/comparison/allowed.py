"""Says in plain numbers what the elements of an output may be: what a stand-alone script compares them with."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from fuzz.model.dtypes import DType
from fuzz.oracles.comparison.elements import error_bounds
from fuzz.reference.envelope import Expected, Precision
from fuzz.target.contract import Contract


@dataclass(frozen=True)
class AllowedValues:
    """Element by element, in row-major order, what is due and how far an output may be from it.

    Where a bound is not finite anything is allowed. Integers are exact.
    """

    due: list[float] | list[int]
    bounds: list[float]


def allowed_values(expected: Expected, kind: DType, precision: Precision, contract: Contract) -> AllowedValues:
    """What `compare_elements` lets an output of that dtype be."""
    value = expected.value
    if kind.is_float:
        value, _, bound = error_bounds(expected, kind, precision, contract)
        return AllowedValues(value.reshape(-1).tolist(), bound.reshape(-1).tolist())
    # Where rounding decides an integer anywhere, it may be any.
    bound = torch.where(expected.spread == 0, 0.0, math.inf)
    value = value.long() if value.dtype is torch.bool else value
    return AllowedValues(value.reshape(-1).tolist(), bound.reshape(-1).tolist())
