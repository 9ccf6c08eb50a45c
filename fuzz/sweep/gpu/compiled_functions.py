"""Counts a large part by three functions of its number alone, which torch compiles on a GPU.

Values are numbered in their order, and a part is given as one number, so that its inputs are made where they are used
and never read. A stretch is a run of values that lie in one region of the table but for those on its edge, which are
decided one by one: so sums by stretch, a single pass, are enough for the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fuzz.backends.memory import TORCH_DTYPES
from fuzz.model.dtypes import DType, from_bits
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.sweep.correct_rounding import CorrectRounding
from fuzz.sweep.count_errors import classify, find_regions, flushed_below, parse_counts
from fuzz.sweep.plan import SweepPlan
from fuzz.sweep.sweep_counts import OVER, REGIONS, SweepCounts
from fuzz.sweep.ulps import rounded

STRETCHES = 2048
"""Stretches of a part, of each of which the largest error is judged by the target's contract, and drawn."""
INNER = 1024
"""Values that are summed in one go: a GPU does one such run in one block of threads."""
FIELD = 16
"""Bits of each of the counts that are added up together; a stretch has at most half as many values as they hold."""
OTHERS = ("sign", "nan", "nan_differs", "infinite", "infinite_differs", "nonfinite", "flushed", "inexact")
FLAGS = ("usual", *OTHERS, "doubt")
"""What is said of each value, a bit each."""
SIGN, NONFINITE, DOUBT = (1 << FLAGS.index(name) for name in ("sign", "nonfinite", "doubt"))
COUNTS = (*FLAGS, *(f"over {limit}" for limit in OVER))
"""What is counted of each stretch."""
SIGNED = {8: torch.int8, 16: torch.int16, 32: torch.int32, 64: torch.int64}

ClassifyFunction = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]


@dataclass(frozen=True)
class PartArgument:
    """A tensor argument of the kernel. `swept` is its index among those that are swept, or -1.

    What is not swept holds one value, given as its bits in a signed integer and as a number.
    """

    name: str
    swept: int
    dtype: torch.dtype
    signed: torch.dtype
    bits: int
    value: float


@dataclass(frozen=True)
class Parts:
    """How the values, or pairs, of a plan are numbered and cut into parts of `size`, a power of two.

    The fields are plain numbers, since torch's compiler reads them again and again. Numbers of values or pairs
    (`flat`) are int64.
    """

    kind: DType
    swept: tuple[str, ...]
    size: int
    arguments: tuple[PartArgument, ...]
    smallest_normal: float

    @classmethod
    def of(cls, plan: SweepPlan, size: int) -> Parts:
        arguments = []
        for name in plan.order:
            dtype, bits = plan.fixed.get(name, (plan.dtype, 0))
            kind = named_dtype(dtype)
            signed = int(bits) - ((int(bits) >> (kind.bits - 1)) << kind.bits)
            swept = plan.swept.index(name) if name in plan.swept else -1
            value = float(from_bits(bits, kind))
            arguments.append(PartArgument(name, swept, TORCH_DTYPES[dtype], SIGNED[kind.bits], signed, value))
        return cls(plan.kind, plan.swept, size, tuple(arguments), plan.kind.smallest_normal)

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

    def ranks(self, flat: Tensor) -> list[Tensor]:
        """The ranks of each swept argument."""
        bits = self.kind.bits
        return [flat >> bits, flat & ((1 << bits) - 1)] if self.pairs else [flat]

    def bits(self, flat: Tensor) -> list[Tensor]:
        """Every tensor argument in the order of the declaration, as signed integers of its own width."""
        ranks = self.ranks(flat)
        return [
            bits_at(ranks[argument.swept], self.kind)
            if argument.swept >= 0
            else torch.full(flat.shape, argument.bits, dtype=argument.signed, device=flat.device)
            for argument in self.arguments
        ]

    def tensors(self, bits: list[Tensor]) -> dict[str, Tensor]:
        """Every tensor argument with these bits."""
        return {
            argument.name: pattern.view(argument.dtype) for argument, pattern in zip(self.arguments, bits, strict=True)
        }

    def doubles(self, flat: Tensor) -> dict[str, Tensor]:
        """Every tensor argument as float64."""
        ranks = self.ranks(flat)
        return {
            argument.name: values_at(ranks[argument.swept], self.kind).double()
            if argument.swept >= 0
            else torch.full(flat.shape, argument.value, dtype=torch.float64, device=flat.device)
            for argument in self.arguments
        }

    def middle(self, flat: Tensor) -> Tensor:
        """The middle of the stretch of each number."""
        return (flat & -self.stretch) | (self.stretch >> 1)

    def regions(self, flat: Tensor) -> Tensor:
        """The region of the first argument's value; that of what is not finite means nothing."""
        return find_regions(values_at(self.ranks(flat)[0], self.kind).double(), self.smallest_normal)


def bits_at(ranks: Tensor, kind: DType) -> Tensor:
    """The bits at these ranks (int64), as signed integers; see `ranks.bits_at`."""
    half = 1 << (kind.bits - 1)
    return torch.where(ranks < half, -1 - ranks, ranks - half).to(SIGNED[kind.bits])


def values_at(ranks: Tensor, kind: DType) -> Tensor:
    """The values at these ranks (int64), in their own dtype."""
    return bits_at(ranks, kind).view(TORCH_DTYPES[kind.name])


def input_function(parts: Parts) -> Callable[[Tensor], list[Tensor]]:
    """The function of a part's number (1,) that makes the bits of its inputs."""

    def make_inputs(number: Tensor) -> list[Tensor]:
        return parts.bits(number * parts.size + torch.arange(parts.size, device=number.device))

    return make_inputs


