"""Judges by all rows of an output what no row of it tells alone: an error that has one sign in them all.

The roundings of a long sum are a walk, as long as an error of 2^-18 where there are thousands of terms. Over rows walks
average out and a wrong factor does not. So the mean of error over bound, each error taken with the sign of its value,
is compared with what float32 itself makes of it by adding the same terms up in several orders.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from fuzz.oracles.comparison.elements import ElementComparison
from fuzz.reference.envelope import SAFETY, Expected

__all__ = ["GROUPS", "Bias", "find_bias", "may_be_biased", "relative_errors", "rows_that_may_be_biased"]

ALARM = 1e-12
"""The probability with which the walks of a right kernel may be taken for a bias."""
DEVIATIONS = math.sqrt(2 * math.log(2 / ALARM))
"""A sum of independent, symmetric errors is beyond so many deviations with that probability at most (Hoeffding)."""
GOLDEN = -7046029254386353131
"""2^64 divided by the golden ratio, as int64: multiplied by it, numbers near each other are far apart."""
GROUPS = 32
"""Independent groups of elements from which their deviation is known well enough."""


@dataclass(frozen=True)
class Bias:
    """The mean of error over bound of an output, and how far from 0 walks may bring it. `elements` are those counted.

    With `by_size` errors count as positive where the output is too large in size, else where it is too large.
    """

    mean: float
    limit: float
    elements: int
    by_size: bool


def relative_errors(output: torch.Tensor, expected: Expected, compared: ElementComparison) -> torch.Tensor:
    """Error over bound of each element, with its sign; 0 where there is no bound, and in what is no float."""
    value = expected.value
    if not output.is_floating_point():
        return torch.zeros(value.shape, dtype=torch.float64, device=value.device)
    error = output.to(value.device).double() - value
    usable = torch.isfinite(error) & torch.isfinite(compared.bound)
    return torch.where(usable, error / compared.bound, 0.0)


def orient(value: torch.Tensor) -> Iterator[torch.Tensor]:
    """The signs with which errors are added up: those of the values, and one sign for all."""
    yield torch.sign(value)
    yield torch.ones_like(value)


def may_be_biased(errors: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether errors are on the average more than the bound that short sums have: only then walks may be the reason."""
    return bool(rows_that_may_be_biased(errors[None], value[None]))


def rows_that_may_be_biased(errors: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """The same for each of stacked replicas, (rows, *shape): bool (rows)."""
    rows = len(errors)
    if errors.numel() < GROUPS * rows or not value.is_floating_point():
        return torch.zeros(rows, dtype=torch.bool, device=errors.device)
    signed = torch.stack([errors * signs for signs in orient(value.nan_to_num(0.0, 0.0, 0.0))])
    return (signed.flatten(2).mean(2).abs() > 1).any(0)


def find_bias(errors: torch.Tensor, orders: torch.Tensor, value: torch.Tensor) -> Bias | None:
    """The bias of an output that walks do not explain.

    `errors` are `relative_errors`, `orders` what each order of every sum makes them, (orders, *shape).
    """
    for number, signs in enumerate(orient(value.nan_to_num(0.0, 0.0, 0.0))):
        mean, limit = float((errors * signs).mean()), walk_limit(orders * signs, errors * signs)
        if abs(mean) > limit:
            return Bias(mean, limit, errors.numel(), number == 0)
    return None


def walk_limit(orders: torch.Tensor, errors: torch.Tensor) -> float:
    """How far from 0 the mean of error over bound may be: 1, and what the walks of sums may add to it.

    Elements are grouped by leading and by trailing dims, and by the grouping in which walks, or the errors themselves
    about their mean, deviate most. The limit is infinite where that has few groups and no other one deviates like it,
    and where an order shifts all groups, as it does where terms are equal: then errors are not independent.
    """
    orders = torch.cat([orders, (errors - errors.mean()).unsqueeze(0)]) / max(errors.numel(), 1)
    found = list(_deviations(orders))
    deviation = max(one for one, _ in found)
    groups = max(count for one, count in found if 2 * one >= deviation)
    systematic = float(orders.flatten(1).sum(1).abs().max())
    if groups < GROUPS or systematic > SAFETY * deviation:
        return math.inf
    return 1 + SAFETY * systematic + DEVIATIONS * deviation


def _deviations(orders: torch.Tensor) -> Iterator[tuple[float, int]]:
    """(deviation of the mean over all elements, groups) of each grouping that has two groups at least."""
    yield _deviation(orders.flatten(1))
    for split in range(2, orders.dim()):
        blocks = orders.flatten(1, split - 1).flatten(2)
        yield from (_deviation(blocks.sum(dim)) for dim in (1, 2) if blocks.shape[3 - dim] > 1)


def _deviation(groups: torch.Tensor) -> tuple[float, int]:
    """The root of the sum of squares of (orders and the errors, groups), and how many groups.

    Groups that lose the same in every order count as one.
    """
    _, places = torch.unique(_keys(groups[:-1]), return_inverse=True)
    count = int(places.max()) + 1
    merged = torch.zeros(len(groups), count, dtype=groups.dtype, device=groups.device).index_add_(1, places, groups)
    return float(merged.square().sum(1).max().sqrt()), count


def _keys(columns: torch.Tensor) -> torch.Tensor:
    """A whole number for each column of doubles, equal where they are. torch.unique of columns is slow."""
    keys = torch.zeros(columns.shape[1], dtype=torch.int64, device=columns.device)
    for row in (columns + 0.0).contiguous():
        keys = (keys ^ row.view(torch.int64)) * GOLDEN
        keys = keys ^ (keys >> 31)
    return keys
