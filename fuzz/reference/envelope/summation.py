"""Computes how far sums in float32 stray from the exact ones, by adding the terms up in orders that kernels use.

Each addition's rounding is exact in float64. Results are either strays, how far a sum may be off in any order, or
losses, what it loses in each of `ORDERS` orders, with its sign.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

__all__ = [
    *("LARGEST", "LARGEST_PRODUCT", "ORDERS", "Measure", "tree_steps"),
    *("losses", "measure_product", "measure_scan", "measure_sum", "strays"),
]

LARGEST: Final = 1 << 22
"""Terms of all sums of one operation up to which they are added up."""
LARGEST_PRODUCT: Final = 1 << 21
"""Terms of all sums of one product of matrices up to which they are added up."""
TERMS_AT_ONCE: Final = 1 << 16
"""Terms of a product of matrices that are added up together, where its rows are short: what fits the cache."""
ORDERS: Final = 3
"""How many orders terms are added up in: from the first on, from the last on, in a tree."""
DEVIATIONS: Final = 1.5
"""How many deviations of a walk of such roundings count: at a safety of 4 these are six."""
Array = np.ndarray[Any, np.dtype[Any]]
Measure = Callable[[list[Array], bool], Array]
"""`strays` or `losses` of (what each addition loses, by order; whether of each prefix): (kinds, sums[, prefixes])."""


def tree_steps(n: float) -> float:
    """Roundings, in units of u times the sum of absolute terms, that any sum of n terms may make: a tree's are random.

    What a tree or a loop does with terms whose roundings share a sign is computed from these terms.
    """
    return 1 + math.log2(n + 1) / 4 if n > 1 else 0.0


def strays(lost: list[Array], prefixes: bool) -> Array:
    """How far each sum may be off in any order, one kind.

    It is the size of the sum of the roundings, which is systematic where terms are equal, plus `DEVIATIONS` times the
    root of the sum of their squares, since in another order it is another walk.
    """
    add = np.cumsum if prefixes else np.sum
    walks = [np.abs(add(one, axis=1)) + DEVIATIONS * np.sqrt(add(np.square(one), axis=1)) for one in lost]
    stray: Array = np.max(walks, axis=0)[None]
    return stray


def losses(lost: list[Array], prefixes: bool) -> Array:
    """What each sum loses, with its sign, a kind an order; of a scan always the same."""
    lost = lost * (ORDERS // len(lost))
    return np.stack([one.cumsum(1) if prefixes else one.sum(1) for one in lost])


def measure_sum(terms: Tensor, dims: list[int], measure: Measure) -> Tensor:
    """(kinds, *shape) of the sum of terms over dims, which are kept with 1."""
    kept = [d for d in range(terms.dim()) if d not in dims]
    rows = _to_rows(terms.permute(*kept, *dims), math.prod(terms.shape[d] for d in dims))
    found = measure(list(_orders(rows)), False)
    shape = [1 if d in dims else size for d, size in enumerate(terms.shape)]
    return torch.from_numpy(found).to(terms.device).reshape(-1, *shape)


def measure_scan(terms: Tensor, dim: int, measure: Measure) -> Tensor:
    """(kinds, *shape) of the prefixes of terms along dim, added up in sequence."""
    last = terms.movedim(dim, -1)
    found = measure([_lost_in_sequence(_to_rows(last, last.shape[-1]))], True)
    found = np.concatenate([np.zeros((*found.shape[:2], 1)), found], 2)
    return torch.from_numpy(found).to(terms.device).reshape(-1, *last.shape).movedim(-1, dim + 1)


def measure_product(a: Tensor, b: Tensor, measure: Measure) -> Tensor:
    """(kinds, .., M, N) of the product of matrices (.., M, K) and (.., K, N), some rows of the first at a time."""
    columns = b.transpose(-1, -2).unsqueeze(-3)
    parts = torch.split(a, max(1, TERMS_AT_ONCE // columns.numel()), -2)
    measured = [measure_sum(part.unsqueeze(-2) * columns, [columns.dim() - 1], measure) for part in parts]
    return torch.cat([part.squeeze(-1) for part in measured], -2)


def _to_rows(terms: Tensor, size: int) -> Array:
    """Terms as float32, (sums, size)."""
    with np.errstate(over="ignore"):
        rows: Array = terms.detach().cpu().reshape(-1, size).numpy().astype(np.float32)
    return rows


def _orders(rows: Array) -> Iterator[Array]:
    """What each addition loses, by order: from the first term on, from the last, in a tree."""
    yield _lost_in_sequence(rows)
    yield _lost_in_sequence(rows[:, ::-1])
    yield _lost_in_tree(rows)


@np.errstate(over="ignore", invalid="ignore")
def _lost_in_sequence(rows: Array) -> Array:
    """(sums, n - 1)."""
    sums = np.add.accumulate(rows, axis=1)
    return _finite(_lost(sums[:, 1:], sums[:, :-1], rows[:, 1:]))


@np.errstate(over="ignore", invalid="ignore")
def _lost_in_tree(rows: Array) -> Array:
    """(sums, additions): the first half is added to the second, again and again."""
    lost = [np.zeros((len(rows), 1))]
    while rows.shape[1] > 1:
        half = (rows.shape[1] + 1) // 2
        left, right = rows[:, :half], np.zeros((len(rows), half), np.float32)
        right[:, : rows.shape[1] - half] = rows[:, half:]
        rows = left + right
        lost.append(_lost(rows, left, right))
    return _finite(np.concatenate(lost, 1))


def _lost(sums: Array, left: Array, right: Array) -> Array:
    """The sums less left + right, which float64 holds."""
    exact = np.add(left, right, dtype=np.float64)
    return np.subtract(sums, exact, out=exact)


def _finite(lost: Array) -> Array:
    """The losses, 0 where a sum overflows; changed in place, and only where one total shows that there is one."""
    return lost if np.isfinite(lost.sum()) else np.nan_to_num(lost, copy=False, nan=0.0, posinf=0.0, neginf=0.0)
