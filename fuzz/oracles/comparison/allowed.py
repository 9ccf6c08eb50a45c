"""Says in plain numbers what the elements of an output may be: what a stand-alone script compares them with."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from fuzz.model.dtypes import DType
from fuzz.oracles.comparison.elements import allowed_nonfinite, error_bounds
from fuzz.reference.envelope import Expected, Precision
from fuzz.target.contract import Contract


@dataclass(frozen=True)
class AllowedValues:
    """Element by element, in row-major order, what is due and how far an output may be from it.

    Where a bound is not finite anything is allowed. What overflows is due as an infinity; `others` has the numbers that
    an element may be besides, by its index: infinite near the limit of the format. Integers are exact.
    """

    due: list[float] | list[int]
    bounds: list[float]
    others: dict[int, tuple[float, ...]] = field(default_factory=dict)


def allowed_values(expected: Expected, kind: DType, precision: Precision, contract: Contract) -> AllowedValues:
    """What `compare_elements` lets an output of that dtype be."""
    value = expected.value
    if kind.is_float:
        return _allowed_floats(expected, kind, precision, contract)
    # Where rounding decides an integer anywhere, it may be any.
    bound = torch.where(expected.spread == 0, 0.0, math.inf)
    value = value.long() if value.dtype is torch.bool else value
    return AllowedValues(value.reshape(-1).tolist(), bound.reshape(-1).tolist())


def _allowed_floats(expected: Expected, kind: DType, precision: Precision, contract: Contract) -> AllowedValues:
    due, slack, bound = error_bounds(expected, kind, precision, contract)
    exact = expected.value
    allowed = allowed_nonfinite(exact, slack, kind)
    # At the limit itself the largest finite number is within the bound.
    must = allowed.must_overflow & (exact.abs() - kind.largest > bound)
    # What is rounded to an infinity, and need not be one, is compared with no finite output.
    bound = torch.where(torch.isfinite(exact) & torch.isinf(due) & ~must, math.inf, bound)
    due = torch.where(must, torch.sign(exact) * math.inf, due)
    others: dict[int, tuple[float, ...]] = {}
    for number, where in ((math.inf, allowed.positive), (-math.inf, allowed.negative), (math.nan, allowed.nan)):
        is_due = torch.isnan(due) if math.isnan(number) else due == number
        for index in (where & ~is_due).reshape(-1).nonzero().flatten().tolist():
            others[index] = (*others.get(index, ()), number)
    return AllowedValues(due.reshape(-1).tolist(), bound.reshape(-1).tolist(), dict(sorted(others.items())))
