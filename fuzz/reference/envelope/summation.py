"""Computes how far sums in float32 stray from the exact ones, by adding the terms up in orders that kernels use."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

__all__ = ["LARGEST", "stray_of_scan", "stray_of_sum", "tree_steps"]

LARGEST: Final = 1 << 22
"""Terms of all sums of one operation up to which they are added up."""
DEVIATIONS: Final = 1.5
"""How many deviations of a walk of such roundings count: at a safety of 4 these are six."""
Array = np.ndarray[Any, np.dtype[Any]]


def tree_steps(n: float) -> float:
    """Roundings, in units of u times the sum of absolute terms, that any sum of n terms may make: a tree's are random.

    What a tree or a loop does with terms whose roundings share a sign is computed from these terms.
    """
    return 1 + math.log2(n + 1) / 4 if n > 1 else 0.0


def stray_of_sum(terms: Tensor, dims: list[int]) -> Tensor:
    """How far the sum over dims may be off, added up in sequence from either end or by a tree; dims are kept with 1.

    Each addition's rounding is exact in float64. The result is the size of their sum, which is systematic where terms
    are alike, plus `DEVIATIONS` times the root of the sum of their squares, since in another order it is another walk.
    """
    kept = [d for d in range(terms.dim()) if d not in dims]
    rows = _to_rows(terms.permute(*kept, *dims), math.prod(terms.shape[d] for d in dims))
    stray = np.max([_walk(lost) for lost in _orders(rows)], axis=0)
    shape = [1 if d in dims else size for d, size in enumerate(terms.shape)]
    return torch.from_numpy(stray).to(terms.device).reshape(shape)


def stray_of_scan(terms: Tensor, dim: int) -> Tensor:
    """The same for each prefix of the terms along dim, added up in sequence."""
    last = terms.movedim(dim, -1)
    lost = _lost_in_sequence(_to_rows(last, last.shape[-1]))
    walks = np.abs(lost.cumsum(1)) + DEVIATIONS * np.sqrt(np.square(lost).cumsum(1))
    walks = np.concatenate([np.zeros((len(walks), 1)), walks], 1)
    return torch.from_numpy(walks).to(terms.device).reshape(last.shape).movedim(-1, dim)


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
    sums = np.add.accumulate(rows, axis=1).astype(np.float64)
    return np.nan_to_num(sums[:, 1:] - (sums[:, :-1] + rows[:, 1:]), nan=0.0, posinf=0.0, neginf=0.0)


@np.errstate(over="ignore", invalid="ignore")
def _lost_in_tree(rows: Array) -> Array:
    """(sums, additions): the first half is added to the second, again and again."""
    lost = [np.zeros((len(rows), 1))]
    while rows.shape[1] > 1:
        half = (rows.shape[1] + 1) // 2
        left, right = rows[:, :half], rows[:, half:]
        right = np.pad(right, ((0, 0), (0, half - right.shape[1])))
        rows = left + right
        lost.append(rows.astype(np.float64) - (left.astype(np.float64) + right))
    return np.nan_to_num(np.concatenate(lost, 1), nan=0.0, posinf=0.0, neginf=0.0)


def _walk(lost: Array) -> Array:
    """How far roundings lead, (sums,)."""
    walk: Array = np.abs(lost.sum(1)) + DEVIATIONS * np.sqrt(np.square(lost).sum(1))
    return walk
