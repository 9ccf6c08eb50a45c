"""Makes pools of noise, a fixed row for each member of a stack; every operation reads a window of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

__all__ = [
    *("SPAN", "UNIT64", "NoisePool", "NoisePools", "pools"),
    *("cache_noise", "noise_on_device", "perturbs_inputs", "rounds_itself", "window_strides"),
]

SPAN: Final = 32749
"""Number of distinct offsets, a prime: longer draws repeat after so many elements, out of step with a tensor's rows."""
BLOCK: Final = 4099
"""Elements of a run of equal noise, for the members that have such runs."""
UNIT64: Final = 2.0**-52
"""Perturbation of members that measure float64 itself: 1 + 2^-53*r would round to 1 in most draws."""
COLUMNS: Final = 64
"""Columns of a pool that are computed together."""
MEMBERS: Final = 96
"""Members for which there is room at first."""
UNCERTAIN: Final = 4
"""Members that measure float64 itself."""
FEW: Final = 16
"""Members of a pool of some MiB, which is kept."""
UNUSED_STACKS: Final = 256
"""Stacks after which unused pools of more members are dropped."""
WINDOWS: Final = 1024
"""Views of a pool that are kept: cases of one shape take the same ones, in one step after another."""
Rows = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


def perturbs_inputs(member: int) -> bool:
    """Whether a member perturbs the inputs, and no step."""
    return member > 0 and member % 3 == 0


def rounds_itself(member: int) -> bool:
    """Whether a member computes in the working precision itself, without noise: late ones, which few cases need."""
    return member > 0 and member % 40 == 0


class NoiseTable:
    """The noise of members, a row of 2*SPAN doubles in [-1, 1] for each; row 0, of the unperturbed member, is 0.

    Rows are independent for the first members; from the ninth on they are in blocks, for what the first do not see. An
    operation takes a window of the row, so that one on a small tensor lies in one block. In some blocks the noise is 0:
    where a result depends on the error of a mean as 1/error (a row of equal terms), a kernel that happens to be exact
    there is further from the truth than any member that errs. In some the noise of all elements is equal, as it is in
    equal rows. Members that perturb the inputs have none, nor have those that round as the working precision does.
    Those with negative numbers, which measure float64 itself, have the last rows. A row is drawn when it is asked for
    first; processes that are forked later share it.
    """

    def __init__(self) -> None:
        self._make_room(MEMBERS)

    def _make_room(self, members: int) -> None:
        self._members = members
        # Of rows that are not drawn, and those of 0, no memory is used.
        self._rows = np.zeros((1 + members + UNCERTAIN, 2 * SPAN))
        self._drawn = set[int]()

    def draw(self, ids: Iterable[int]) -> None:
        """Draws the rows of members that have none yet."""
        missing = set(ids) - self._drawn
        if missing and max(missing) > self._members:
            missing |= self._drawn
            self._make_room(2 * max(missing))
        for member in missing:
            if member and not perturbs_inputs(member) and not rounds_itself(member):
                self._rows[member] = _row(member)
        self._drawn |= missing

    def noise(self, ids: tuple[int, ...], start: int, stop: int) -> Rows:
        """These columns of the unperturbed member and of others, (1 + len(ids), stop - start)."""
        self.draw(ids)
        return self._rows[[0, *ids], start:stop]

    def underflow(self, ids: tuple[int, ...], start: int, stop: int) -> Rows:
        """The same columns of the members' underflow, in [-1, 1]: -1 makes a zero of a tiny result.

        Members 1 and 2 have opposite signs of size 1, so that one of them meets that zero. The others have any size, or
        errors of equal size would often cancel in all members at once. Members that perturb the inputs have none, nor
        have those that measure float64 itself.
        """
        noise = self.noise(ids, start, stop)
        lost: Rows = np.sign(noise) * (0.25 + 0.75 * np.abs(noise))
        for row, member in enumerate(ids, 1):
            if member < 0:
                lost[row] = 0.0
            elif member <= 2:
                lost[row] = np.sign(self.noise((1,), start, stop)[1]) * (1.0 if member == 1 else -1.0)
        return lost


def _row(member: int) -> Rows:
    """The noise of one member that perturbs steps, 2*SPAN doubles."""
    if member > 8 and member % 2 == 0:
        return _block_signs(member)
    uniform = np.random.Generator(np.random.Philox(key=member % 2**32)).uniform(-1.0, 1.0, 2 * SPAN)
    return uniform if member <= 8 else _block_signs(member) * uniform


