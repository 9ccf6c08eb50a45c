"""Says in plain numbers what the elements of an output may be: what a stand-alone script compares them with."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from fuzz.model.dtypes import DType
from fuzz.oracles.comparison.elements import error_bounds, overflows
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
    may, must = overflows(exact, slack, kind)
    # At the limit itself the largest finite number is within the bound.
    must = must & (exact.abs() - kind.largest > bound)
    # What is rounded to an infinity, and need not be one, is compared with no finite output.
    bound = torch.where(torch.isfinite(exact) & torch.isinf(due) & ~must, math.inf, bound)
    due = torch.where(must, torch.sign(exact) * math.inf, due)
    special = ((may & ~must) | ~torch.isfinite(exact)).reshape(-1).nonzero().flatten()
    values, slacks = (one.reshape(-1)[special].tolist() for one in (exact, slack))
    others = {
        index: tuple(_infinities(*one))
        for index, one in zip(special.tolist(), zip(values, slacks, strict=True), strict=True)
    }
    return AllowedValues(due.reshape(-1).tolist(), bound.reshape(-1).tolist(), others)


def _infinities(value: float, slack: float) -> Iterator[float]:
    """What an element may be besides a value that may overflow, or is not finite itself."""
    if math.isinf(value):
        yield math.nan
        return
    # NaN is neither.
    if not value < -slack:
        yield math.inf
    if not value > slack:
        yield -math.inf
