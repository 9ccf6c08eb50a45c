"""Sweeps all values on a GPU, by parts of 2^24; only doubtful values are looked at one by one.

The float64 reference and all that is counted are functions that torch compiles (compiled_functions.py beside this
file). They do not perturb the reference at every value: what float64 is uncertain about is measured at points of every
block, and a value counts as certain where it stays on one side of a rounding boundary when it is moved by that, or by
2^-40 of itself. The others, about one in 2^15 of float32, are decided one by one as on the CPU. Where there are too
many for that they stay undecided, and count as the further of the two numbers that may be due, so that the largest
error shown is none too small.

Nothing waits for the device within a strip of parts, and the host gets numbers, not values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fuzz.backends.memory import DTYPE_NAMES
from fuzz.model.dtypes import Doubles, DType, from_bits
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.sweep.contract_violations import find_violations, worst_values
from fuzz.sweep.correct_rounding import CERTAIN, rounded_bounds
from fuzz.sweep.count_errors import ComparedValues, bin_errors, count_values
from fuzz.sweep.gpu import compiled_functions as compiled
from fuzz.sweep.kernel import SweptKernel
from fuzz.sweep.plan import PART
from fuzz.sweep.ranks import bits_at, rank_of
from fuzz.sweep.sweep_counts import SweepCounts

SIZE = 1 << 24
"""Values, or pairs, of a part."""
SPAN = 64
"""Parts of one request."""
STRIP = 16
"""Parts whose outputs are kept until doubtful values have been picked from them."""
BLOCKS, POINTS = 256, 8
"""Blocks of a part along one argument, and points of each block at which float64's own error is measured."""
RELATIVE = 2.0**-40
MANY = 1 << 13
"""Doubtful values of a part from which on they stay undecided."""
CHUNK = 1 << 22
"""Undecided values that are counted together."""

Runs = list[tuple[int, int]]
"""First and last ranks of values with the wrong sign."""


@dataclass(frozen=True)
class SelectedValues:
    """Some values: their numbers, and what the kernel made of them."""

    flat: Tensor
    output: Tensor

    @property
    def kind(self) -> DType:
        return named_dtype(DTYPE_NAMES[self.output.dtype])

    @staticmethod
    def join(selected: list[SelectedValues]) -> SelectedValues:
        return SelectedValues(
            torch.cat([values.flat for values in selected]), torch.cat([values.output for values in selected])
        )


@dataclass(frozen=True)
class Strip:
    """Parts one after another: number of the first value, outputs and flags of all, counts and sums of stretches."""

    start: int
    output: Tensor
    flags: Tensor
    counts: Tensor
    sums: Tensor

    def select(self, indices: Tensor) -> SelectedValues:
        return SelectedValues(indices + self.start, self.output[indices])


