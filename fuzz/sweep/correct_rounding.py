"""Computes the correctly rounded result of an elementwise target: by float64 where that suffices, else by mpmath.

A float64 reference knows its own uncertainty, the spread of members perturbed at 2^-52. Where the value, moved by
CERTAIN times that, rounds to the same number of the output's format, that number is the correctly rounded result. What
is left goes to arbitrary precision: the target's `exact=`, or its reference over exact numbers. Infinities and NaNs are
taken as they are where arbitrary precision confirms some of them: members are no measure of these, as the noise of an
infinity is NaN.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fuzz.errors import TargetError, Unadjudicated, UsageError, one_line
from fuzz.model.dtypes import DType
from fuzz.reference.envelope import Expected, Precision, evaluate, float64_defaults
from fuzz.sweep.fork_pool import ForkPool
from fuzz.sweep.ulps import rounded
from fuzz.target.spec import Target

CERTAIN = 64.0
"""How many times its measured uncertainty, the maximum over four members, float64 must be away from a boundary."""
UNIT = 2.0**-53
POINTS, RELATIVE = 8, 2.0**-40
"""Values of a block at which its uncertainty is measured, and the least share of a value that is taken for that."""
MOST_IN_DOUBT = 1 << 13
"""Values in doubt of several blocks from which on they stay undecided."""
CHUNK, POOL_CHUNK = 128, 16
"""Values that arbitrary precision decides together, in this process and where a pool shares them out."""
SPOT = 16
"""Values of each kind, infinities of one sign or NaNs, that are evaluated exactly to see whether float64 is right."""
SECONDS, SPOT_SECONDS = 10.0, 10.0
"""Seconds that arbitrary precision may take in one process of a sweep, and more for infinities and NaNs that are spot
checks: what is left then is undecided."""

Inputs = dict[str, Any]
Reference = Callable[..., Mapping[str, Any]]
Numbers = dict[str, list[float]]
"""Float64 values of every tensor argument, as plain numbers."""


@dataclass
class TimeLeft:
    """Seconds that arbitrary precision may still take."""

    seconds: float


@dataclass
class CorrectRounding:
    """The correctly rounded values of one output.

    `time_left` is for any of them; `spot_time_left` is kept for spot checks, which are few: without them, what the
    reference overflows to would pass for right. `pool` computes `exact`, if there is one. Of `pairs` the second
    argument takes every value in each block.
    """

    target: Target
    output: str
    precision: Precision
    options: Mapping[str, Any] = field(default_factory=dict)
    time_left: TimeLeft = field(default_factory=lambda: TimeLeft(SECONDS))
    spot_time_left: TimeLeft = field(default_factory=lambda: TimeLeft(SPOT_SECONDS))
    pool: ForkPool | None = None
    pairs: bool = False

    def scalars(self, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """What the launcher and the reference get beside these tensors: options, and sizes, all of them one."""
        return {**self.options, **dict.fromkeys(self.target.passed_sizes, len(next(iter(tensors.values()))))}

    def rounded(self, inputs: Inputs, kind: DType, block: int = 0) -> tuple[Tensor, Tensor, int]:
        """(low, high, decided_count): float64 values of the output's format between which the correctly rounded one is.

        They are equal, or both NaN, where it is known. `decided_count` counts those that arbitrary precision decided.
        The uncertainty is measured at every value, or at some of each block of so many; then too many in doubt stay
        undecided.
        """
        value, margin = self._measure_blocks(inputs, block) if block else self._measure(inputs)
        finite = torch.stack([torch.isfinite(values) for values in inputs.values()]).all(0)
        margin = torch.where(finite, margin, 0.0)
        low, high = rounded(value - margin, kind), rounded(value + margin, kind)
        nonfinite = finite & ~torch.isfinite(value)
        indices = (finite & ~nonfinite & (low != high)).nonzero().reshape(-1)
        if block and len(indices) > MOST_IN_DOUBT:
            indices = indices[:0]
        # What is finite comes first: there may be no time for anything else.
        count = self._decide(inputs, indices, low, high, kind, self.time_left)
        for kind_of in (low.isnan(), low == torch.inf, low == -torch.inf):
            count += self._spot_check(inputs, (nonfinite & kind_of).nonzero().reshape(-1), low, high, kind)
        return low, high, count

    def _decide(
        self, inputs: Inputs, indices: Tensor, low: Tensor, high: Tensor, kind: DType, time_left: TimeLeft
    ) -> int:
        """Sets both ends of the values at `indices` by arbitrary precision, as far as its time allows: how many."""
        numbers = {name: values[indices].tolist() for name, values in inputs.items()}
        exact = self._exact(numbers, len(indices), time_left)
        decided = indices[: len(exact)]
        low[decided] = high[decided] = rounded(torch.tensor(exact, dtype=torch.float64, device=low.device), kind)
        return len(exact)

    def _spot_check(self, inputs: Inputs, indices: Tensor, low: Tensor, high: Tensor, kind: DType) -> int:
        """Decides some of the values at `indices`, which are one infinity or NaN: how many.

        Where one of these is not, the reference left the range of float64 on its way to a result that is inside it, so
        that all are asked for. Where some are not known, nothing is known of the others either.
        """
        if not len(indices):
            return 0
        places = torch.linspace(0, len(indices) - 1, min(len(indices), SPOT), dtype=torch.float64).round().long()
        before, chosen = low[indices[0]].clone(), indices[places.to(indices.device)]
        count = self._decide(inputs, chosen, low, high, kind, self.spot_time_left)
        now = low[chosen[:count]]
        confirmed = bool(((now == before) | (now.isnan() & before.isnan())).all())
        if confirmed and count == len(chosen):
            return count
        rest = indices[~torch.isin(indices, chosen[:count])]
        low[rest], high[rest] = -torch.inf, torch.inf
        return count if confirmed else count + self._decide(inputs, rest, low, high, kind, self.time_left)

    def _measure(self, inputs: Inputs) -> tuple[Tensor, Tensor]:
        """(value, what it is certain within) by float64 alone; 0 for what is not finite, of which it says nothing."""
        expected = self.expected(inputs, members=1, uncertainty=True)
        assert expected.uncertainty is not None
        # All four members may happen to round to the value itself, which is one rounding off nevertheless.
        margin = CERTAIN * (expected.uncertainty + UNIT * expected.value.abs())
        return expected.value, torch.where(torch.isfinite(expected.value), margin, 0.0)

    def _measure_blocks(self, inputs: Inputs, block: int) -> tuple[Tensor, Tensor]:
        """The same from the largest share of a value that is uncertain at some points of each block.

        Where values change little in a block, the largest amount holds too, even where they cross 0: but for pairs, of
        which the second argument takes every value in each block.
        """
        points = {name: values[block // POINTS // 2 :: block // POINTS] for name, values in inputs.items()}
        at_points, margin = self._measure(points)
        margin = margin.nan_to_num(0.0, 0.0, 0.0)
        share = torch.where(at_points != 0, margin / at_points.abs(), 0.0).nan_to_num(0.0, 0.0, 0.0)
        share, least = (each.view(-1, POINTS).amax(1, keepdim=True) for each in (share, margin))
        assert self.target.reference is not None
        with float64_defaults():
            copies = {name: values.clone() for name, values in inputs.items()}
            value = self.target.reference(**copies, **self.scalars(inputs))[self.output]
        sizes = value.abs().view(-1, block)
        margin = share.clamp(min=RELATIVE) * sizes if self.pairs else torch.maximum(RELATIVE * sizes, least)
        return value, torch.where(torch.isfinite(value), margin.view(-1), 0.0)

    def _exact(self, numbers: Numbers, count: int, time_left: TimeLeft) -> list[float]:
        """Exact values as `exact` gives them, up to where there is none or the time is spent."""
        values, start, size = list[float](), time.monotonic(), POOL_CHUNK if self.pool else CHUNK
        end = start + time_left.seconds
        chunks = ({name: column[at : at + size] for name, column in numbers.items()} for at in range(0, count, size))
        requests = ((chunk, self.output, end) for chunk in chunks)
        for answer in self.pool.compute(requests) if self.pool else map(self.exact, requests):
            if answer is None:
                break
            values += answer
        time_left.seconds -= time.monotonic() - start
        return values

    def exact(self, request: tuple[Numbers, str, float]) -> list[float] | None:
        """Exact values of (inputs, output, end) as doubles, see `odd_double`; None where there are none by then.

        The end is a time of the clock that all processes of a machine share.
        """
        from fuzz.reference.exact import evaluate_elementwise, evaluate_exact

        numbers, output, end = request
        seconds = end - time.monotonic()
        inputs: Inputs = {name: torch.tensor(values, dtype=torch.float64) for name, values in numbers.items()}
        inputs |= self.scalars(inputs)
        try:
            # What cancels beyond a hundred digits is below half the smallest number of any format that is swept.
            if self.target.exact is not None:
                result = evaluate_elementwise(self.target.exact, inputs, seconds=seconds, quick=True)
            else:
                assert self.target.reference is not None
                result = evaluate_exact(self.target.reference, inputs, seconds=seconds, quick=True)
        except Unadjudicated:
            return None
        return [odd_double(x) for x in result.values[output].reshape(-1).tolist()]

    def expected(self, inputs: Inputs, **how: Any) -> Expected:
        """The reference's value of the output with its envelope."""
        assert self.target.reference is not None
        inputs = {**inputs, **self.scalars(inputs)}
        outputs = evaluate_reference(self.target, self.target.reference, inputs, self.precision, **how)
        if self.output not in outputs:
            raise TargetError(f"target {self.target.name!r}: its reference returns {', '.join(outputs)}")
        return outputs[self.output]


def evaluate_reference(
    target: Target, reference: Reference, inputs: Inputs, precision: Precision, **how: Any
) -> dict[str, Expected]:
    """Every output of a reference of the target, with its envelope. TargetError where it raises an error."""
    try:
        return evaluate(reference, inputs, precision, **how)
    except UsageError:
        raise
    except Exception as error:
        raise TargetError(f"target {target.name!r}: its reference fails: {one_line(error)}") from error


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
