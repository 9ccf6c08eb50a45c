"""Compares the elements of a row together, by the residuals of their errors after those of the sums that they share.

A softmax divides a row by one sum. The rounding of a long sum may change each element by 2^-18 of itself, but it
changes all elements of the row by one pattern. The patterns of a row are the errors of each order of all sums, a common
factor and a common shift. A least-squares fit of the patterns to a row's errors leaves residuals; they may be no
larger, element by element, than the residuals of the members' errors.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fuzz.reference.envelope import SAFETY

__all__ = ["ELEMENTS", "Row", "RowErrors", "find_uneven_row", "may_be_uneven", "rows_that_may_be_uneven"]

ELEMENTS = 32
"""Rows of fewer elements are not compared: walks of so short sums hide little, and members cost time."""
ROWS = 8
"""The number of rows that are compared: those with the largest errors over bound."""
ROUNDS = 40
"""Rounds of reweighting (Lawson), each of which gives a lower bound of the largest residual."""
RANK = 1e-9
"""Singular values below this share of the largest one are rounding errors of float64."""
FREE = 0.5
"""An element of this leverage or more may have a residual of its whole bound: twice the number of patterns at most.

The decision errors-within-a-row.md shows what each of these constants was measured to do.
"""


@dataclass(frozen=True)
class RowErrors:
    """Errors over bound of one output, (rows, elements), and of what errors may consist, in the same unit.

    `steps` and `inputs` are those of members that perturb steps and inputs, (members, rows, elements); `orders` what
    each order of all sums makes; `floor` the part of the bound that is rounding of the output; `factor` and `shift`
    what a common factor and a common shift of the row's values are.
    """

    errors: Tensor
    orders: Tensor
    steps: Tensor
    inputs: Tensor
    floor: Tensor
    factor: Tensor
    shift: Tensor

    def row(self, number: int) -> RowErrors:
        """Those of one row, without the dim of rows."""
        return RowErrors(*(one[..., number, :] for one in vars(self).values()))


@dataclass(frozen=True)
class Row:
    """By which ratio the residuals of a row exceed their bounds, for any multiples of its patterns.

    `residual` is that of each element over its bound, for the multiples of least squares.
    """

    number: int
    ratio: float
    residual: Tensor


def may_be_uneven(output: Tensor, symptom: Tensor) -> bool:
    """Whether rows of an output are long enough, and an element exceeds a bound that has no room for long sums."""
    return bool(rows_that_may_be_uneven(output[None], symptom[None]))


def rows_that_may_be_uneven(outputs: Tensor, symptom: Tensor) -> Tensor:
    """The same for each of stacked replicas, (rows, *shape): bool (rows)."""
    if not outputs.is_floating_point() or outputs.dim() == 1 or outputs.shape[-1] < ELEMENTS:
        return torch.zeros(len(outputs), dtype=torch.bool, device=symptom.device)
    return symptom.flatten(1).any(1)


def find_uneven_row(found: RowErrors) -> Row | None:
    """The row whose residuals exceed their bounds most; None where no row's do."""
    if found.errors.shape[-1] < ELEMENTS:
        return None
    worst = found.errors.abs().amax(-1).sort(descending=True).indices[:ROWS]
    compared = [compare_row(int(number), found.row(int(number))) for number in worst]
    return max((row for row in compared if row.ratio > 1), key=lambda row: row.ratio, default=None)


def compare_row(number: int, row: RowErrors) -> Row:
    """By which ratio the residuals of a row exceed their bounds; 0 where they do not."""
    orders = distinct_orders(row.orders)
    patterns = torch.stack([*orders, row.factor, row.shift])
    bounds = residual_bounds(row, patterns)
    # The kernel may add up in an order that is none of these, and has another pattern. How far each order is from the
    # span of the others says how far that pattern may be from all of them. Where the terms of each sum are equal, most
    # orders are the same, and one says nothing of another.
    count = len(orders)
    if count == 1 and bool(orders[0].any()):
        return Row(number, 0.0, torch.zeros_like(row.errors))
    others = (torch.cat([patterns[:own], patterns[own + 1 :]]) for own in range(count))
    cross = max(
        float((residual_of(order, span(rest)) / bounds).abs().max()) for order, rest in zip(orders, others, strict=True)
    )
    errors, patterns = row.errors / bounds, patterns / bounds
    residual = residual_of(errors, span(patterns))
    if float(residual.abs().max()) <= 1:
        return Row(number, 0.0, residual)
    return Row(number, least_residual(errors, patterns) / (1 + SAFETY * cross), residual)


def distinct_orders(orders: Tensor) -> list[Tensor]:
    """Those of the errors of orders, (orders, elements), that differ from all before them."""
    found: list[Tensor] = []
    for order in orders:
        if all(float((order - other).norm()) > RANK * float(other.norm()) for other in found):
            found.append(order)
    return found


def residual_bounds(row: RowErrors, patterns: Tensor) -> Tensor:
    """The bound of each element's residual: the safety factor times the largest residual of a member.

    Never 0, as it would be of an element that is left out of the comparison, of which all is 0.
    """
    basis = span(patterns)
    leverage = basis.square().sum(0)
    spread = torch.zeros_like(row.floor)
    for members, safety in ((row.steps, SAFETY), (row.inputs, 1.0)):
        if len(members):
            spread = torch.maximum(spread, safety * residual_of(members, basis).abs().amax(0))
    bounds = spread / (1 - leverage.clamp(max=FREE)).sqrt() + row.floor
    return torch.where(leverage > FREE, 1.0, bounds.clamp(RANK, 1.0))


def span(patterns: Tensor) -> Tensor:
    """An orthonormal basis, (rank, elements), of the patterns, each of which counts equally, however small.

    Computed by the processor: a GPU's library of decompositions fails where others hold that GPU's memory.
    """
    sizes = patterns.norm(dim=1, keepdim=True)
    unit = patterns / sizes.clamp(min=torch.finfo(sizes.dtype).tiny)
    _, values, basis = torch.linalg.svd(unit.cpu(), full_matrices=False)
    chosen: Tensor = basis[values > RANK * values.max()]
    return chosen.to(patterns.device)


def residual_of(errors: Tensor, basis: Tensor) -> Tensor:
    """The residuals of errors, (.., elements), after a least-squares fit of the basis."""
    return errors - (errors @ basis.T) @ basis


def least_residual(errors: Tensor, patterns: Tensor) -> float:
    """A lower bound of the largest residual of the errors, for any multiples of the patterns.

    For weights of sum 1 the weighted mean of squares is at most the largest square, whatever the multiples: so its
    least value is a lower bound. Weights move towards the largest residuals (Lawson).
    """
    best, weights = 0.0, torch.full_like(errors, 1 / len(errors))
    for _ in range(ROUNDS):
        roots = weights.sqrt()
        residual = residual_of(errors * roots, span(patterns * roots))
        best = max(best, float(residual.norm()))
        weights = residual.abs() * roots  # The weight times the unweighted residual.
        if not float(weights.sum()):
            break
        weights = weights / weights.sum()
    return best
