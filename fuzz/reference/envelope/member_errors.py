"""What single members err: those that add up the terms of sums in float32 as kernels do, and those that never do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fuzz.reference.envelope.evaluate import HOST_LIMIT, Input, Reference, run_members
from fuzz.reference.envelope.noise import MemberNoise, StackTooLarge
from fuzz.reference.envelope.precision import Precision, Ulps
from fuzz.reference.envelope.summation import ORDERS, signed_errors

__all__ = ["MemberErrors", "evaluate_members", "evaluate_orders"]


class SummationOrderNoise(MemberNoise):
    """Row 0 is unperturbed. Of each further row every sum has lost what float32 loses in one order of its terms."""

    def __init__(self, precision: Precision) -> None:
        super().__init__(precision, (1, 2, 4)[:ORDERS], 0, False, None)
        self.is_thorough = True

    def measure(self, errors: Callable[..., Tensor], *terms: Any) -> Tensor:
        """(rows, *shape) of the errors by order of one replica, (orders, 1, *shape)."""
        found = errors(*terms, signed_errors)
        return torch.cat([torch.zeros_like(found[:1]), found]).squeeze(1)

    def add_error_(
        self, t: Tensor, amplitude: Tensor, factor: float, tiny: float = 0.0, sum_error: Tensor | None = None
    ) -> Tensor:
        return t if sum_error is None else t.add_(sum_error)

    def round_(self, t: Tensor, factor: float = 1.0, tiny: bool = True) -> Tensor:
        return t

    def round_constant_(self, t: Tensor, size: float) -> Tensor:
        return t

    def round_function_(self, t: Tensor, x: Tensor | None, error: Ulps) -> Tensor:
        return t

    def add_working_error_(self, t: Tensor, size: Tensor) -> None:
        """Nothing is lost."""

    def flush_result_(self, t: Tensor, unit: float) -> Tensor:
        return t

    def flush_terms_(self, t: Tensor, amount: Tensor) -> None:
        """Nothing is lost."""

    def widen(self, t: Tensor) -> Tensor:
        return t

    def from_other_members(self, t: Tensor) -> Tensor:
        return t


def evaluate_orders(reference: Reference, inputs: Mapping[str, Input], precision: Precision) -> dict[str, Tensor]:
    """What each order of every sum makes each output err, (orders, *shape) by name; 0 for what is no float."""
    rows = run_members(reference, inputs, SummationOrderNoise(precision))
    return {name: _errors(stack, ORDERS) for name, (stack, _) in rows.items()}


@dataclass(frozen=True)
class MemberErrors:
    """How far members are from the value of one output, (members, *shape): by perturbed steps, and by perturbed inputs.

    The latter count once, and not times the safety factor.
    """

    steps: Tensor
    inputs: Tensor


def evaluate_members(
    reference: Reference, inputs: Mapping[str, Input], precision: Precision, members: int
) -> dict[str, MemberErrors]:
    """What each of so many members, none of which adds up the terms of sums, makes each output err.

    Nothing where that takes more memory than one group of members may.
    """
    noise = MemberNoise(precision, tuple(range(1, members + 1)), 0, False, HOST_LIMIT)
    try:
        stacks = run_members(reference, inputs, noise)
    except StackTooLarge:
        return {}
    steps = [row - 1 for row in range(1, noise.count) if row not in noise.input_rows]
    perturbed = [row - 1 for row in noise.input_rows]
    found = {}
    for name, (stack, is_reduced) in stacks.items():
        errors = _errors(stack, members)
        found[name] = MemberErrors(errors[steps], errors[perturbed if is_reduced else []])
    return found


def _errors(rows: Tensor, count: int) -> Tensor:
    """Distance of further rows from the first; 0 where it is not finite, or where the output depends on no input."""
    if len(rows) == 1 or not rows.is_floating_point():
        return torch.zeros(count, *rows.shape[1:], dtype=torch.float64, device=rows.device)
    return (rows[1:] - rows[:1]).nan_to_num(0.0, 0.0, 0.0)
