"""Widens an envelope by what options do that a kernel gets as float32, where the reference computes with doubles.

Python computes 1 - 0.999 before a tensor is there to see it, and float32's 0.999 is 1.3e-5 further from 1. Each
option that float32 does not hold is rounded alone, since a launcher may compute with the others before it rounds them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch import Tensor

from fuzz.reference.envelope.noise import SAFETY
from fuzz.reference.envelope.precision import Precision
from fuzz.reference.envelope.rules.elementwise import rounded_away, rounds_constants

if TYPE_CHECKING:
    from fuzz.reference.envelope.evaluate import Expected

__all__ = ["ROUNDED_OPTIONS", "distance", "reach_value", "rounded_options"]

ROUNDED_OPTIONS: Final = 20
"""Members from which on options are rounded too: few cases need so many, and each option is one evaluation more."""
DIFFERENCES: Final = 2.0
"""How many times the difference an error may be: a kernel rounds what it computes with the rounded option."""
UNIT: Final = 2.0**-24
MOST_PRODUCTS: Final = 16
"""The largest exponent whose power is computed by products."""


class RoundedOption(float):
    """A float as float32 holds it. Its sums, products, quotients and powers with numbers are rounded away from what
    doubles give, so that the roundings of a formula such as 1 - b**3 add up."""

    by_doubles: float

    def __new__(cls, value: float, by_doubles: float) -> RoundedOption:
        """The value, and what it is where nothing is rounded."""
        self = super().__new__(cls, value)
        self.by_doubles = by_doubles
        return self


def _rounded(name: str) -> Callable[..., Any]:
    """An operation of `float` that rounds; a power by a small whole number as the products that it consists of."""
    operation = getattr(float, name)

    def rounded(self: RoundedOption, *others: Any) -> Any:
        result = operation(self, *others)
        if type(result) is not float:  # With a tensor, or complex.
            return result
        exact = operation(self.by_doubles, *(getattr(other, "by_doubles", other) for other in others))
        steps = max(1.0, min(abs(others[0]), MOST_PRODUCTS) - 1) if name == "__pow__" else 1.0
        if steps > 1 or rounded_away(result):
            result += math.copysign(steps * UNIT * result, result - exact)
        return RoundedOption(result, exact)

    return rounded


for _name in "add radd sub rsub mul rmul truediv rtruediv pow rpow neg abs".split():
    setattr(RoundedOption, f"__{_name}__", _rounded(f"__{_name}__"))


def rounded_options(inputs: Mapping[str, Any], precision: Precision) -> Iterator[dict[str, Any]]:
    """The inputs once for each float among them that float32 does not hold, with what it holds in its place."""
    for name, value in inputs.items():
        if type(value) is float and rounds_constants(precision, value):
            yield {**inputs, name: RoundedOption(float(np.float32(value)), value)}


def reach_value(expected: Expected, other: Tensor | None) -> Expected:
    """An `Expected` whose bound is at least `DIFFERENCES` times the distance to another value.

    One of another shape says nothing: what an option counts a launcher takes from the double, on the host.
    """
    if other is None or other.shape != expected.value.shape:
        return expected
    reach = distance(other, expected.value) * (DIFFERENCES / SAFETY)
    return replace(expected, spread=torch.maximum(expected.spread, reach))


def distance(others: Tensor, value: Tensor) -> Tensor:
    """How far others are from the value: 0 where they are the same, even inf or NaN, and inf where one is unlike it."""
    if not value.is_floating_point():
        return torch.where(others == value, 0.0, torch.inf).to(torch.float64)
    equal = (others == value) | (torch.isnan(others) & torch.isnan(value))
    return torch.where(equal, 0.0, (others - value).abs()).nan_to_num_(torch.inf, torch.inf)
