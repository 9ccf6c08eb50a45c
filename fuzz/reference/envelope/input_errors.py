"""Perturbs the inputs of a reference, in the members of a stack that perturb no step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from fuzz.reference.envelope.noise_loops import InputChange, lies_flat, ready_loops
from fuzz.reference.envelope.precision import Precision

__all__ = ["perturb_inputs_"]

GOLDEN: Final = -7046029254386353131
"""2^64 divided by the golden ratio, as int64."""


def perturb_inputs_(stack: Tensor, members: Sequence[tuple[int, int]], precision: Precision) -> None:
    """Perturb an input in some members, (row, number), of a stack (replicas, rows, *shape) of which all are the same.

    `MemberNoise.perturb_input_` says how.
    """
    loops, change = ready_loops(), 2 * precision.u
    if loops is None or not lies_flat(stack):
        _perturb_by_torch(stack, members, change, precision.largest)
        return
    (replicas, rows, *shape), size = stack.shape, stack[0, 0].numel()
    factors = InputChange(1 + change, 1 - change, precision.largest)
    for row, number in members if size else ():
        dim = _halved_dim(number, len(shape))
        length, step = (0, 1) if dim is None else (shape[dim], 1 if dim == -1 else size // shape[0])
        numbers = replicas, rows, size, row, length, step, GOLDEN, _odd_number(number)
        loops.perturb_inputs(stack.data_ptr(), *numbers, factors)


def _perturb_by_torch(stack: Tensor, members: Sequence[tuple[int, int]], change: float, largest: float) -> None:
    """The same, with the same bits, by torch's operations."""
    given, rank = stack[:, 0], stack.dim() - 2
    magnitude = given.abs()
    raised = (magnitude * (1 + change)).clamp_(max=largest).copysign_(given)
    lowered = (magnitude * (1 - change)).copysign_(given)
    if magnitude.numel() and not float(magnitude.amax()) < math.inf:  # A NaN is not less.
        finite = torch.isfinite(given)
        raised, lowered = torch.where(finite, raised, given), torch.where(finite, lowered, given)
    mixed = _mix(magnitude.view(torch.int64), GOLDEN)
    for row, number in members if magnitude.numel() else ():
        dim = _halved_dim(number, rank)
        if dim is None:
            chosen = (_mix(mixed, _odd_number(number)) & 1).to(torch.bool)
        else:
            chosen = magnitude > 0.5 * magnitude.amax(dim, True) + 0.5 * magnitude.amin(dim, True)
        stack[:, row].copy_(torch.where(chosen, raised, lowered))


def _halved_dim(member: int, rank: int) -> int | None:
    """The dim along which a member raises the larger half of the elements, the first or the last one of a replica's.

    That moves a variance as far as changes of this size can. None where it raises elements at random.
    """
    kind = member // 3 % 4
    if not rank or kind % 2 == 0:
        return None
    return -1 if kind == 1 else -rank


def _odd_number(member: int) -> int:
    """By which the number of a magnitude is multiplied for the bit that decides for a member."""
    return 2 * (member * 2654435761) + 1


def _mix(numbers: Tensor, factor: int) -> Tensor:
    """Numbers of int64 times an odd number, the high bits mixed into the low ones."""
    mixed = numbers * factor
    return mixed.bitwise_xor_(mixed >> 31)
