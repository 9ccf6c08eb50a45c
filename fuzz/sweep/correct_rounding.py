"""Computes the correctly rounded result of an elementwise target: by float64 where that suffices, else by mpmath.

A float64 reference knows its own uncertainty, the spread of members perturbed at 2^-52. Where the value, moved by
CERTAIN times that, rounds to the same number of the output's format, that number is the correctly rounded result. What
is left, and what is not finite, goes to arbitrary precision: the target's `exact=`, or its reference over exact
numbers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fuzz.errors import TargetError, Unadjudicated, UsageError, one_line
from fuzz.model.dtypes import DType
from fuzz.reference.envelope import Expected, Precision, evaluate
from fuzz.sweep.fork_pool import ForkPool
from fuzz.sweep.ulps import rounded
from fuzz.target.spec import Target

CERTAIN = 64.0
"""How many times its measured uncertainty, the maximum over four members, float64 must be away from a boundary."""
UNIT = 2.0**-53
AT_ONCE = 128
"""Values that are decided together by arbitrary precision."""
SECONDS = 10.0
"""Seconds that arbitrary precision may take in one process of a sweep; what is left then is undecided."""

FEW = 16
"""The same where pool share them out."""

Inputs = dict[str, Any]
Values = dict[str, list[float]]
"""Float64 values of every tensor argument, as plain numbers."""


@dataclass
class CorrectRounding:
    """What is due of one output of a target. `spent` is what arbitrary precision has taken so far, in seconds.

    `pool` compute `exact`, if there are any.
    """

    target: Target
    output: str
    precision: Precision
    options: Mapping[str, Any] = field(default_factory=dict)
    spent: float = 0.0
    pool: ForkPool | None = None

    def rounded(self, inputs: Inputs, kind: DType) -> tuple[Tensor, Tensor, int]:
        """(lowest, highest, settled): float64 values of the output's format between which the correctly rounded one is.

        They are equal where it is known. `settled` counts those that arbitrary precision decided.
        """
        low, high, doubt = self.bounds(inputs, kind)
        return self._settle(inputs, doubt.nonzero().reshape(-1), low, high, kind)

    def bounds(self, inputs: Inputs, kind: DType) -> tuple[Tensor, Tensor, Tensor]:
        """(lowest, highest, doubt): the same by float64 alone, and where that does not decide."""
        expected = self.expected(inputs, members=1, uncertainty=True)
        assert expected.uncertainty is not None
        # All four members may happen to round to the value itself, which is one rounding off nevertheless.
        own = expected.uncertainty + UNIT * expected.value.abs()
        return within(inputs, expected.value, CERTAIN * own, kind)

    def _settle(
        self, inputs: Inputs, places: Tensor, low: Tensor, high: Tensor, kind: DType
    ) -> tuple[Tensor, Tensor, int]:
        """Puts what arbitrary precision says of these places into `low` and `high`."""
        values = {name: one[places].tolist() for name, one in inputs.items()}
        near = self._exact(values, len(places))
        some = places[: len(near)]
        low[some] = high[some] = rounded(torch.tensor(near, dtype=torch.float64, device=low.device), kind)
        return low, high, len(near)

    def _exact(self, values: Values, count: int) -> list[float]:
        """Exact values as `exact` gives them, up to where there is none or the time is spent."""
        near, began, size = list[float](), time.monotonic(), FEW if self.pool else AT_ONCE
        until = began + SECONDS - self.spent
        asked = (
            ({name: one[at : at + size] for name, one in values.items()}, self.output, until - time.monotonic())
            for at in range(0, count, size)
        )
        answers = self.pool.map(asked) if self.pool else map(self.exact, asked)
        for answer in answers:
            if answer is None:
                break
            near += answer
        self.spent += time.monotonic() - began
        return near

    def exact(self, asked: tuple[Values, str, float]) -> list[float] | None:
        """Exact values of some inputs as doubles, see `odd_double`, of an output, in so many seconds; None without."""
        from fuzz.reference.exact import evaluate_elementwise, evaluate_exact

        values, output, seconds = asked
        given = {**{name: torch.tensor(one, dtype=torch.float64) for name, one in values.items()}, **self.options}
        try:
            # What cancels beyond a hundred digits is below half the smallest number of any format that is swept.
            if self.target.exact is not None:
                found = evaluate_elementwise(self.target.exact, given, seconds=seconds, quick=True)
            else:
                assert self.target.reference is not None
                found = evaluate_exact(self.target.reference, given, seconds=seconds, quick=True)
        except Unadjudicated:
            return None
        return [odd_double(x) for x in found.values[output].reshape(-1).tolist()]

    def expected(self, inputs: Inputs, **how: Any) -> Expected:
        """The reference's value of the output with its envelope."""
        assert self.target.reference is not None
        try:
            found = evaluate(self.target.reference, {**inputs, **self.options}, self.precision, **how)
        except UsageError:
            raise
        except Exception as error:
            raise TargetError(f"target {self.target.name!r}: its reference fails: {one_line(error)}") from error
        if self.output not in found:
            raise TargetError(f"target {self.target.name!r}: its reference returns {', '.join(found)}")
        return found[self.output]


def within(inputs: Inputs, value: Tensor, margin: Tensor, kind: DType) -> tuple[Tensor, Tensor, Tensor]:
    """(lowest, highest, doubt) from a float64 value and what it is certain within, which counts at finite inputs."""
    finite = torch.ones_like(value, dtype=torch.bool)
    for one in inputs.values():
        finite &= torch.isfinite(one)
    plain = rounded(value, kind)
    low = torch.where(finite, rounded(value - margin, kind), plain)
    high = torch.where(finite, rounded(value + margin, kind), plain)
    return low, high, finite & ~(low == high)


def odd_double(x: Any) -> float:
    """A number as a double that rounds to any format of at most 51 bits as the number itself would.

    Where a double does not hold it, the last bit is set (rounding to odd), so that it is no tie of a narrower format.
    Boldo and Melquiond, Emulation of a FMA and correctly rounded sums, IEEE Trans. Computers 57(4), 2008.
    """
    near = float(x)
    if not math.isfinite(near) or x == near:
        return near
    toward = math.inf if x > near else -math.inf
    mantissa = math.frexp(near)[0] * 2.0**53
    return near if int(mantissa) % 2 else math.nextafter(near, toward)