def classify_function(parts: Parts, rounding: CorrectRounding, kind: DType) -> ClassifyFunction:
    """The function (number (1,), output (size,), allowance (2, blocks, 1)) -> flags, error, steps of each value.

    flags: int16, a bit for each of FLAGS. error: float64 units in the last place, 0 where it is not usual. steps: the
    distance in the order of values, the lower 32 bits of it. An allowance is what float64 is certain within.
    """
    reference, options, output = rounding.target.reference, rounding.options, rounding.output
    flushed = flushed_below(rounding.precision, kind)
    assert reference is not None

    def screen(number: Tensor, out: Tensor, allowance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        flat = number * parts.size + torch.arange(parts.size, device=out.device)
        inputs = parts.doubles(flat)
        value = reference(**inputs, **options)[output]
        share, least = allowance.expand(2, -1, parts.size // allowance.shape[1]).reshape(2, -1)
        margin = torch.maximum(share * value.abs(), least)
        doubt = ~(rounded(value - margin, kind) == rounded(value + margin, kind))
        if not parts.pairs:
            doubt = doubt | (parts.regions(flat) != parts.regions(parts.middle(flat)))
        masks, error, steps = classify(inputs, out, rounded(value, kind), kind, flushed, doubt)
        masks["doubt"] = doubt & ~masks["nan"] & ~masks["infinite"]
        packed = torch.zeros_like(flat)
        for bit, flag in enumerate(FLAGS):
            packed = packed + masks[flag] * (1 << bit)
        return packed.to(torch.int16), error, steps.to(torch.int32)

    return screen


def sum_function(parts: Parts) -> Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The function (flags, error, steps) of a part -> counts and sums of each run of at most INNER values.

    counts: int64 (5, runs), four that hold COUNTS as fields, see `unpack`, and one for the largest error, see
    `largest_errors`. sums: float64 (4, runs), sum and maximum of the errors in units and in steps. See `by_stretch`.
    """
    inner = min(INNER, parts.stretch)
    shape = (parts.size // inner, inner)

    def sums(flags: Tensor, error: Tensor, steps: Tensor) -> tuple[Tensor, Tensor]:
        bits, error, apart = flags.view(shape).long(), error.view(shape), steps.view(shape).long() & 0xFFFFFFFF
        each = [(bits >> bit) & 1 for bit in range(len(FLAGS))] + [(error > limit).long() for limit in OVER]
        fields = [count << (FIELD * (index % 4)) for index, count in enumerate(each)]
        counts = [sum(fields[at + 1 : at + 4], fields[at]).sum(1) for at in range(0, len(fields), 4)]
        # What is wrongly infinite or NaN is worse than anything that has a number. Of equal ones the first counts.
        ranked = torch.where((bits & NONFINITE) != 0, torch.inf, error).float().view(torch.int32).long()
        index = torch.arange(parts.size, device=flags.device).view(shape) & (parts.stretch - 1)
        counts.append(((ranked << FIELD) + (parts.stretch - 1 - index)).amax(1))
        steps64 = apart.double()
        return torch.stack(counts), torch.stack([error.sum(1), error.amax(1), steps64.sum(1), steps64.amax(1)])

    return sums


def by_stretch(parts: Parts, counts: Tensor, sums: Tensor) -> tuple[Tensor, Tensor]:
    """(stretches, 5) and (stretches, 4) of what `sum_function` gives of runs: counts are added, the largest taken."""
    each = parts.stretch // min(INNER, parts.stretch)
    counts, sums = counts.view(len(counts), -1, each), sums.view(len(sums), -1, each)
    added, most, sum_, amax = counts[:-1].sum(2), counts[-1:].amax(2), sums.sum(2), sums.amax(2)
    return torch.cat([added, most]).T, torch.stack([sum_[0], amax[1], sum_[2], amax[3]], 1)


def unpack(counts: Tensor) -> Tensor:
    """COUNTS of stretches, int64 (stretches, len(COUNTS)), from what was added up together."""
    shifts = torch.arange(0, 64, FIELD, device=counts.device)
    fields = (counts[:, :-1, None] >> shifts) & ((1 << FIELD) - 1)
    return fields.reshape(len(counts), -1)[:, : len(COUNTS)]


def largest_errors(counts: Tensor, parts: Parts) -> tuple[Tensor, Tensor]:
    """(index within the stretch, error as float32) of the largest error of stretches."""
    key = counts[:, -1]
    left = key & ((1 << FIELD) - 1)
    return parts.stretch - 1 - left, (key >> FIELD).to(torch.int32).view(torch.float32)


def sum_stretches(parts: Parts, first: int, counts: Tensor, sums: Tensor) -> SweepCounts:
    """The counts of parts from `first` on, from those of all their stretches."""
    each = unpack(counts)
    middles = first * parts.size + torch.arange(len(counts), device=counts.device) * parts.stretch + parts.stretch // 2
    chosen = (parts.regions(middles) == torch.arange(len(REGIONS), device=counts.device)[:, None]).double().unsqueeze(2)
    added = (chosen * torch.stack([each[:, 0].double(), sums[:, 0], sums[:, 2]], 1)).sum(1)
    most = (chosen * sums[:, [1, 3]]).amax(1)
    columns = added[:, 0], added[:, 1], most[:, 0], added[:, 2], most[:, 1]
    totals = each.sum(0).double()
    row = torch.cat([*columns, totals[len(FLAGS) :], totals[1 : 1 + len(OTHERS)]]).cpu().numpy()
    result = parse_counts(row)
    result.count = len(counts) * parts.stretch
    result.other = Counter({name: int(n) for name, n in zip(OTHERS, row[-len(OTHERS) :], strict=True)})
    return result


def compile_for(device: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as a few kernels on a GPU, where compilation pays; itself on the CPU."""
    return function if device == "cpu" else torch.compile(function, dynamic=False)
