"""GpuSweep: all values of a large sweep on a GPU, by parts of 2^24; only what is doubtful is looked at one by one.

The float64 reference and all that is counted are functions that torch compiles (`screen`). They do not perturb the
reference at every value: what float64 is uncertain about is measured at points of every block, and a value counts as
certain where it stays on one side of a rounding boundary when it is moved by that, or by 2^-40 of itself. The others,
about one in 2^15 of float32, are decided one by one as on the CPU. Where there are too many for that they stay
undecided, and count as the further of the two numbers that may be due, so that the largest error told is none too
small.

Nothing waits for the device within a strip of parts, and the host gets numbers, not values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fuzz.backends.memory import DTYPE_NAMES
from fuzz.model.dtypes import DType, from_bits
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.oracles.comparison.elements import SYMPTOMS
from fuzz.sweep.correct_rounding import CERTAIN, within
from fuzz.sweep.counts import SweepCounts
from fuzz.sweep.gpu_counts import drawn, of_stretches, of_values
from fuzz.sweep.gpu_screen import (
    COUNTS,
    DOUBT,
    SIGN,
    Parts,
    by_stretch,
    compiled,
    largest,
    parts_of,
    screen_of,
    sums_of,
    unpacked,
    words_of,
)
from fuzz.sweep.measure import ComparedValues, KernelRunner, broken, shown
from fuzz.sweep.plan import PART, in_order, place_of

SIZE = 1 << 24
"""Values, or pairs, of a part."""
SPAN = 64
"""Parts of one request."""
STRIP = 16
"""Parts whose outputs are kept until what is doubtful has been picked from them."""
BLOCKS, POINTS = 256, 8
"""Blocks of a part along one argument, and points of each block at which float64's own error is measured."""
RELATIVE = 2.0**-40
MANY = 1 << 13
"""Doubtful values of a part from which on they stay undecided."""
AT_ONCE = 1 << 22
"""Doubtful values that are looked at together."""

Runs = list[tuple[int, int]]
Watch = Callable[[str], AbstractContextManager[None]]


def uninstrumented(_: str) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(frozen=True)
class SelectedValues:
    """Some values: their numbers, and what the kernel made of them."""

    flat: Tensor
    output: Tensor

    @property
    def kind(self) -> DType:
        return named_dtype(DTYPE_NAMES[self.output.dtype])

    def batches(self) -> Iterator[SelectedValues]:
        for start in range(0, len(self.flat), AT_ONCE):
            yield SelectedValues(self.flat[start : start + AT_ONCE], self.output[start : start + AT_ONCE])


def joined(picked: list[SelectedValues]) -> SelectedValues:
    return SelectedValues(torch.cat([one.flat for one in picked]), torch.cat([one.output for one in picked]))


@dataclass(frozen=True)
class Strip:
    """Parts one after another: number of the first value, outputs and flags of all, what is counted of stretches."""

    start: int
    output: Tensor
    flags: Tensor
    counts: Tensor
    sums: Tensor

    def picked(self, index: Tensor) -> SelectedValues:
        return SelectedValues(index + self.start, self.output[index])


