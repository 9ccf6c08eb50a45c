"""Makes pools of noise, a fixed row for each member of a stack; every operation reads a window of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

__all__ = ["SPAN", "UNIT64", "Pools", "pools", "cache_noise", "perturbs_inputs"]

SPAN: Final = 32749
"""Number of distinct offsets, a prime: longer draws repeat after so many elements, out of step with a tensor's rows."""
BLOCK: Final = 4099
"""Elements of a run of noise that is alike, for the members that have such runs."""
UNIT64: Final = 2.0**-52
"""Perturbation of members that measure float64 itself: 1 + 2^-53*r would round to 1 in most draws."""
FEW: Final = 16
"""Members of a pool of some MiB, which is kept."""
PATIENCE: Final = 256
"""Stacks after which unused pools of more members are dropped."""
Row = np.ndarray[tuple[int], np.dtype[np.float64]]


def perturbs_inputs(member: int) -> bool:
    """Whether a member perturbs the inputs, and no step."""
    return member > 0 and member % 3 == 0


@lru_cache(maxsize=64)
def _uniform_row(member: int) -> Row:
    """Uniform doubles in [-1, 1] of one member, 2*SPAN of them. Members that measure float64 have negative numbers."""
    return np.random.Generator(np.random.Philox(key=member % 2**32)).uniform(-1.0, 1.0, 2 * SPAN)


def cache_noise() -> None:
    """Compute the noise of the first members, so that processes forked from this one share it."""
    for member in (*range(-4, 0), *range(1, 9)):
        _uniform_row(member)


def _noise_row(member: int) -> Row:
    """The noise of one member: independent for the first ones; from the ninth on in blocks, for what these do not see.

    An operation takes a window of the row, so that one on a small tensor lies in one block. In some blocks the noise is
    0: where a result depends on the error of a mean as 1/error (a row of equal terms), a kernel that happens to be
    exact there is further from the truth than any member that errs. In some all elements err alike: equal rows do.
    Members that perturb the inputs have none.
    """
    if perturbs_inputs(member):
        return np.zeros(2 * SPAN)
    if member <= 8:
        return _uniform_row(member)
    blocks = np.random.Generator(np.random.Philox(key=2**33 + member)).integers(-1, 2, 2 * SPAN // BLOCK + 1)
    shape = np.repeat(blocks, BLOCK)[: 2 * SPAN]
    shaped: Row = shape * _uniform_row(member) if member % 2 else shape.astype(np.float64)
    return shaped


def _underflow_row(member: int) -> Row:
    """Underflow of one member, in [-1, 1]: -1 makes a zero of a tiny result.

    Members 1 and 2 have opposite signs of size 1, so that one of them meets that zero. The others have any size, or
    errors of equal size would often cancel in all members at once. Members that perturb the inputs have none.
    """
    if perturbs_inputs(member):
        return np.zeros(2 * SPAN)
    if member <= 2:
        sign: Row = np.sign(_uniform_row(1)) * (1.0 if member == 1 else -1.0)
        return sign
    r = _noise_row(member)
    size: Row = np.sign(r) * (0.25 + 0.75 * np.abs(r))
    return size


def _make_pool(kind: str, factor: float, ids: tuple[int, ...], u: float, device: torch.device) -> Tensor:
    """A pool: (1 + len(ids), 2*SPAN) doubles; row 0, of the unperturbed member, changes nothing.

    "relative": r*u. "factor": 1 + factor*r*u. "tiny": `_underflow_row`, and 0 where float64 itself is measured.
    """
    if kind == "tiny":
        zeros = np.zeros(2 * SPAN)
        return torch.from_numpy(np.stack([zeros, *(_underflow_row(i) if i > 0 else zeros for i in ids)])).to(device)
    noise = np.stack([np.zeros(2 * SPAN), *(_noise_row(i) for i in ids)])
    unit = np.array([0.0, *(u if i > 0 else UNIT64 for i in ids)])[:, None]
    pool = noise * unit if kind == "relative" else 1.0 + factor * unit * noise
    return torch.from_numpy(pool).to(device)


_cached_pool = lru_cache(maxsize=24)(_make_pool)


@dataclass
class Pools:
    """The pools of noise that stacks share.

    Pools of many members take tens of MiB each. They are kept while stacks use them often, as in shrinking.
    """

    large: dict[tuple[Any, ...], Tensor] = field(default_factory=dict)
    idle: int = 0

    def start_stack(self) -> None:
        """Count a stack. Drops the pools of many members when none has been used for `PATIENCE` stacks."""
        self.idle += 1
        if self.idle > PATIENCE:
            self.large.clear()

    def get(self, kind: str, factor: float, ids: tuple[int, ...], u: float, device: torch.device) -> Tensor:
        """The pool of some members: see `_make_pool`."""
        key = kind, factor, ids, u, device
        if len(ids) <= FEW:
            return _cached_pool(*key)
        self.idle = 0
        if key not in self.large:
            self.large[key] = _make_pool(*key)
        return self.large[key]


pools = Pools()
