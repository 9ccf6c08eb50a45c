"""Judges the elements of a row together, without what the sums that they share may err.

A softmax divides a row by one sum. The walk of a long sum may be as long as an error of 2^-18 in each element, but it
moves all elements of the row by one pattern. Patterns of a row are what each order of all sums makes of it, a common
factor and a common shift. What no multiples of the patterns explain of a row's errors may be no larger, element by
element, than what they do not explain of the members' errors.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fuzz.reference.envelope import SAFETY

__all__ = ["ELEMENTS", "Row", "RowErrors", "find_uneven_row", "may_be_uneven"]

ELEMENTS = 32
"""Elements of a row from which its patterns are known from its errors."""
ROWS = 8
"""Rows that are judged: those with the largest errors over bound."""
ROUNDS = 40
"""Rounds of reweighting, each of which gives a lower bound of the least error that multiples of patterns leave."""
RANK = 1e-9
"""What a pattern adds to others less than this share of the largest one is rounding of float64."""
FREE = 0.5
"""An element that patterns can follow by this share is left its whole bound."""


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
    """How far the errors of a row exceed what its patterns may leave of them, whatever their multiples.

    `left` is the error over what may be left of each element, after the multiples of least squares.
    """

    number: int
    ratio: float
    left: Tensor


def may_be_uneven(output: Tensor, symptom: Tensor) -> bool:
    """Whether rows of an output are long enough to be judged, and an element is outside a bound that holds no walks."""
    return output.is_floating_point() and output.dim() > 0 and output.shape[-1] >= ELEMENTS and bool(symptom.any())


def find_uneven_row(found: RowErrors) -> Row | None:
    """The row whose errors exceed most what may be left of them; None where no row's do."""
    if found.errors.shape[-1] < ELEMENTS:
        return None
    worst = found.errors.abs().amax(-1).sort(descending=True).indices[:ROWS]
    judged = [judge_row(int(number), found.row(int(number))) for number in worst]
    return max((row for row in judged if row.ratio > 1), key=lambda row: row.ratio, default=None)


def judge_row(number: int, row: RowErrors) -> Row:
    """How far the errors of a row exceed what may be left of them; not at all where its patterns are not few."""
    patterns = torch.stack([*row.orders, row.factor, row.shift])
    due = may_be_left(row, patterns)
    # A sum of the kernel's that no order errs by has no pattern; where one order does not follow from the others, there
    # may be such sums.
    count = len(row.orders)
    others = (torch.cat([patterns[:own], patterns[own + 1 :]]) for own in range(count))
    cross = max(
        float((left_of(order, span(rest)) / due).abs().max()) for order, rest in zip(row.orders, others, strict=True)
    )
    errors, patterns = row.errors / due, patterns / due
    left = left_of(errors, span(patterns))
    if float(left.abs().max()) <= 1:  # These multiples leave no more than they may.
        return Row(number, 0.0, left)
    return Row(number, least_left(errors, patterns) / (1 + SAFETY * cross), left)


def may_be_left(row: RowErrors, patterns: Tensor) -> Tensor:
    """What the patterns may leave of each element's error: the safety factor times what they leave of members'."""
    basis = span(patterns)
    leverage = basis.square().sum(0)
    spread = torch.zeros_like(row.floor)
    for members, safety in ((row.steps, SAFETY), (row.inputs, 1.0)):
        if len(members):
            spread = torch.maximum(spread, safety * left_of(members, basis).abs().amax(0))
    due = spread / (1 - leverage.clamp(max=FREE)).sqrt() + row.floor
    return torch.where(leverage > FREE, 1.0, due.clamp(max=1.0))


def span(patterns: Tensor) -> Tensor:
    """An orthonormal basis, (rank, elements), of the patterns, each of which counts alike, however small."""
    sizes = patterns.norm(dim=1, keepdim=True)
    alike = patterns / sizes.clamp(min=torch.finfo(sizes.dtype).tiny)
    _, values, basis = torch.linalg.svd(alike, full_matrices=False)
    chosen: Tensor = basis[values > RANK * values.max()]
    return chosen


def left_of(errors: Tensor, basis: Tensor) -> Tensor:
    """What a basis leaves of errors, (.., elements), by least squares."""
    return errors - (errors @ basis.T) @ basis


def least_left(errors: Tensor, patterns: Tensor) -> float:
    """A lower bound of the largest element that any multiples of the patterns leave of errors.

    For weights of sum 1 the weighted mean of squares is at most the largest square, whatever the multiples: so its
    least value is a lower bound. Weights move towards the elements that have most left (Lawson).
    """
    best, weights = 0.0, torch.full_like(errors, 1 / len(errors))
    for _ in range(ROUNDS):
        roots = weights.sqrt()
        left = left_of(errors * roots, span(patterns * roots))
        best = max(best, float(left.norm()))
        weights = left.abs() * roots  # The weight times what is left.
        if not float(weights.sum()):
            break
        weights = weights / weights.sum()
    return best
