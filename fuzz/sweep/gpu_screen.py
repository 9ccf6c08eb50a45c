"""Screen: what is looked at in a large part, as three functions of its number alone, which torch compiles on a GPU.

Values are numbered in their order, and a part is told as one number, so that its inputs are made where they are used
and never read. A stretch is a run of values that lie in one region of the table but for those on its edge, which are
decided one by one: so sums by stretch, a single pass, are enough for the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fuzz.backends.memory import TORCH_DTYPES
from fuzz.model.dtypes import DType, from_bits
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.sweep.correct_rounding import CorrectRounding
from fuzz.sweep.counts import BOUNDS, OVER, REGIONS
from fuzz.sweep.plan import SweepPlan
from fuzz.sweep.ulps import ordinals, rounded, ulps

STRETCHES = 2048
"""Stretches of a part, of each of which the largest error is judged by the target's contract, and drawn."""
INNER = 1024
"""Values that are summed in one go: a GPU does one such run in one block of threads."""
FIELD = 16
"""Bits of each of the counts that are added up together; a stretch has at most half as many values as they hold."""
OTHERS = ("sign", "nan", "nan_differs", "infinite", "infinite_differs", "nonfinite", "flushed", "inexact")
FLAGS = ("usual", *OTHERS, "doubt")
"""What is told of each value, a bit each."""
SIGN, NONFINITE, DOUBT = (1 << FLAGS.index(name) for name in ("sign", "nonfinite", "doubt"))
COUNTS = (*FLAGS, *(f"over {limit}" for limit in OVER))
"""What is counted of each stretch."""
WORDS = {8: torch.int8, 16: torch.int16, 32: torch.int32, 64: torch.int64}

Screen = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]


@dataclass(frozen=True)
class Argument:
    """A tensor argument of the kernel. `swept` is its place among those that are swept, or -1.

    What is not swept holds one word, told as a signed integer and as a number.
    """

    name: str
    swept: int
    dtype: torch.dtype
    width: torch.dtype
    word: int
    value: float


