"""Perturbs the inputs of a reference, in the members of a stack that perturb no step."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import torch
from torch import Tensor

from fuzz.reference.envelope.precision import Precision

__all__ = ["perturb_inputs_"]

GOLDEN: Final = -7046029254386353131
"""2^64 divided by the golden ratio, as int64."""


def perturb_inputs_(stack: Tensor, members: Iterable[tuple[int, int]], precision: Precision) -> None:
    """Perturb an input in some members, (row, number), of a stack (replicas, rows, *shape) of which all are the same.

    `MemberNoise.perturb_input_` says how.
    """
    given, change, rank = stack[:, 0], 2 * precision.u, stack.dim() - 2
    magnitude = given.abs()
    raised = (magnitude * (1 + change)).clamp_(max=precision.largest).copysign_(given)
    lowered = (magnitude * (1 - change)).copysign_(given)
    if magnitude.numel() and not float(magnitude.amax()) < math.inf:  # A NaN is not less.
        finite = torch.isfinite(given)
        raised, lowered = torch.where(finite, raised, given), torch.where(finite, lowered, given)
    mixed = _mix(magnitude.view(torch.int64), GOLDEN)
    for row, number in members:
        chosen = _choose(magnitude, mixed, number, rank)
        stack[:, row].copy_(torch.where(chosen, raised, lowered))


def _choose(magnitude: Tensor, mixed: Tensor, member: int, rank: int) -> Tensor:
    """Which elements a member raises: at random, or the larger half of those along the last or the first dim.

    The latter moves a variance as far as changes of this size can. `mixed` are numbers made of the magnitudes, from
    which each member takes bits of its own. `rank` is that of one replica's tensor.
    """
    kind = member // 3 % 4
    if not rank or not magnitude.numel() or kind % 2 == 0:
        return (_mix(mixed, 2 * (member * 2654435761) + 1) & 1).to(torch.bool)
    dim = -1 if kind == 1 else -rank
    return magnitude > 0.5 * magnitude.amax(dim, True) + 0.5 * magnitude.amin(dim, True)


def _mix(numbers: Tensor, factor: int) -> Tensor:
    """Numbers of int64 times an odd number, the high bits mixed into the low ones."""
    mixed = numbers * factor
    return mixed.bitwise_xor_(mixed >> 31)
