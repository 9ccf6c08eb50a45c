"""Perturbs all members of a stack at once, in place, as the rounding of one step might.

Noise comes from a fixed pool with one row a member. Step number s of an evaluation reads row i from an offset that
depends on the seed and s alone, so that a member's noise does not depend on which other members are in the stack.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, Final

import torch
from torch import Tensor

from fuzz.reference.envelope.input_errors import perturb_inputs_
from fuzz.reference.envelope.noise_loops import NoiseLoops
from fuzz.reference.envelope.noise_pools import SPAN, NoisePool, perturbs_inputs, pools, rounds_itself, window_strides
from fuzz.reference.envelope.precision import Precision, Ulps
from fuzz.reference.envelope.summation import (
    LARGEST,
    LARGEST_MATMUL,
    error_magnitudes,
    matmul_errors,
    scan_errors,
    sum_errors,
)

__all__ = ["SAFETY", "Divergence", "MemberNoise", "StackTooLarge"]

SAFETY: Final = 4.0
"""How many times the spread of perturbed steps an error may be. What perturbed inputs change counts once."""
LOWEST_EXPONENT: Final = 16.0
"""So far below the largest one members meet an exponent that is uncertain: e^-16 is near 2^-24."""
_TINY: Final = ("tiny", 1.0)
_STRIDE: Final = 20239
"""Offsets advance by SPAN/golden ratio: the draws of up to SPAN steps all differ."""


class StackTooLarge(BaseException):
    """A result exceeds the memory limit: evaluate in smaller groups. A reference cannot catch it as an Exception."""


class Divergence(BaseException):
    """A reference asks for a value in which replicas may differ: evaluate them one by one."""


class MemberNoise:
    """The members of one stack, and how each operation's stacked result (rows, *shape) is perturbed in place.

    ids: numbers of the perturbed members, ascending; negative ones (they come first) measure float64 itself.
    input_rows: the rows of members that perturb inputs. reduces: set by an operation that adds or multiplies terms up.
    replicas: each has all members, in rows that follow each other, and the noise that it would have alone.
    """

    def __init__(
        self,
        precision: Precision,
        ids: tuple[int, ...],
        seed: int,
        check_range: bool,
        limit: int | None,
        replicas: int = 1,
    ) -> None:
        self.precision = precision
        self.ids = ids
        self.count = 1 + len(ids)
        self.replicas = replicas
        self.rows = replicas * self.count
        self.limit = limit
        self.first_working = 1 + sum(i < 0 for i in ids)
        self.input_rows = [row for row, i in enumerate(ids, 1) if perturbs_inputs(i)]
        self.reduces = False
        self.offset = (seed * 7919) % SPAN
        self.widened = 0
        self.device = torch.device("cpu")
        pools.start_stack()
        self._pools: dict[tuple[str, float], NoisePool] = {}
        self._layouts: dict[torch.Size, tuple[tuple[int, ...], tuple[int, ...], int]] = {}
        self.flush_to_zero = precision.eta == 2.0**-126
        # Multiplied by `scale_up`, what exceeds the largest finite value overflows float64 too. `scale_down` undoes it.
        bits = math.frexp(precision.largest)[1]
        ranged = check_range and bits < 1024 and self.first_working < self.count
        self.scale_up = 2.0 ** (1024 - bits) * (1 + precision.u / 2) if ranged else 0.0
        self.scale_down = 2.0 ** (bits - 1024) / (1 + precision.u / 2)
        self._loops = NoiseLoops(replicas, self.count, self.first_working, self.scale_up, self.scale_down)
        self.is_float32 = precision.u == 2.0**-24
        self.is_thorough = check_range

    def unperturbed(self, t: Tensor) -> Tensor:
        """The unperturbed member of a stacked tensor. Raises `Divergence` where replicas have different ones."""
        lead = self.first_members(t)
        if self.replicas > 1 and not bool((lead == lead[:1]).all()):
            raise Divergence
        return lead[0]

    def by_replica(self, t: Tensor) -> Tensor:
        """A view of a stacked tensor (rows, *shape) as (replicas, members, *shape), or as it is for one replica."""
        return t.view(self.replicas, self.count, *t.shape[1:]) if self.replicas > 1 else t

    def first_members(self, t: Tensor) -> Tensor:
        """The unperturbed member of each replica, (replicas, *shape), of a stack (rows, *shape)."""
        return t[:: self.count]

    def adds_up(self, terms: int, is_product: bool = False) -> bool:
        """Whether sums with so many terms, of all rows, are added up. Tensor cores cut off more than any order does."""
        if not terms:
            return False
        if is_product:
            return self.is_float32 and not self.precision.tensor_cores and terms // self.rows <= LARGEST_MATMUL
        return self.is_float32 and terms // self.count <= LARGEST

    def sum_error(self, terms: Tensor, dims: list[int]) -> Tensor | None:
        """How far the sum of stacked terms over dims may be off besides, dims kept; None before the stages that ask."""
        return self.measure(sum_errors, self.first_members(terms), dims)

    def scan_error(self, terms: Tensor, dim: int) -> Tensor | None:
        """The same for prefixes of the terms."""
        return self.measure(scan_errors, self.first_members(terms), dim)

    def matmul_error(self, a: Tensor, b: Tensor) -> Tensor | None:
        """The same for a product of stacked matrices (rows, .., M, K) and (rows, .., K, N)."""
        return self.measure(matmul_errors, self.first_members(a), self.first_members(b))

    def measure(self, errors: Callable[..., Tensor], *terms: Any) -> Tensor | None:
        """The same by a function of summation.py, of what first members add up."""
        return errors(*terms, error_magnitudes)[0] if self.is_thorough else None

    def _working(self, t: Tensor) -> Tensor:
        """The members at working precision, of what `by_replica` gives."""
        return t[:, self.first_working :] if self.replicas > 1 else t[self.first_working :]

    def _draw(self, kind: str, factor: float, row: torch.Size) -> Tensor:
        """Noise (members, *row) at the current offset, a view of the pool where it is long enough."""
        pool, layout = self._pool(kind, factor), self._layouts.get(row)
        shape, strides, size = self._layout(row) if layout is None else layout
        if strides:
            return pool.window(self.offset, size, shape, strides)
        tile = pool.columns(self.offset, self.offset + SPAN)[:, self.offset : self.offset + SPAN]
        tiled = tile.unsqueeze(1).expand(-1, -(-size // SPAN), -1).reshape(self.count, -1)
        return tiled[:, :size].view(self.count, *row)

    def _pool(self, kind: str, factor: float) -> NoisePool:
        pool = self._pools.get((kind, factor))
        if pool is None:
            pool = pools.get(kind, factor, self.ids, self.precision.u, self.device)
            self._pools[kind, factor] = pool
        return pool

    def _layout(self, row: torch.Size) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        """(shape, strides, size) of a draw for `row`: shape with members, strides in a pool, elements of the row."""
        layout = self._layouts.get(row)
        if layout is None:
            layout = self._layouts[row] = (self.count, *row), window_strides(row), math.prod(row)
        return layout

    def _parts(self, row: torch.Size, *stacks: Tensor) -> Iterable[tuple[torch.Size, tuple[Tensor, ...]]]:
        """The same stacks with their row, in parts that fit the cache where they are longer than the pool."""
        size = self._layout(row)[2]
        if size <= SPAN or not all(stack.is_contiguous() for stack in stacks):
            return ((row, stacks),)
        return self._short_parts(row, size, stacks)

    def _short_parts(
        self, row: torch.Size, size: int, stacks: tuple[Tensor, ...]
    ) -> Iterator[tuple[torch.Size, tuple[Tensor, ...]]]:
        flat = [stack.view(*stack.shape[: stack.dim() - len(row)], size) for stack in stacks]
        for start in range(0, size, SPAN):
            short = torch.Size((min(SPAN, size - start),))
            yield short, tuple(stack[..., start : start + SPAN] for stack in flat)

    def perturb_input_(self, t: Tensor) -> None:
        """Change each element by 2u of itself, up or down, in the members that perturb inputs.

        Elements of one magnitude in one row change equally, in all inputs: ties, zeros and cancellation of equals stay
        exact. No element leaves the working precision's range. 2u is a unit in the last place: half of it does not
        explain Welford's recurrence, which is up to 2.9 u*mean/deviation off.
        """
        if self.input_rows:
            members = [(row, self.ids[row - 1]) for row in self.input_rows]
            perturb_inputs_(t.view(self.replicas, self.count, *t.shape[1:]), members, self.precision)

    def widen(self, t: Tensor) -> Tensor:
        """What is to be rounded to integers, in each member as far from the unperturbed one as its bound reaches.

        Some members go up and others down, other ones each time, so that a tie within the bound is met by one of them,
        and two ties in all four ways. Where all are the same nothing changes: the rounding rule holds there. Nor
        where they lie 1 or more apart: they have met ties before, and may be places that must stay inside of a tensor.
        What only underflow moves does not change its sign.
        """
        steps = self.step_rows
        if not t.is_floating_point() or not steps:
            return t
        mask = 1 + self.widened % 7
        self.widened += 1
        ups = [(self.ids[row - 1] & mask).bit_count() % 2 for row in steps]
        wide = t.clone()
        stack, members = self.by_replica(wide), 1 if self.replicas > 1 else 0
        first, places = stack.narrow(members, 0, 1), torch.tensor(steps, device=t.device)
        some = stack.index_select(members, places)
        spread = (some - first).abs().amax(members, True).nan_to_num(0.0, 0.0, 0.0)
        sides = torch.tensor([1.0 if up else -1.0 for up in ups], device=t.device, dtype=t.dtype)
        moved = first + SAFETY * spread * sides.view(-1, *(1,) * (t.dim() - 1))
        moved = torch.where((spread <= 4 * self.precision.eta) & (moved * first < 0), 0.0, moved)
        stack.index_copy_(members, places, torch.where(torch.isfinite(some) & (spread < 1), moved, some))
        return wide

    def scatter_exponents(self, t: Tensor) -> Tensor:
        """Exponents, in half of the elements of members that perturb steps anywhere below the largest that they reach.

        Where an exponent is uncertain by 1 or more, the exponential is 0 in nearly all members, or that of the largest.
        What lies between, such as the gradient of a softmax whose largest elements are near each other, none meets.
        """
        steps = self.step_rows
        if not self.is_thorough or not steps or not t.is_floating_point():
            return t
        scattered = t.clone()
        stack, members = self.by_replica(scattered), 1 if self.replicas > 1 else 0
        first, places = stack.narrow(members, 0, 1), torch.tensor(steps, device=t.device)
        some = stack.index_select(members, places)
        reach = SAFETY * (some - first).abs().amax(members, True).nan_to_num(0.0, 0.0, 0.0)
        uncertain = (reach >= SAFETY) & torch.isfinite(some)
        if not bool(uncertain.any()):
            return t
        largest = torch.minimum(first + reach, torch.maximum(some, first).amax(members, True).clamp(min=0.0))
        drawn = torch.rand(len(steps), *t.shape[1:], generator=torch.Generator().manual_seed(self.offset)).to(t) * 2 - 1
        below = torch.maximum(largest - LOWEST_EXPONENT * drawn**3, first - reach)
        stack.index_copy_(members, places, torch.where(uncertain & (drawn > 0), below, some))
        return scattered

    def from_other_members(self, t: Tensor) -> Tensor:
        """What is computed a second time: each member that perturbs steps takes the value of the next such member."""
        steps = self.step_rows
        if len(steps) < 2:
            return t
        stack, members = self.by_replica(t.clone()), 1 if self.replicas > 1 else 0
        places = torch.tensor(steps, device=t.device)
        stack.index_copy_(members, places, stack.index_select(members, places.roll(1)))
        return stack.view_as(t)

    @cached_property
    def step_rows(self) -> list[int]:
        """The members at working precision that perturb steps, not inputs."""
        return [row for row, i in enumerate(self.ids, 1) if i > 0 and row not in self.input_rows]

    def decide_(self, t: Tensor) -> None:
        """Make what members that perturb inputs have decided that which the unperturbed member has."""
        stack = self.by_replica(t)
        rows = (slice(None), self.input_rows) if self.replicas > 1 else (self.input_rows,)
        stack[rows] = (stack[:, :1] if self.replicas > 1 else stack[:1]).clone()

    def _unit(self) -> float:
        """The underflow unit of the current step."""
        return self.precision.eta * (1 + 3 * self.offset / SPAN)

    def advance(self) -> None:
        """The next step: other noise."""
        self.offset = (self.offset + _STRIDE) % SPAN

    def round_(self, t: Tensor, factor: float = 1.0, tiny: bool = True) -> Tensor:
        """One rounding of relative error factor*u, and underflow if `tiny`. Exact zeros stay zeros, signs stay.

        Rounding to nearest or flushing loses at most |t| and at most eta: t becomes t +- clamp(t, -eta, eta), so that a
        result below eta becomes 0 in member 1 or 2, which later logarithms and divisions notice. The unit varies with
        the step, from eta to 4*eta: equal ones cancelled in all of 8 members (softplus gradient, 2.2 times the bound).
        """
        eta = self._unit()
        if tiny and self.precision.nan_below:
            self.mark_underflow_(t, t)
        # Without a call where the pools are known: nearly all operations come here.
        factors = self._pools.get(("factor", factor)) or self._pool("factor", factor)
        losses = (self._pools.get(_TINY) or self._pool(*_TINY)) if tiny else None
        if not self._loops.round_(t, factors, losses, self.offset, eta):
            for row, (part,) in self._parts(t.shape[1:], self.by_replica(t)):
                if tiny:
                    part.addcmul_(part.clamp(-eta, eta), self._draw("tiny", 1.0, row))
                part.mul_(self._draw("factor", factor, row))
            if self.scale_up:
                self.overflow_(t)
        self._round_itself_(t)
        self.offset = (self.offset + _STRIDE) % SPAN
        return t

    def round_unless_integer(self, t: Tensor, factor: float) -> Tensor:
        """As `round_`, for sums and products with integers: whole results that the format holds are exact."""
        whole = (t == t.round()) & (t.abs() <= 1 / self.precision.u)
        return torch.where(whole, t, self.round_(t.clone(), factor))

    def add_error_(
        self, t: Tensor, amplitude: Tensor, factor: float, tiny: float = 0.0, sum_error: Tensor | None = None
    ) -> Tensor:
        """Perturb by factor*u*amplitude, for a sum whose absolute terms sum to `amplitude` (same shape, consumed).

        tiny: how many of the terms were products that may underflow. Where the terms are not finite nothing is added.
        sum_error: what the sum of each replica's unperturbed terms may be off besides, (replicas, *shape).
        Partial sums may reach `amplitude`: where that leaves the range, the members become NaN.
        """
        pools = self._pool("tiny", 1.0) if tiny else None, self._pool("relative", 1.0)
        scales = self._unit(), tiny, factor, 0.0 if sum_error is None else 1 / self.precision.u
        if not self._loops.add_error_(t, amplitude, sum_error, *pools, self.offset, scales):
            self._add_error_(t, amplitude, factor, tiny, sum_error)
        self._round_itself_(t)
        self.offset = (self.offset + _STRIDE) % SPAN
        self.reduces = True
        return t

    def _add_error_(self, t: Tensor, amplitude: Tensor, factor: float, tiny: float, sum_error: Tensor | None) -> None:
        """The same by torch, with the noise of the current step."""
        stack, amplitude = self.by_replica(t), self.by_replica(amplitude.nan_to_num_(0.0, 0.0, 0.0))
        if self.scale_up and t.dtype is torch.float64:
            self._working(stack).add_((self._working(amplitude) * self.scale_up).mul_(0.0))
        for row, (part, size) in self._parts(t.shape[1:], stack, amplitude):
            if tiny:
                part.addcmul_(size.clamp(max=self._unit()), self._draw("tiny", 1.0, row), value=tiny)
            if factor:
                part.addcmul_(size, self._draw("relative", 1.0, row), value=factor)
        if sum_error is not None:
            wide = (sum_error.unsqueeze(1) if self.replicas > 1 else sum_error).expand(stack.shape).contiguous()
            for row, (part, size) in self._parts(t.shape[1:], stack, wide):
                part.addcmul_(size, self._draw("relative", 1.0, row), value=1 / self.precision.u)
        if self.scale_up:
            self.overflow_(t)

    def round_constant_(self, t: Tensor, size: float) -> Tensor:
        """Perturb by size*u: the rounding of a constant that the working format does not hold."""
        self.by_replica(t).add_(self._draw("relative", 1.0, t.shape[1:]), alpha=size)
        self.advance()
        return t

    def add_working_error_(self, t: Tensor, size: Tensor) -> None:
        """Perturb the members at working precision by u times `size` (same shape); not those that measure float64."""
        noise = self._draw("relative", 1.0, t.shape[1:])[self.first_working :]
        self._working(self.by_replica(t)).addcmul_(self._working(self.by_replica(size)), noise)
        self.advance()

    def round_function_(self, t: Tensor, x: Tensor | None, error: Ulps) -> Tensor:
        """Perturb f(x) by its documented error; one ulp is at most 2u of the value. x: its stacked argument."""
        if not error.slope or x is None:
            return self.round_(t, 2 * error.base)
        eta, row, stack = self._unit(), t.shape[1:], self.by_replica(t)
        self.mark_underflow_(t, t)
        stack.addcmul_(stack.clamp(-eta, eta), self._draw("tiny", 1.0, row))
        x = x if x.shape == t.shape else x.expand_as(t)
        spread = self.by_replica(x.abs().nan_to_num_(0.0, 0.0, 0.0).mul_(2 * error.slope).add_(2 * error.base))
        stack.mul_(spread.mul(self._draw("relative", 1.0, row)).add_(1.0).clamp_(min=0.0))
        self._round_itself_(t)
        self.advance()
        if self.scale_up:
            self.overflow_(t)
        return t

    def _round_itself_(self, t: Tensor) -> None:
        """Round a stacked result to float32 in the members that are not perturbed at random.

        A loop that adds the same number to a sum loses the same part of it each time, which random errors average out.
        """
        if self.rounding_rows and t.dtype is torch.float64:
            t[self.rounding_rows] = t[self.rounding_rows].to(torch.float32).to(torch.float64)

    @cached_property
    def rounding_rows(self) -> list[int]:
        """The rows of members that compute in float32 itself, where that is the working precision."""
        return self.rows_of([row for row, i in enumerate(self.ids, 1) if rounds_itself(i) and self.is_float32])

    def rows_of(self, members: list[int]) -> list[int]:
        """The rows of a stack in which the members that have these rows of one replica are, of all replicas."""
        return [first + row for first in range(0, self.rows, self.count) for row in members]

    def mark_underflow_(self, t: Tensor, size: Tensor) -> None:
        """Write NaN into the members of t whose `size` (same shape) is below `precision.nan_below`, but not 0."""
        if self.precision.nan_below:
            stack, size = self._working(self.by_replica(t)), self._working(self.by_replica(size))
            stack.masked_fill_((size != 0) & (size.abs() < self.precision.nan_below), torch.nan)

    def flush_result_(self, t: Tensor, unit: float) -> Tensor:
        """Perturb by the loss of results below `unit`, which the working precision's range takes on the way to them."""
        stack = self.by_replica(t)
        stack.addcmul_(stack.clamp(-unit, unit), self._draw("tiny", 1.0, t.shape[1:]))
        self.advance()
        return t

    def lose_(self, t: Tensor, multiplied: Tensor) -> None:
        """Perturb by up to an underflow unit times `multiplied` (replicas, *shape), with the noise of the next step."""
        amount = multiplied.nan_to_num(0.0, 0.0, 0.0).mul_(self._unit())
        amount = amount.unsqueeze(1) if self.replicas > 1 else amount
        self.by_replica(t).addcmul_(amount, self._draw("tiny", 1.0, t.shape[1:]))

    def flush_terms_(self, t: Tensor, amount: Tensor) -> None:
        """Perturb by up to `amount` (same shape, at least 0): what tiny terms lose on their way into a sum."""
        stack, amount = self.by_replica(t), self.by_replica(amount.nan_to_num_(0.0, 0.0, 0.0))
        stack.addcmul_(amount, self._draw("tiny", 1.0, t.shape[1:]))
        self.advance()

    def overflow_(self, t: Tensor) -> None:
        """Members at working precision become infinite where they exceed the largest finite value."""
        if t.dtype is not torch.float64:  # the reference itself cast down: that format has its own range
            return
        self._working(self.by_replica(t)).mul_(self.scale_up).mul_(self.scale_down)