@dataclass(frozen=True)
class Parts:
    """How the values, or pairs, of a plan are numbered and cut into parts of `size`, a power of two.

    Plain numbers throughout, for what torch compiles asks them again and again.
    """

    kind: DType
    swept: tuple[str, ...]
    size: int
    arguments: tuple[Argument, ...]
    tiny: float

    @property
    def pairs(self) -> bool:
        return len(self.swept) == 2

    @property
    def count(self) -> int:
        return (1 << self.kind.bits * len(self.swept)) // self.size

    @property
    def stretch(self) -> int:
        """Values of a stretch."""
        return max(1, self.size // STRETCHES)

    def places(self, flat: Tensor) -> list[Tensor]:
        """The places, in the order of values, of each swept argument, from numbers of values or pairs (int64)."""
        bits = self.kind.bits
        return [flat >> bits, flat & ((1 << bits) - 1)] if self.pairs else [flat]

    def words(self, flat: Tensor) -> list[Tensor]:
        """Every tensor argument in the order of the declaration, as signed integers of its own width."""
        places = self.places(flat)
        return [
            words_at(places[one.swept], self.kind)
            if one.swept >= 0
            else torch.full(flat.shape, one.word, dtype=one.width, device=flat.device)
            for one in self.arguments
        ]

    def tensors(self, words: list[Tensor]) -> dict[str, Tensor]:
        """Every tensor argument, of which these are the words."""
        return {one.name: word.view(one.dtype) for one, word in zip(self.arguments, words, strict=True)}

    def doubles(self, flat: Tensor) -> dict[str, Tensor]:
        """Every tensor argument as float64."""
        places = self.places(flat)
        return {
            one.name: values_at(places[one.swept], self.kind).double()
            if one.swept >= 0
            else torch.full(flat.shape, one.value, dtype=torch.float64, device=flat.device)
            for one in self.arguments
        }

    def middle(self, flat: Tensor) -> Tensor:
        """The middle of the stretch of each number."""
        return (flat & -self.stretch) | (self.stretch >> 1)

    def regions(self, flat: Tensor) -> Tensor:
        """The region of the first argument's value; that of what is not finite means nothing."""
        return region(values_at(self.places(flat)[0], self.kind).double(), self.tiny)


def parts_of(plan: SweepPlan, size: int) -> Parts:
    """The parts of a plan."""
    arguments = []
    for name in plan.order:
        dtype, word = plan.fixed.get(name, (plan.dtype, 0))
        kind, word = named_dtype(dtype), int(word)
        signed = word - ((word >> (kind.bits - 1)) << kind.bits)
        width, value = WORDS[kind.bits], float(from_bits(word, kind))
        swept = plan.swept.index(name) if name in plan.swept else -1
        arguments.append(Argument(name, swept, TORCH_DTYPES[dtype], width, signed, value))
    return Parts(plan.kind, plan.swept, size, tuple(arguments), plan.kind.smallest_normal)


def words_at(places: Tensor, kind: DType) -> Tensor:
    """The words at these places (int64) of the order of values, as signed integers; see `plan.in_order`."""
    half = 1 << (kind.bits - 1)
    return torch.where(places < half, -1 - places, places - half).to(WORDS[kind.bits])


def values_at(places: Tensor, kind: DType) -> Tensor:
    """The values at these places of the order of values, in their own dtype."""
    return words_at(places, kind).view(TORCH_DTYPES[kind.name])


def region(x: Tensor, tiny: float) -> Tensor:
    """The region of each finite value (float64), as `tally.region_of` has it."""
    found = torch.zeros(x.shape, dtype=torch.int32, device=x.device)
    for bound in BOUNDS:
        found = found + (x >= bound).to(torch.int32)
    return torch.where((x.abs() < tiny) & (x != 0), len(REGIONS) - 1, found)


def words_of(parts: Parts) -> Callable[[Tensor], list[Tensor]]:
    """The function of a part's number (1,) that makes its inputs."""

    def words(number: Tensor) -> list[Tensor]:
        return parts.words(number * parts.size + torch.arange(parts.size, device=number.device))

    return words


def screen_of(parts: Parts, rounding: CorrectRounding, kind: DType) -> Screen:
    """The function (number (1,), output (size,), allowance (2, blocks, 1)) -> flags, error, steps of each value.

    flags: int16, a bit for each of FLAGS. error: float64 units in the last place, 0 where it is not usual. steps: the
    distance in the order of values, the lower 32 bits of it. An allowance is what float64 is certain within.
    """
    reference, options, output, eta = (
        rounding.target.reference,
        rounding.options,
        rounding.output,
        rounding.precision.eta,
    )
    flushed = min(eta, kind.smallest_normal) if eta > kind.smallest_subnormal else 0.0
    assert reference is not None

    def screen(number: Tensor, out: Tensor, allowance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        flat = number * parts.size + torch.arange(parts.size, device=out.device)
        inputs = parts.doubles(flat)
        nan, finite = either(inputs)
        value, got = reference(**inputs, **options)[output], out.double()
        share, least = allowance.expand(2, -1, parts.size // allowance.shape[1]).reshape(2, -1)
        margin = torch.maximum(share * value.abs(), least)
        low, high, want = rounded(value - margin, kind), rounded(value + margin, kind), rounded(value, kind)
        edge = torch.zeros_like(finite) if parts.pairs else parts.regions(flat) != parts.regions(parts.middle(flat))
        doubt = finite & (~(low == high) | edge)
        differs = ~((got == want) | (got.isnan() & want.isnan())) & ~doubt
        lost = finite & ~doubt & (want.abs() < flushed) & (want != 0) & (got == 0)
        known = torch.isfinite(got) & torch.isfinite(want)
        usual = finite & ~doubt & ~lost & known
        error = torch.where(usual, ulps(got, want, kind), 0.0)
        steps = torch.where(usual, (ordinals(out) - ordinals(want.to(out.dtype))).abs(), 0)
        sign, infinite = finite & ~doubt & (got * want.sign() < 0), ~finite & ~nan
        flags = [usual, sign, nan, nan & differs, infinite, infinite & differs]
        flags += [finite & differs & ~known, lost, finite & differs, doubt]
        word = torch.zeros_like(flat)
        for bit, flag in enumerate(flags):
            word = word + flag * (1 << bit)
        return word.to(torch.int16), error, steps.to(torch.int32)

    return screen


def either(inputs: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Where any input is NaN, and where all are finite."""
    each = list(inputs.values())
    nan, finite = each[0].isnan(), torch.isfinite(each[0])
    for one in each[1:]:
        nan, finite = nan | one.isnan(), finite & torch.isfinite(one)
    return nan, finite


def sums_of(parts: Parts) -> Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The function (flags, error, steps) of a part -> counts and sums of each run of at most INNER values.

    counts: int64 (5, runs), four that hold COUNTS as fields, see `unpacked`, and one for the largest error, see
    `largest`. sums: float64 (4, runs), sum and maximum of the errors in units and in steps. See `by_stretch`.
    """
    inner = min(INNER, parts.stretch)
    shape = (parts.size // inner, inner)

    def sums(flags: Tensor, error: Tensor, steps: Tensor) -> tuple[Tensor, Tensor]:
        bits, error, apart = flags.view(shape).long(), error.view(shape), steps.view(shape).long() & 0xFFFFFFFF
        each = [(bits >> bit) & 1 for bit in range(len(FLAGS))] + [(error > limit).long() for limit in OVER]
        fields = [one << (FIELD * (index % 4)) for index, one in enumerate(each)]
        counts = [sum(fields[at + 1 : at + 4], fields[at]).sum(1) for at in range(0, len(fields), 4)]
        # What is wrongly infinite or NaN is worse than anything that has a number. Of equal ones the first counts.
        shown = torch.where((bits & NONFINITE) != 0, torch.inf, error).float().view(torch.int32).long()
        place = torch.arange(parts.size, device=flags.device).view(shape) & (parts.stretch - 1)
        counts.append(((shown << FIELD) + (parts.stretch - 1 - place)).amax(1))
        steps64 = apart.double()
        told = [error.sum(1), error.amax(1), steps64.sum(1), steps64.amax(1)]
        return torch.stack(counts), torch.stack(told)

    return sums


def by_stretch(parts: Parts, counts: Tensor, sums: Tensor) -> tuple[Tensor, Tensor]:
    """(stretches, 5) and (stretches, 4) of what `sums_of` says of runs: their counts are added, the largest taken."""
    each = parts.stretch // min(INNER, parts.stretch)
    counts, sums = counts.view(len(counts), -1, each), sums.view(len(sums), -1, each)
    added, most, sum_, amax = counts[:-1].sum(2), counts[-1:].amax(2), sums.sum(2), sums.amax(2)
    return torch.cat([added, most]).T, torch.stack([sum_[0], amax[1], sum_[2], amax[3]], 1)


def unpacked(counts: Tensor) -> Tensor:
    """COUNTS of stretches, int64 (stretches, len(COUNTS)), from what was added up together."""
    shifts = torch.arange(0, 64, FIELD, device=counts.device)
    fields = (counts[:, :-1, None] >> shifts) & ((1 << FIELD) - 1)
    return fields.reshape(len(counts), -1)[:, : len(COUNTS)]


def largest(counts: Tensor, parts: Parts) -> tuple[Tensor, Tensor]:
    """(place within the stretch, error as float32) of the largest error of stretches."""
    key = counts[:, -1]
    left = key & ((1 << FIELD) - 1)
    return parts.stretch - 1 - left, (key >> FIELD).to(torch.int32).view(torch.float32)


def compiled(function: Callable[..., Any], backend: str) -> Callable[..., Any]:
    """Into a few kernels on a GPU, where compilation pays."""
    made: Callable[..., Any] = torch.compile(function, dynamic=False) if backend == "cuda" else function
    return made
