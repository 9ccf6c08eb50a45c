"""Device: all values of a large sweep on a GPU, by parts of 2^24; only what is doubtful comes back from there.

The float64 reference and all that is counted are one function, compiled where torch can. It does not perturb the
reference at every value: what float64 is uncertain about is measured at points of every block, and a value counts as
certain where it stays on one side of a rounding boundary when it is moved by that, or by 2^-40 of itself. The others,
about one in 2^15 of float32, are decided one by one as on the CPU. Where there are too many for that they stay
undecided, and count as the further of the two numbers that may be due, so that the largest error told is none too
small.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fuzz.backends.memory import NAMES, TORCH_DTYPES
from fuzz.dtypes import DType, Words, from_words
from fuzz.dtypes import dtype as named_dtype
from fuzz.oracles.judge import SYMPTOMS
from fuzz.sweep.measure import Bench, Compared, broken, counted, shown
from fuzz.sweep.plan import PART, in_order, place_of
from fuzz.sweep.tally import BOUNDS, OVER, REGIONS, Tally, binned
from fuzz.sweep.truth import CERTAIN
from fuzz.sweep.units import ordinals, rounded, ulps

SIZE = 1 << 24
"""Values, or pairs, of a part."""
SPAN = 64
"""Parts of one request."""
BLOCKS, POINTS = 16, 8
"""Blocks of a part along one argument, and points of each block at which float64's own error is measured."""
RELATIVE = 2.0**-40
ROWS = 2048
"""Of so many stretches of each part the largest error is judged by the target's contract, and drawn."""
MANY = 1 << 13
"""Doubtful values of a part from which on they stay undecided."""
SIGN, DOUBT = 1, 2
COUNTS = ("number", "ulps", "most", "ordinals", "most_ordinals")
OTHERS = ("sign", "nan", "nan_differs", "infinite", "infinite_differs", "nonfinite", "flushed", "inexact")

Runs = list[tuple[int, int]]
Picked = list[tuple[Tensor, ...]]
"""Of each part some values: the places of the swept arguments, then the output."""