@dataclass
class GpuSweep:
    """Measures large parts of a kernel's plan. The three functions are compiled at the first part."""

    kernel: SweptKernel
    size: int = SIZE
    span: int = SPAN
    functions: dict[Any, Callable[..., Any]] = field(default_factory=dict)

    @cached_property
    def parts(self) -> compiled.Parts:
        return compiled.Parts.of(self.kernel.plan, self.size)

    @property
    def blocks(self) -> int:
        """Blocks of a part; of pairs one for each first value."""
        return max(1, self.size >> self.parts.kind.bits) if self.parts.pairs else BLOCKS

    def measure_span(self, number: int) -> SweepCounts:
        """Everything that is counted of a span of parts."""
        first, last = number * self.span, min((number + 1) * self.span, self.parts.count)
        if not self.kernel.rounding.output:
            # The kernel names its outputs where it returns a few values.
            flat = torch.arange(128, device=self.kernel.backend.device)
            self.kernel.run(self.parts.tensors(self.parts.bits(flat)))
        allowances = self.allowances(first, last)
        recounted, runs, doubtful, worst, strips = SweepCounts(), Runs(), [], [], []
        for start in range(first, last, STRIP):
            allowed = allowances[start - first : start - first + STRIP]
            strip = self._measure_strip(start, allowed)
            few, many, wrong = self._find_doubtful(strip)
            runs += wrong
            doubtful.append(strip.select(few))
            starts = torch.arange(len(strip.counts), device=strip.counts.device) * self.parts.stretch
            worst.append(strip.select(starts + compiled.largest_errors(strip.counts, self.parts)[0]))
            for chunk in torch.split(many, CHUNK) if len(many) else ():
                runs += self._count_undecided(recounted, strip.select(chunk), allowed, strip.start)
            strips.append((strip.counts, strip.sums, (strip.flags[worst[-1].flat - strip.start] & compiled.SIGN) != 0))
        tops = SelectedValues.join(worst)
        counts, sums, signs = (torch.cat(each) for each in zip(*strips, strict=True))
        total = compiled.sum_stretches(self.parts, first, counts, sums)
        total.bins = self._bin(tops.flat, compiled.largest_errors(counts, self.parts)[1], signs)
        runs += self._decide(recounted, SelectedValues.join(doubtful))
        total.add_recounted(recounted)
        self._set_runs(total, runs, torch.tensor([first * self.size, last * self.size - 1]))
        self._judge(total, tops)
        return total

    def _function(self, key: Any, make: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
        """One of the functions, compiled once."""
        if key not in self.functions:
            self.functions[key] = compiled.compile_for(self.kernel.backend.device, make())
        return self.functions[key]

    def allowances(self, first: int, last: int) -> Tensor:
        """What float64 is certain within, CERTAIN times its own error at some points, of shape (parts, 2, blocks, 1).

        In each block a share of the value, and an absolute amount. Along one argument values change little in a block,
        so that the amount holds even where they cross 0; over a pair's second argument they change by any power of two.
        """
        step = self.size // (self.blocks * POINTS)
        flat = torch.arange(first * self.size + step // 2, last * self.size, step, device=self.kernel.backend.device)
        expected = self.kernel.rounding.expected(self.parts.doubles(flat), members=1, uncertainty=True)
        assert expected.uncertainty is not None
        error = CERTAIN * expected.uncertainty.nan_to_num(0.0, 0.0, 0.0)
        share = torch.where(expected.value != 0, error / expected.value.abs(), 0.0).nan_to_num(0.0, 0.0, 0.0)
        share, error = (points.view(-1, self.blocks, POINTS).amax(2, keepdim=True) for points in (share, error))
        if self.parts.pairs:
            return torch.stack([share.clamp(min=RELATIVE), torch.zeros_like(error)], 1)
        return torch.stack([torch.full_like(share, RELATIVE), error], 1)

    def _measure_strip(self, start: int, allowances: Tensor) -> Strip:
        """Launches all that is done to some parts."""
        measured = []
        for part, allowance in enumerate(allowances, start):
            number = torch.full((1,), part, dtype=torch.int64, device=allowance.device)
            tensors = self.parts.tensors(self._function("inputs", lambda: compiled.input_function(self.parts))(number))
            output = self.kernel.launch(tensors).contiguous()
            kind = named_dtype(DTYPE_NAMES[output.dtype])
            make_classify = partial(compiled.classify_function, self.parts, self.kernel.rounding, kind)
            classified = self._function(kind.name, make_classify)(number, output, allowance)
            sums_of = self._function("sums", lambda: compiled.sum_function(self.parts))
            measured.append((output, classified[0], *sums_of(*classified)))
        outputs, flags, counts, sums = zip(*measured, strict=True)
        stretches = compiled.by_stretch(self.parts, torch.cat(counts, 1), torch.cat(sums, 1))
        return Strip(start * self.size, torch.cat(outputs), torch.cat(flags), *stretches)

    def _find_doubtful(self, strip: Strip) -> tuple[Tensor, Tensor, Runs]:
        """Doubtful values to decide; those of parts with too many; and runs of wrong signs."""
        indices = ((strip.flags & compiled.DOUBT) != 0).nonzero().reshape(-1)
        each = compiled.unpack(strip.counts)[:, [compiled.COUNTS.index("doubt"), compiled.COUNTS.index("sign")]]
        doubts, signs = each.reshape(-1, self.size // self.parts.stretch, 2).sum(1).T.tolist()
        runs = self._find_runs(strip) if any(signs) else Runs()
        by_part, none = torch.split(indices, doubts), indices[:0]
        few = [indices for indices in by_part if len(indices) <= MANY]
        many = [indices for indices in by_part if len(indices) > MANY]
        return torch.cat([none, *few]), torch.cat([none, *many]), runs

    def _find_runs(self, strip: Strip) -> Runs:
        """Runs of wrong signs along the first argument."""
        wrong, width = (strip.flags & compiled.SIGN) != 0, 1
        if self.parts.pairs:
            width = min(1 << self.parts.kind.bits, self.size)
            wrong = wrong.view(-1, width).any(1)
        padded = torch.nn.functional.pad(wrong.to(torch.int8), (1, 1))
        edges = (padded[1:] != padded[:-1]).nonzero().reshape(-1)
        edges[1::2] -= 1
        ranks = self.parts.ranks(edges * width + strip.start)[0].tolist()
        return list(zip(ranks[::2], ranks[1::2], strict=True))

    def _set_runs(self, total: SweepCounts, runs: Runs, ends: Tensor) -> None:
        """Joins runs that overlap or touch, and sets them as values. `ends` are the first and last number."""
        low, high = self.parts.ranks(ends)[0].tolist()
        joined: Runs = []
        for first, last in sorted(runs):
            if joined and first <= joined[-1][1] + 1:
                joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
            else:
                joined.append((first, last))
        bits = bits_at(np.array(joined, dtype=np.uint64).reshape(-1), self.parts.kind)
        values = from_bits(bits, self.parts.kind).tolist()
        total.sign_runs = list(zip(values[::2], values[1::2], strict=True))
        total.first_open = bool(joined) and joined[0][0] == low
        total.last_open = bool(joined) and joined[-1][1] == high

    def _decide(self, recounted: SweepCounts, doubtful: SelectedValues) -> Runs:
        """Counts the values that the compiled functions' float64 could not be trusted with."""
        if not len(doubtful.flat):
            return Runs()
        inputs = self.parts.doubles(doubtful.flat)
        low, high, decided_count = self.kernel.rounding.rounded(inputs, doubtful.kind)
        recounted.other["decided"] += decided_count
        compared = ComparedValues(inputs, doubtful.output, low, high, doubtful.kind)
        return self._recount(recounted, doubtful.flat, compared)

    def _count_undecided(self, recounted: SweepCounts, some: SelectedValues, allowances: Tensor, start: int) -> Runs:
        """Counts values that stay undecided, at the further one of what may be due. Allowances are from `start` on."""
        rounding, inputs = self.kernel.rounding, self.parts.doubles(some.flat)
        assert rounding.target.reference is not None
        value = rounding.target.reference(**inputs, **rounding.options)[rounding.output]
        block = (some.flat - start) // (self.size // self.blocks)
        share, least = (allowances[:, index].reshape(-1)[block] for index in (0, 1))
        low, high, _ = rounded_bounds(inputs, value, torch.maximum(share * value.abs(), least), some.kind)
        return self._recount(recounted, some.flat, ComparedValues(inputs, some.output, low, high, some.kind))

    def _recount(self, recounted: SweepCounts, flat: Tensor, compared: ComparedValues) -> Runs:
        """Counts some values apart; the ranks of wrong signs."""
        counts, error, wrong = count_values(self.kernel, compared)
        counts.bins = self._bin(flat, error, wrong)
        recounted.add(counts)
        return [(rank, rank) for rank in self.parts.ranks(flat[wrong])[0].tolist()]

    def _bin(self, flat: Tensor, error: Tensor, wrong: Tensor) -> Doubles:
        shares = self.parts.ranks(flat)[0].double() / (1 << self.parts.kind.bits)
        return bin_errors(shares, self.parts.doubles(flat)[self.parts.swept[0]], error, wrong)

    def _judge(self, total: SweepCounts, tops: SelectedValues) -> None:
        """Judges the values of largest error by the target's contract."""
        inputs = self.parts.doubles(tops.flat)
        low, high, _ = self.kernel.rounding.bounds(inputs, tops.kind)
        violations = find_violations(self.kernel, ComparedValues(inputs, tops.output, low, high, tops.kind))
        total.other["judged"] = len(tops.flat)
        total.symptoms = Counter(violations.names)
        flat, kind = tops.flat.cpu()[violations.indices], self.parts.kind
        bits = [bits_at(ranks.numpy().astype(np.uint64), kind) for ranks in self.parts.ranks(flat)]
        worst = worst_values(kind, bits, violations, 0)
        shift = 0 if self.parts.pairs else PART.bit_length() - 1
        ranks = rank_of(np.array([value.bits[0] for value in worst], dtype=bits[0].dtype), kind)
        total.worst = [replace(value, part=int(rank) >> shift) for value, rank in zip(worst, ranks, strict=True)]