@dataclass
class GpuSweep:
    """A kernel whose backend computes large parts. The three functions are made at the first part.

    `watch` is told of each kind of work, for who measures where the time goes.
    """

    kernel: KernelRunner
    size: int = SIZE
    span: int = SPAN
    watch: Watch = uninstrumented
    functions: dict[Any, Callable[..., Any]] = field(default_factory=dict)

    @cached_property
    def parts(self) -> Parts:
        return parts_of(self.kernel.plan, self.size)

    @property
    def blocks(self) -> int:
        """Blocks of a part; of pairs one for each first value."""
        return max(1, self.size >> self.parts.kind.bits) if self.parts.pairs else BLOCKS

    def spanned(self, number: int) -> SweepCounts:
        """Everything that is counted of a span of parts."""
        first, last = number * self.span, min((number + 1) * self.span, self.parts.count)
        self._name_output()
        with self.watch("allowances"):
            allowances = self.allowances(first, last)
        beside, runs, doubtful, worst, strips = SweepCounts(), Runs(), [], [], []
        for start in range(first, last, STRIP):
            allowed = allowances[start - first : start - first + STRIP]
            strip = self._strip(start, allowed)
            with self.watch("picks"):
                unsure, crowd, wrong = self._unsure(strip)
                runs += wrong
                doubtful.append(strip.picked(unsure))
                worst.append(strip.picked(self._tops(strip)))
            with self.watch("undecided"):
                for some in torch.split(crowd, AT_ONCE) if len(crowd) else ():
                    runs += self._bounded(beside, strip.picked(some), allowed, strip.start)
            strips.append((strip.counts, strip.sums, (strip.flags[worst[-1].flat - strip.start] & SIGN) != 0))
        tops = joined(worst)
        with self.watch("table"):
            counts, sums, signs = (torch.cat(each) for each in zip(*strips, strict=True))
            total = of_stretches(self.parts, first, counts, sums)
            total.bins = drawn(self.parts, tops.flat, largest(counts, self.parts)[1], signs)
        with self.watch("decide"):
            runs += self._decide(beside, joined(doubtful))
        total.add_beside(beside)
        self._put_runs(total, runs, torch.tensor([first * self.size, last * self.size - 1]))
        with self.watch("judge"):
            self._judge(total, tops)
        return total

    def _function(self, key: Any, make: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
        """One of the functions, compiled once."""
        if key not in self.functions:
            self.functions[key] = compiled(make(), self.kernel.backend.name)
        return self.functions[key]

    def _name_output(self) -> None:
        """Runs the kernel on a few values, so that the output's name is known."""
        if not self.kernel.rounding.output:
            flat = torch.arange(128, device=self.kernel.backend.device)
            self.kernel.run(self.parts.tensors(self.parts.words(flat)))

    def allowances(self, first: int, last: int) -> Tensor:
        """What float64 is certain within, CERTAIN times its own error at some points, of shape (parts, 2, blocks, 1).

        In each block a share of the value, and an absolute amount. Along one argument values change little in a block,
        so that the amount tells even where they cross 0; over a pair's second argument they change by any power of two.
        """
        step = self.size // (self.blocks * POINTS)
        flat = torch.arange(first * self.size + step // 2, last * self.size, step, device=self.kernel.backend.device)
        found = self.kernel.rounding.expected(self.parts.doubles(flat), members=1, uncertainty=True)
        assert found.uncertainty is not None
        own = CERTAIN * found.uncertainty.nan_to_num(0.0, 0.0, 0.0)
        share = torch.where(found.value != 0, own / found.value.abs(), 0.0).nan_to_num(0.0, 0.0, 0.0)
        share, own = (one.view(-1, self.blocks, POINTS).amax(2, keepdim=True) for one in (share, own))
        if self.parts.pairs:
            return torch.stack([share.clamp(min=RELATIVE), torch.zeros_like(own)], 1)
        return torch.stack([torch.full_like(share, RELATIVE), own], 1)

    def _strip(self, start: int, allowances: Tensor) -> Strip:
        """Launches all that is done to some parts."""
        outputs, flags, counts, sums = [], [], [], []
        for part, allowance in enumerate(allowances, start):
            number = torch.full((1,), part, dtype=torch.int64, device=allowance.device)
            with self.watch("inputs"):
                tensors = self.parts.tensors(self._function("words", lambda: words_of(self.parts))(number))
            with self.watch("kernel"):
                output = self.kernel.launched(tensors).contiguous()
            kind = named_dtype(DTYPE_NAMES[output.dtype])
            with self.watch("screen"):
                screen = self._function(kind.name, lambda kind=kind: screen_of(self.parts, self.kernel.rounding, kind))  # type: ignore[misc]
                told = screen(number, output, allowance)
            with self.watch("sums"):
                each = self._function("sums", lambda: sums_of(self.parts))(*told)
            outputs.append(output)
            flags.append(told[0])
            counts.append(each[0])
            sums.append(each[1])
        with self.watch("picks"):
            stretches = by_stretch(self.parts, torch.cat(counts, 1), torch.cat(sums, 1))
            return Strip(start * self.size, torch.cat(outputs), torch.cat(flags), *stretches)

    def _unsure(self, strip: Strip) -> tuple[Tensor, Tensor, Runs]:
        """Doubtful values to decide; those of parts with too many; and runs of wrong signs."""
        index = ((strip.flags & DOUBT) != 0).nonzero().reshape(-1)
        each = unpacked(strip.counts)[:, [COUNTS.index("doubt"), COUNTS.index("sign")]]
        doubts, signs = each.reshape(-1, self.size // self.parts.stretch, 2).sum(1).T.tolist()
        runs = self._runs(strip) if any(signs) else Runs()
        by_part, none = torch.split(index, doubts), index[:0]
        few = [one for one in by_part if len(one) <= MANY]
        crowds = [one for one in by_part if len(one) > MANY]
        return torch.cat([none, *few]), torch.cat([none, *crowds]), runs

    def _tops(self, strip: Strip) -> Tensor:
        """The value with the largest error of each stretch."""
        starts = torch.arange(len(strip.counts), device=strip.counts.device) * self.parts.stretch
        return starts + largest(strip.counts, self.parts)[0]

    def _runs(self, strip: Strip) -> Runs:
        """Runs of wrong signs along the first argument, as first and last places."""
        wrong, width = (strip.flags & SIGN) != 0, 1
        if self.parts.pairs:
            width = min(1 << self.parts.kind.bits, self.size)
            wrong = wrong.view(-1, width).any(1)
        padded = torch.nn.functional.pad(wrong.to(torch.int8), (1, 1))
        edges = (padded[1:] != padded[:-1]).nonzero().reshape(-1)
        edges[1::2] -= 1
        places = self.parts.places(edges * width + strip.start)[0].tolist()
        return list(zip(places[::2], places[1::2], strict=True))

    def _put_runs(self, total: SweepCounts, runs: Runs, ends: Tensor) -> None:
        """Joins runs that overlap or touch, and gives them to the tally as values. `ends` are numbers of the span."""
        low, high = self.parts.places(ends)[0].tolist()
        together: Runs = []
        for first, last in sorted(runs):
            if together and first <= together[-1][1] + 1:
                together[-1] = (together[-1][0], max(last, together[-1][1]))
            else:
                together.append((first, last))
        places = in_order(np.array(together, dtype=np.uint64).reshape(-1), self.parts.kind)
        values = from_bits(places, self.parts.kind).astype(np.float64).tolist()
        total.runs = list(zip(values[::2], values[1::2], strict=True))
        total.open_first = bool(together) and together[0][0] == low
        total.open_last = bool(together) and together[-1][1] == high

    def _decide(self, beside: SweepCounts, doubtful: SelectedValues) -> Runs:
        """Counts the values that the screen's float64 could not be trusted with."""
        runs = Runs()
        for some in doubtful.batches():
            inputs = self.parts.doubles(some.flat)
            low, high, settled = self.kernel.rounding.rounded(inputs, some.kind)
            runs += self._count(beside, some, ComparedValues(inputs, some.output, low, high, some.kind))
            beside.other["settled"] += settled
        return runs

    def _bounded(self, beside: SweepCounts, some: SelectedValues, allowances: Tensor, start: int) -> Runs:
        """Counts values that stay undecided, at the further one of what may be due. Allowances are from `start` on."""
        rounding, inputs = self.kernel.rounding, self.parts.doubles(some.flat)
        assert rounding.target.reference is not None
        value = rounding.target.reference(**inputs, **rounding.options)[rounding.output]
        block = (some.flat - start) // (self.size // self.blocks)
        share, least = (allowances[:, one].reshape(-1)[block] for one in (0, 1))
        low, high, _ = within(inputs, value, torch.maximum(share * value.abs(), least), some.kind)
        return self._count(beside, some, ComparedValues(inputs, some.output, low, high, some.kind))

    def _count(self, beside: SweepCounts, some: SelectedValues, compared: ComparedValues) -> Runs:
        """Counts some values apart; the places of wrong signs."""
        tally, error, wrong = of_values(self.kernel, compared, compared.inputs[self.parts.swept[0]])
        tally.bins = drawn(self.parts, some.flat, error, wrong)
        beside.add(tally)
        return [(place, place) for place in self.parts.places(some.flat[wrong])[0].tolist()]

    def _judge(self, total: SweepCounts, tops: SelectedValues) -> None:
        """Judges the values of largest error by the target's contract."""
        inputs = self.parts.doubles(tops.flat)
        low, high, _ = self.kernel.rounding.bounds(inputs, tops.kind)
        wrong = broken(self.kernel, ComparedValues(inputs, tops.output, low, high, tops.kind))
        total.other["judged"] = len(tops.flat)
        total.symptoms = Counter(SYMPTOMS[int(symptom) - 1] for symptom in wrong[1])
        at, kind = wrong[0].to(low.device), self.parts.kind
        flat, some = tops.flat[at].cpu(), {name: one[at].cpu() for name, one in inputs.items()}
        words = tuple(in_order(one.numpy().astype(np.uint64), kind) for one in self.parts.places(flat))
        x = some[self.parts.swept[0]].numpy()
        seen = ComparedValues(some, tops.output[at].cpu(), low[at].cpu(), high[at].cpu(), tops.kind, x)
        found = shown(seen, words, kind, (torch.arange(len(flat)), *wrong[1:]), 0)
        bits = 0 if self.parts.pairs else PART.bit_length() - 1
        places = place_of(np.array([one.words[0] for one in found], dtype=words[0].dtype), kind)
        total.worst = [replace(one, part=int(place) >> bits) for one, place in zip(found, places, strict=True)]