@dataclass
class Device:
    """A bench whose backend computes large parts. `screen` is made at the first part, and compiled on a GPU."""

    bench: Bench
    size: int = SIZE
    span: int = SPAN
    screen: Callable[..., Any] | None = None

    @property
    def parts(self) -> int:
        return (1 << self.bench.plan.kind.bits * len(self.bench.plan.swept)) // self.size

    def places(self, flat: Tensor) -> list[Tensor]:
        """The places, in the order of values, of each swept argument, from numbers of values or pairs."""
        bits = self.bench.plan.kind.bits
        return [flat >> bits, flat & ((1 << bits) - 1)] if self.bench.plan.pairs else [flat]

    def tensors(self, places: list[Tensor]) -> dict[str, Tensor]:
        """Every tensor argument, in the order of the declaration."""
        plan, device = self.bench.plan, places[0].device
        swept = dict(zip(plan.swept, places, strict=True))
        made = {}
        for name in plan.order:
            if name in swept:
                made[name] = values_at(swept[name], plan.kind)
            else:
                dtype, word = plan.fixed[name]
                value = float(from_words(word, named_dtype(dtype)))
                made[name] = torch.full(places[0].shape, value, dtype=TORCH_DTYPES[dtype], device=device)
        return made

    @property
    def blocks(self) -> int:
        """Blocks of a part; of pairs one for each first value."""
        return max(1, self.size >> self.bench.plan.kind.bits) if self.bench.plan.pairs else BLOCKS

    def allowances(self, first: int, last: int) -> Tensor:
        """What float64 is certain within, CERTAIN times its own error at some points, of shape (parts, 2, blocks, 1).

        In each block a share of the value, and an absolute amount. Along one argument values change little in a block,
        so that the amount tells even where they cross 0; over a pair's second argument they change by any power of two.
        """
        step = self.size // (self.blocks * POINTS)
        flat = torch.arange(first * self.size + step // 2, last * self.size, step, device=self.bench.backend.device)
        inputs = {name: one.double() for name, one in self.tensors(self.places(flat)).items()}
        found = self.bench.truth.expected(inputs, members=1, uncertainty=True)
        assert found.uncertainty is not None
        own = CERTAIN * found.uncertainty.nan_to_num(0.0, 0.0, 0.0)
        share = torch.where(found.value != 0, own / found.value.abs(), 0.0).nan_to_num(0.0, 0.0, 0.0)
        share, own = (one.view(-1, self.blocks, POINTS).amax(2, keepdim=True) for one in (share, own))
        if self.bench.plan.pairs:
            return torch.stack([share.clamp(min=RELATIVE), torch.zeros_like(own)], 1)
        return torch.stack([torch.full_like(share, RELATIVE), own], 1)

    def spanned(self, number: int) -> Tally:
        """Everything that is counted of a span of parts."""
        first, last = number * self.span, min((number + 1) * self.span, self.parts)
        device, bench = self.bench.backend.device, self.bench
        start = torch.arange(self.size, device=device)
        self._name_output()
        allowances, total = self.allowances(first, last), Tally()
        doubtful, worst, rows, runs = Picked(), Picked(), Picked(), []
        for part in range(first, last):
            places = self.places(start + part * self.size)
            tensors = self.tensors(places)
            output = bench.run(tensors)
            kind = named_dtype(NAMES[output.dtype])
            self.screen = self.screen or self._screen(kind)
            numbers, error, flags = self.screen(output, tensors, allowances[part - first])
            total.add(self._tally(numbers))
            runs += self._runs(places[0], (flags & SIGN) != 0) if total.other["sign"] else []
            unsure = ((flags & DOUBT) != 0).nonzero().reshape(-1)
            top = largest(error)
            if len(unsure) > MANY:
                runs += self._bounded(total, unsure, places, tensors, output, allowances[part - first])
                unsure = unsure[:0]
            doubtful.append((*(one[unsure] for one in places), output[unsure]))
            worst.append((*(one[top] for one in places), output[top]))
            rows.append((places[0][top], error[top], flags[top]))
        total.bins = self._bins(rows)
        runs += self._decide(total, doubtful, kind)
        self._put_runs(total, runs, start[[0, -1]] + torch.tensor([first, last - 1], device=device) * self.size)
        self._judge(total, worst, kind)
        return total

    def _name_output(self) -> None:
        """Runs the kernel on a few values, so that the output's name is known."""
        if not self.bench.truth.output:
            self.bench.run(self.tensors(self.places(torch.arange(128, device=self.bench.backend.device))))

    def _screen(self, kind: DType) -> Callable[..., Any]:
        """The function of one part: (numbers of the table, error in units and flags of each value)."""
        truth, eta = self.bench.truth, self.bench.truth.precision.eta
        reference, options, output = truth.target.reference, truth.options, truth.output
        tiny, swept = self.bench.plan.kind.smallest_normal, self.bench.plan.swept[0]
        flushed = min(eta, kind.smallest_normal) if eta > kind.smallest_subnormal else 0.0
        assert reference is not None

        def screen(out: Tensor, tensors: dict[str, Tensor], allowance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            inputs = {name: one.double() for name, one in tensors.items()}
            value, got = reference(**inputs, **options)[output], out.double()
            share, least = allowance.expand(2, -1, len(out) // allowance.shape[1]).reshape(2, -1)
            margin = torch.maximum(share * value.abs(), least)
            nan, finite = inputs[swept].isnan(), torch.isfinite(inputs[swept])
            for one in inputs.values():
                nan, finite = nan | one.isnan(), finite & torch.isfinite(one)
            low, high, want = rounded(value - margin, kind), rounded(value + margin, kind), rounded(value, kind)
            doubt = finite & ~(low == high)
            differs = ~((got == want) | (got.isnan() & want.isnan())) & ~doubt
            lost = finite & (want.abs() < flushed) & (want != 0) & (got == 0)
            known = torch.isfinite(got) & torch.isfinite(want)
            usual = finite & ~doubt & ~lost & known
            error = torch.where(usual, ulps(got, want, kind), 0.0)
            apart = torch.where(usual, (ordinals(out) - ordinals(want.to(out.dtype))).abs().double(), 0.0)
            sign = finite & ~doubt & (got * want.sign() < 0)
            infinite = ~finite & ~nan
            others = [sign, nan, nan & differs, infinite, infinite & differs]
            others += [finite & differs & ~known, lost, finite & differs]
            counts = [(error > limit).sum() for limit in OVER] + [one.sum() for one in others]
            numbers = torch.cat([table(inputs[swept], usual, error, apart, tiny), torch.stack(counts).double()])
            # What is wrongly infinite or NaN is worse than anything that has a number.
            shown = torch.where(finite & differs & ~known, torch.inf, error).float()
            return numbers, shown, (SIGN * sign + DOUBT * doubt).to(torch.uint8)

        return torch.compile(screen, dynamic=False) if self.bench.backend.name == "cuda" else screen

    def _tally(self, numbers: Tensor) -> Tally:
        told = numbers.cpu().numpy()
        tally = numbered(told)
        tally.count = self.size
        tally.other = Counter({name: int(n) for name, n in zip(OTHERS, told[-len(OTHERS) :], strict=True)})
        return tally

    def _runs(self, places: Tensor, wrong: Tensor) -> Runs:
        """Runs of wrong signs along the first argument, as first and last places."""
        if self.bench.plan.pairs:
            width = min(1 << self.bench.plan.kind.bits, self.size)
            wrong, places = wrong.view(-1, width).any(1), places.view(-1, width)[:, 0]
        padded = torch.nn.functional.pad(wrong.to(torch.int8), (1, 1))
        edges = (padded[1:] != padded[:-1]).nonzero().reshape(-1)
        return list(zip(places[edges[::2]].tolist(), places[edges[1::2] - 1].tolist(), strict=True))

    def _put_runs(self, total: Tally, runs: Runs, ends: Tensor) -> None:
        """Joins runs that overlap or touch, and gives them to the tally as values. `ends` are numbers of the span."""
        low, high = self.places(ends)[0].tolist()
        joined: Runs = []
        for first, last in sorted(runs):
            if joined and first <= joined[-1][1] + 1:
                joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
            else:
                joined.append((first, last))
        values = values_at(torch.tensor(joined, dtype=torch.int64).reshape(-1), self.bench.plan.kind).tolist()
        total.runs = list(zip(values[::2], values[1::2], strict=True))
        total.open_first = bool(joined) and joined[0][0] == low
        total.open_last = bool(joined) and joined[-1][1] == high

    def _bins(self, rows: Picked) -> np.ndarray[Any, Any]:
        """For the plot: of each stretch the value with the largest error."""
        places, error, flags = (torch.cat(parts).cpu() for parts in zip(*rows, strict=True))
        kind = self.bench.plan.kind
        x = values_at(places, kind).double().numpy()
        there = np.isfinite(x) & np.isfinite(error.numpy())
        share = places.numpy()[there] / (1 << kind.bits)
        sign = (flags.numpy()[there] & SIGN) != 0
        return binned(share, x[there], error.numpy()[there].astype(np.float64), sign)

    def _compared(self, picked: Picked, kind: DType) -> tuple[Compared, tuple[Words, ...], int]:
        """Some values as the CPU looks at them: in the order of values, one by one where float64 is not enough."""
        *places, output = (torch.cat(parts).cpu() for parts in zip(*picked, strict=True))
        inputs = {name: one.double() for name, one in self.tensors(places).items()}
        low, high, settled = self.bench.truth.rounded(inputs, kind)
        words = tuple(in_order(one.numpy().astype(np.uint64), self.bench.plan.kind) for one in places)
        return Compared(inputs[self.bench.plan.swept[0]].numpy(), inputs, output, low, high, kind), words, settled

    def _decide(self, total: Tally, doubtful: Picked, kind: DType) -> Runs:
        """Counts the values that float64 alone could not be trusted with; the places whose signs are wrong."""
        compared, words, settled = self._compared(doubtful, kind)
        if not len(compared.x):
            return []
        some = counted(self.bench, compared, words)
        some.other["settled"] = settled
        total.add_beside(some)
        wrong = (compared.got * compared.want.sign() < 0).numpy()
        return [(int(place), int(place)) for place in place_of(words[0][wrong], self.bench.plan.kind)]

    def _bounded(
        self, total: Tally, unsure: Tensor, places: list[Tensor], tensors: dict[str, Tensor], output: Tensor,
        allowance: Tensor,
    ) -> Runs:  # fmt: skip
        """Counts values that stay undecided, at the further one of what may be due; places of wrong signs."""
        kind, plan, truth = named_dtype(NAMES[output.dtype]), self.bench.plan, self.bench.truth
        inputs, out = {name: one[unsure].double() for name, one in tensors.items()}, output[unsure]
        assert truth.target.reference is not None
        value, got = truth.target.reference(**inputs, **truth.options)[truth.output], out.double()
        share, least = allowance.reshape(2, -1)[:, unsure // (self.size // self.blocks)]
        margin = torch.maximum(share * value.abs(), least)
        low, high = rounded(value - margin, kind), rounded(value + margin, kind)
        far = torch.where((got - low).abs() >= (got - high).abs(), low, high)
        usual = torch.isfinite(got) & torch.isfinite(low) & torch.isfinite(high)
        error = torch.where(usual, ulps(got, far, kind), 0.0)
        apart = torch.where(usual, (ordinals(out) - ordinals(far.to(out.dtype))).abs().double(), 0.0)
        sign = (got * low.sign() < 0) & (got * high.sign() < 0)
        counts = [(error > limit).sum().double() for limit in OVER]
        counts += [one.sum().double() for one in (sign, ~usual, (got != low) & (got != high))]
        tiny = plan.kind.smallest_normal
        told = torch.cat([table(inputs[plan.swept[0]], usual, error, apart, tiny), torch.stack(counts)]).cpu().numpy()
        some = numbered(told)
        wrong, unusual, inexact = (int(n) for n in told[-3:])
        some.other = Counter(sign=wrong, nonfinite=unusual, inexact=inexact, undecided=len(unsure))
        total.add_beside(some)
        return [(place, place) for place in places[0][unsure[sign]].tolist()]

    def _judge(self, total: Tally, worst: Picked, kind: DType) -> None:
        """Judges the worst values by the target's contract."""
        compared, words, _ = self._compared(worst, kind)
        wrong = broken(self.bench, compared)
        total.symptoms = Counter(SYMPTOMS[int(symptom) - 1] for symptom in wrong[1])
        bits = 0 if self.bench.plan.pairs else PART.bit_length() - 1
        found = shown(compared, words, self.bench.plan.kind, wrong, 0)
        places = place_of(np.array([one.words[0] for one in found], dtype=words[0].dtype), self.bench.plan.kind)
        total.worst = [replace(one, part=int(place) >> bits) for one, place in zip(found, places, strict=True)]
        total.other["judged"] = len(compared.x)


def numbered(told: np.ndarray[Any, Any]) -> Tally:
    """A tally with the numbers of `table`, and those over the limits that follow them."""
    size, tally = len(REGIONS), Tally()
    for index, name in enumerate(COUNTS):
        setattr(tally, name, told[index * size : (index + 1) * size].copy())
    tally.over = told[len(COUNTS) * size :][: len(OVER)].copy()
    return tally


def largest(error: Tensor) -> Tensor:
    """The place of the largest error of each of ROWS stretches."""
    rows = error.view(min(ROWS, len(error)), -1)
    return rows.argmax(1) + torch.arange(len(rows), device=error.device) * rows.shape[1]


def values_at(places: Tensor, kind: DType) -> Tensor:
    """The values at these places of the order of values, in their own dtype."""
    half = 1 << (kind.bits - 1)
    words = torch.where(places < half, 2 * half - 1 - places, places - half)
    signed = torch.where(words >= half, words - 2 * half, words)
    return signed.to(torch.int16 if kind.bits == 16 else torch.int32).view(TORCH_DTYPES[kind.name])


def table(x: Tensor, usual: Tensor, error: Tensor, apart: Tensor, tiny: float) -> Tensor:
    """Count, sum and maximum of the errors in units and in steps, by region: 5 x 8 numbers in a row."""
    subnormal = (x.abs() < tiny) & (x != 0)
    ends = [-torch.inf, *BOUNDS, torch.inf]
    masks = [(x >= low) & (x < high) & ~subnormal & usual for low, high in zip(ends, ends[1:], strict=False)]
    masks.append(subnormal & usual)
    parts = [torch.stack([mask.sum().double() for mask in masks])]
    for one in (error, apart):
        parts.append(torch.stack([torch.where(mask, one, 0.0).sum() for mask in masks]))
        parts.append(torch.stack([torch.where(mask, one, 0.0).amax() for mask in masks]))
    return torch.cat(parts)
