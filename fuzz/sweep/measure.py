"""Measures one part of a sweep in a worker: the kernel on all its values at once, each result against what is due."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fuzz.backends import backend as named_backend
from fuzz.backends.base import Backend
from fuzz.backends.execute import check_outputs
from fuzz.backends.memory import DTYPE_NAMES
from fuzz.errors import TargetError, UsageError, one_line
from fuzz.model.dtypes import Bits, DType, decimal
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.recipes.torch_values import from_bits, to_bits
from fuzz.oracles.accuracy import NARROW_LARGE
from fuzz.oracles.comparison.elements import SYMPTOMS, compare_elements
from fuzz.oracles.comparison.expected import STAGES, THOROUGH
from fuzz.reference.envelope import Expected, make_precision, merge_members
from fuzz.sweep.correct_rounding import CorrectRounding, Inputs
from fuzz.sweep.counts import EACH, OVER, REGIONS, SweepCounts, WrongValue, binned, region_of, runs_of
from fuzz.sweep.plan import SweepPlan, place_of
from fuzz.sweep.ulps import ordinals, ulps
from fuzz.target.loader import load, load_planted
from fuzz.target.spec import Launcher, Target
from fuzz.worker.channel import LastResponse


@dataclass
class KernelRunner:
    """A plan with its target loaded: runs the kernel, and knows what is due."""

    plan: SweepPlan
    target: Target
    launcher: Launcher
    backend: Backend
    rounding: CorrectRounding

    @classmethod
    def of(cls, plan: SweepPlan, target: Target, launcher: Launcher, backend: Backend) -> KernelRunner:
        arithmetic = make_precision(plan.backend, target.accumulate, target.dot)
        return cls(plan, target, launcher, backend, CorrectRounding(target, plan.output, arithmetic, plan.options))

    @classmethod
    def load(cls, plan: SweepPlan) -> KernelRunner:
        """The plan's target on its backend."""
        target = load(plan.text)
        launcher = load_planted(target, plan.planted)[1] if plan.planted else target.launcher
        return cls.of(plan, target, launcher, named_backend(plan.backend))

    def make_tensors(self, words: tuple[Bits, ...]) -> dict[str, Tensor]:
        """Every tensor argument, in the order of the declaration."""
        swept = dict(zip(self.plan.swept, words, strict=True))
        made = {}
        for name in self.plan.order:
            dtype, word = self.plan.fixed.get(name, (self.plan.dtype, 0))
            kind = named_dtype(dtype)
            given = swept[name] if name in swept else np.full(words[0].size, word, dtype=kind.unsigned)
            made[name] = from_bits(given, kind, self.backend.device)
        return made

    def run(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """The output that is looked at, finished. TargetError where it does not fit."""
        output = self.launched(tensors)
        self.backend.synchronize()
        return output

    def launched(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """The same while it may still be computed: what fails there is told by whoever waits for it."""
        with self.backend.uninstrumented():
            outputs = check_outputs(self.target, self.launcher(**tensors, **self.plan.options))
        name = self.rounding.output = self.rounding.output or next(iter(outputs))
        if name not in outputs:
            raise TargetError(f"target {self.target.name!r} has no output {name!r}; it returns {', '.join(outputs)}")
        output = outputs[name]
        if output.shape != next(iter(tensors.values())).shape or output.dtype.itemsize > 4:
            what = "no 16-bit or 32-bit float of its inputs' shape"
            raise TargetError(f"output {name!r} of target {self.target.name!r} is {what}")
        return output.detach()


@dataclass
class ComparedValues:
    """Some values element by element, in float64. `low` and `high` enclose the correctly rounded result.

    `x`, of those that are shown or counted on the host, are the first swept argument's values.
    """

    inputs: Inputs
    output: Tensor
    low: Tensor
    high: Tensor
    kind: DType
    x: np.ndarray[Any, Any] = field(default_factory=lambda: np.empty(0))

    @property
    def got(self) -> Tensor:
        return self.output.double()

    @property
    def want(self) -> Tensor:
        """What is due; where it is undecided, of what may be due that which is further away."""
        further = (self.got - self.low).abs() >= (self.got - self.high).abs()
        return torch.where(further | self.low.isnan(), self.low, self.high)


def measured(kernel: KernelRunner, part: int) -> SweepCounts | LastResponse:
    """Everything that is counted of one part."""
    words = kernel.plan.words(part)
    tensors = kernel.make_tensors(words)
    try:
        output = kernel.run(tensors).cpu()
    except UsageError:
        raise
    except Exception as error:
        return failed(kernel, part, error)
    kind = named_dtype(DTYPE_NAMES[output.dtype])
    inputs = {name: one.cpu().double() for name, one in tensors.items()}
    low, high, settled = kernel.rounding.rounded(inputs, kind)
    compared = ComparedValues(inputs, output, low, high, kind, inputs[kernel.plan.swept[0]].numpy())
    tally = counted(kernel, compared, words)
    tally.other["settled"] = settled
    wrong, symptoms, ratios = broken(kernel, compared)
    tally.symptoms = Counter(SYMPTOMS[int(s) - 1] for s in symptoms)
    tally.worst = shown(compared, words, kernel.plan.kind, (wrong, symptoms, ratios), part)
    return tally


def failed(kernel: KernelRunner, part: int, error: Exception) -> SweepCounts | LastResponse:
    """A part in which the kernel raised; after some errors the process cannot go on."""
    tally = SweepCounts(failed=[(part, one_line(error))])
    return LastResponse(tally) if kernel.backend.is_fatal(error) else tally


def counted(kernel: KernelRunner, compared: ComparedValues, words: tuple[Bits, ...]) -> SweepCounts:
    """The table: errors by region, wrong signs, what is not finite, what is flushed."""
    got, want, kind = compared.got, compared.want, compared.kind
    finite = torch.stack([torch.isfinite(one) for one in compared.inputs.values()]).all(0)
    flushed = finite & flushes(kernel, want, got, kind)
    usual = finite & torch.isfinite(got) & torch.isfinite(want) & ~flushed
    sign = (finite & (got * want.sign() < 0)).numpy()
    error, apart = ulps(got, want, kind), (ordinals(compared.output) - ordinals(want.to(compared.output.dtype))).abs()
    mask = usual.numpy()
    region = region_of(compared.x[mask], kernel.plan.kind.smallest_normal)
    e, o = error.numpy()[mask], apart.numpy()[mask].astype(np.float64)
    made = SweepCounts(len(compared.x))
    size = len(REGIONS)
    made.number = np.bincount(region, minlength=size).astype(np.float64)
    made.ulps = np.bincount(region, e, size).astype(np.float64)
    made.ordinals = np.bincount(region, o, size).astype(np.float64)
    np.maximum.at(made.most, region, e)
    np.maximum.at(made.most_ordinals, region, o)
    made.over = np.array([(e > limit).sum() for limit in OVER], dtype=np.float64)
    made.other = others(compared, finite, flushed)
    _runs(made, compared.x, sign)
    places = place_of(words[0], kernel.plan.kind).astype(np.float64) / (1 << kernel.plan.kind.bits)
    made.bins = binned(places[mask], compared.x[mask], e, sign[mask])
    return made


def _runs(made: SweepCounts, x: np.ndarray[Any, Any], sign: np.ndarray[Any, Any]) -> None:
    """Runs of wrong signs along the first argument; of pairs a value counts where any of its pairs is wrong."""
    starts = np.flatnonzero(np.concatenate([[True], (x[1:] != x[:-1]) & ~(np.isnan(x[1:]) & np.isnan(x[:-1]))]))
    each = np.logical_or.reduceat(sign, starts)
    made.runs = runs_of(x[starts], each)
    made.open_first, made.open_last = bool(each[0]), bool(each[-1])
    made.other["sign"] = int(sign.sum())


def others(compared: ComparedValues, finite: Tensor, flushed: Tensor) -> Counter[str]:
    """Counts beside the table: NaN and infinite inputs, results that are not finite, flushed and undecided ones."""
    got, want = compared.got, compared.want
    same = (got == want) | (got.isnan() & want.isnan())
    some = torch.stack([one.isnan() for one in compared.inputs.values()]).any(0)
    parts = {
        "nan": some,
        "nan_differs": some & ~same,
        "infinite": ~finite & ~some,
        "infinite_differs": ~finite & ~some & ~same,
        "nonfinite": finite & ~same & ~(torch.isfinite(got) & torch.isfinite(want)),
        "flushed": flushed,
        "undecided": finite & (compared.low != compared.high),
        "inexact": finite & ~same,
    }
    return Counter({name: int(mask.sum()) for name, mask in parts.items()})


def flushes(kernel: KernelRunner, want: Tensor, got: Tensor, kind: DType) -> Tensor:
    """Subnormal results that came as 0 on a backend that flushes them."""
    eta = kernel.rounding.precision.eta
    if eta <= kind.smallest_subnormal:
        return torch.zeros_like(want, dtype=torch.bool)
    return (want.abs() < min(eta, kind.smallest_normal)) & (want != 0) & (got == 0)


def broken(kernel: KernelRunner, compared: ComparedValues) -> tuple[Tensor, Tensor, Tensor]:
    """(places, symptoms, ratios) where the target's contract is broken, as the accuracy oracle judges it, on the host.

    A result that is correctly rounded keeps every contract, so that only the others are judged. Inputs that are not
    finite are judged where the target takes such.
    """
    got, want = compared.got, compared.want
    suspect = ~(((got >= compared.low) & (got <= compared.high)) | (got.isnan() & want.isnan()))
    for name, one in compared.inputs.items():
        if name not in kernel.target.nonfinite:
            suspect &= torch.isfinite(one)
    places = suspect.nonzero().reshape(-1)
    symptoms = torch.zeros(len(places), dtype=torch.int64, device=places.device)
    ratios = torch.zeros(len(places), dtype=torch.float64, device=places.device)
    left, known = torch.arange(len(places), device=places.device), None
    for stage in range(len(STAGES)):
        if not len(left):
            break
        known = staged(kernel, {name: one[places[left]] for name, one in compared.inputs.items()}, stage, known)
        found = compare_elements(
            compared.output[places[left]], known, kernel.rounding.precision, kernel.target.contract
        )
        symptoms[left], ratios[left] = found.symptom.long(), found.ratio
        # As the oracle does: only what exceeds the bound narrowly is worth the last stage.
        keep = (found.symptom > 0) & ((found.ratio <= NARROW_LARGE) | (stage < len(STAGES) - 2))
        left, known = left[keep], at(known, keep)
    wrong = symptoms > 0
    return places[wrong].cpu(), symptoms[wrong].cpu(), ratios[wrong].cpu()


def staged(kernel: KernelRunner, inputs: Inputs, stage: int, known: Expected | None) -> Expected:
    """The reference with the envelope of a stage's members, as the accuracy oracle evaluates it."""
    members, after = STAGES[stage], STAGES[stage - 1] if known else 0
    thorough = members >= THOROUGH
    how = dict(members=members, after=after, uncertainty=thorough and after < THOROUGH, check_range=thorough)
    found = kernel.rounding.expected(inputs, **how)
    return merge_members({"": known}, {"": found})[""] if known else found


def at(expected: Expected, keep: Tensor) -> Expected:
    """Some elements of what is expected."""
    own = expected.uncertainty
    return replace(
        expected,
        value=expected.value[keep],
        spread=expected.spread[keep],
        uncertainty=None if own is None else own[keep],
    )


def shown(
    compared: ComparedValues, words: tuple[Bits, ...], kind: DType, wrong: tuple[Tensor, Tensor, Tensor], part: int
) -> list[WrongValue]:
    """The worst of each region and symptom."""
    places, symptoms, ratios = (one.numpy() for one in wrong)
    region = region_of(np.nan_to_num(compared.x[places]), kind.smallest_normal)
    order = np.lexsort((-ratios, symptoms, region))
    groups = np.stack([region[order], symptoms[order]], 1)
    counting = np.arange(len(order))
    fresh = np.concatenate([[True], (groups[1:] != groups[:-1]).any(1)])[: len(order)]
    rank = counting - np.maximum.accumulate(np.where(fresh, counting, 0))
    return [
        _wrong(compared, words, kind, int(places[i]), (int(region[i]), int(symptoms[i]), float(ratios[i])), part)
        for i in order[rank < EACH]
    ]


def _wrong(
    compared: ComparedValues, words: tuple[Bits, ...], kind: DType, place: int, seen: tuple[int, int, float], part: int
) -> WrongValue:
    region, symptom, ratio = seen
    own = tuple(int(one[place]) for one in words)
    got, want = compared.output[place : place + 1], compared.want[place : place + 1]
    apart = int((ordinals(got) - ordinals(want.to(got.dtype))).abs())
    error = float(ulps(got.double(), want, compared.kind))
    told = decimal(int(to_bits(got)[0]), compared.kind), decimal(int(to_bits(want.to(got.dtype))[0]), compared.kind)
    inputs = tuple(decimal(word, kind) for word in own)
    return WrongValue(part, region, SYMPTOMS[symptom - 1], own, inputs, *told, error, apart, ratio)