def _block_signs(member: int) -> Rows:
    """-1, 0 or 1 for each element of a member's row, the same for all elements of a block."""
    drawn = np.random.Generator(np.random.Philox(key=2**33 + member)).integers(-1, 2, 2 * SPAN // BLOCK + 1)
    return np.repeat(drawn.astype(np.float64), BLOCK)[: 2 * SPAN]


def cache_noise(members: int) -> None:
    """Draw the noise of so many members, so that processes forked from this one share it."""
    table.draw((*range(-UNCERTAIN, 0), *range(1, members + 1)))


class NoisePool:
    """The noise of one kind, (1 + len(ids), 2*SPAN) doubles; row 0, of the unperturbed member, changes nothing.

    "relative": r*u. "factor": 1 + factor*r*u. "tiny": the members' underflow.
    On the host columns are computed when they are asked for first: a small tensor reads few of them. On a device all
    are, of noise that is there: pools of many factors differ in nothing else.
    """

    def __init__(self, kind: str, factor: float, ids: tuple[int, ...], u: float, device: torch.device) -> None:
        self._kind, self._factor, self._ids = kind, factor, ids
        self._unit = torch.tensor([0.0, *(u if i > 0 else UNIT64 for i in ids)], dtype=torch.float64)[:, None]
        self._missing = bytearray(b"\1") * -(-2 * SPAN // COLUMNS)
        self._windows: dict[tuple[int, tuple[int, ...]], Tensor] = {}
        if device.type == "cpu":
            self._values = torch.empty((1 + len(ids), 2 * SPAN), dtype=torch.float64)
        else:
            self._missing.clear()
            self._values = self.scale(noise_on_device(kind == "tiny", ids, device))
        self._address = self._values.data_ptr()

    def window(self, start: int, size: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
        """A view of `size` columns from one on, of a shape whose first dim are members."""
        window = self._windows.get((start, shape))
        if window is None:
            if len(self._windows) == WINDOWS:
                self._windows.clear()
            window = self.columns(start, start + size).as_strided(shape, strides, start)
            self._windows[start, shape] = window
        return window

    def address(self, start: int, size: int) -> int:
        """The address, in the first row, of the first of `size` columns that have been computed."""
        if self._missing and self._missing.find(1, start // COLUMNS, -(-(start + size) // COLUMNS)) >= 0:
            self.columns(start, start + size)
        return self._address + 8 * start

    def columns(self, start: int, stop: int) -> Tensor:
        """The whole pool, of which these columns have been computed."""
        if not self._missing:
            return self._values
        asked = start // COLUMNS, -(-stop // COLUMNS)
        first = self._missing.find(1, *asked)
        if first >= 0:
            end = self._missing.rfind(1, *asked) + 1
            start, stop = first * COLUMNS, min(end * COLUMNS, 2 * SPAN)
            noise = _noise_of(self._kind == "tiny", self._ids, start, stop)
            self._values[:, start:stop] = self.scale(noise)
            self._missing[first:end] = bytes(end - first)
            if 1 not in self._missing:
                self._missing.clear()
        return self._values

    def scale(self, noise: Tensor) -> Tensor:
        """The columns of the pool of columns of noise, wherever these are."""
        if self._kind == "tiny":
            return noise
        if self._kind == "relative":
            return noise * self._unit.to(noise.device)
        # Two operations: a device may round the sum of a product once.
        return (noise * (self._factor * self._unit).to(noise.device)).add_(1.0)


def _noise_of(underflow: bool, ids: tuple[int, ...], start: int, stop: int) -> Tensor:
    """These columns of the noise of members, or of their underflow, with a first row of zeros."""
    return torch.from_numpy((table.underflow if underflow else table.noise)(ids, start, stop))


@lru_cache(maxsize=16)
def noise_on_device(underflow: bool, ids: tuple[int, ...], device: torch.device) -> Tensor:
    """The noise of members, or their underflow, (1 + len(ids), 2*SPAN) doubles with a first row of zeros."""
    return _noise_of(underflow, ids, 0, 2 * SPAN).to(device)


_cached_pool = lru_cache(maxsize=40)(NoisePool)


@dataclass
class NoisePools:
    """The pools of noise that stacks share.

    Pools of many members take tens of MiB each. They are kept while stacks use them often, as in shrinking.
    """

    large: dict[tuple[Any, ...], NoisePool] = field(default_factory=dict)
    idle: int = 0

    def start_stack(self) -> None:
        """Count a stack. Drops the pools of many members when none has been used for `UNUSED_STACKS` stacks."""
        self.idle += 1
        if self.idle > UNUSED_STACKS:
            self.large.clear()

    def get(self, kind: str, factor: float, ids: tuple[int, ...], u: float, device: torch.device) -> NoisePool:
        """The pool of some members."""
        key = kind, factor, ids, u, device
        if len(ids) <= FEW:
            return _cached_pool(*key)
        self.idle = 0
        if key not in self.large:
            self.large[key] = NoisePool(*key)
        return self.large[key]


def window_strides(row: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a draw (members, *row) in a pool; () where the pool is too short and must be tiled."""
    out, step = [], 1
    for size in reversed(row):
        out.append(step)
        step *= max(size, 1)
    return (2 * SPAN, *reversed(out)) if step <= SPAN else ()


table, pools = NoiseTable(), NoisePools()
