"""Counts the errors of values, on the device where they are, and judges them by the contract as accuracy does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fuzz.model.dtypes import Bits, Doubles, DType, from_bits
from fuzz.oracles.accuracy import NARROW_LARGE
from fuzz.oracles.comparison.batch_rows import select_expected
from fuzz.oracles.comparison.elements import SYMPTOMS, compare_elements
from fuzz.oracles.comparison.expected import STAGES, STAGES_OF_MANY, stage_options
from fuzz.reference.envelope import Precision, merge_members
from fuzz.sweep.correct_rounding import Inputs
from fuzz.sweep.kernel import SweptKernel
from fuzz.sweep.plan import SweepPlan
from fuzz.sweep.sweep_counts import BINS, BOUNDS, NEAR_VIEW, OVER, REGIONS, SweepCounts, WrongValue
from fuzz.sweep.ulps import ordinals, ulps


@dataclass
class ComparedValues:
    """Results of some inputs (float64), with what encloses the correctly rounded ones (`low` and `high`, float64)."""

    inputs: Inputs
    output: Tensor
    low: Tensor
    high: Tensor
    kind: DType

    def select(self, indices: Tensor) -> ComparedValues:
        """Some of them."""
        inputs = {name: values[indices] for name, values in self.inputs.items()}
        return ComparedValues(inputs, self.output[indices], self.low[indices], self.high[indices], self.kind)

    @cached_property
    def got(self) -> Tensor:
        return self.output.double()

    @cached_property
    def undecided(self) -> Tensor:
        """Where the correctly rounded result is not known."""
        return ~same_values(self.low, self.high)

    @cached_property
    def unbounded(self) -> Tensor:
        """Where it is not even known whether that is finite, so that no error can be said."""
        return self.undecided & ~(torch.isfinite(self.low) & torch.isfinite(self.high))

    @cached_property
    def want(self) -> Tensor:
        """The correctly rounded result; where it is undecided, of what it may be that which is further away."""
        further = (self.got - self.low).abs() >= (self.got - self.high).abs()
        return torch.where(further | self.low.isnan(), self.low, self.high)


def same_values(one: Tensor, other: Tensor) -> Tensor:
    """Element by element; NaNs are the same."""
    return (one == other) | (one.isnan() & other.isnan())


def find_regions(x: Tensor, smallest_normal: float) -> Tensor:
    """The region of each finite value (float64), int32."""
    region = torch.bucketize(x, torch.tensor(BOUNDS, dtype=x.dtype, device=x.device), right=True, out_int32=True)
    return torch.where((x.abs() < smallest_normal) & (x != 0), len(REGIONS) - 1, region)


def count_values(kernel: SweptKernel, compared: ComparedValues) -> tuple[SweepCounts, Tensor, Tensor]:
    """(counts, error, wrong): error in units in the last place, and where the sign is wrong.

    The error is infinite where the result is wrongly infinite or NaN, and NaN where nothing is said of it.
    """
    kind, got, want = compared.kind, compared.got, compared.want
    inputs = torch.stack(list(compared.inputs.values()))
    nan, finite = inputs.isnan().any(0), torch.isfinite(inputs).all(0)
    infinite = ~finite & ~nan
    differs = ~same_values(got, want) & ~compared.unbounded
    known = torch.isfinite(got) & torch.isfinite(want) & ~compared.unbounded
    lost = finite & (want.abs() < flushed_below(kernel.rounding.precision, kind)) & (want != 0) & (got == 0)
    wrong = finite & (got * compared.low.sign() < 0) & (got * compared.high.sign() < 0)
    usual, nonfinite = finite & known & ~lost, finite & differs & ~known
    masks = {
        "sign": wrong,
        "nan": nan,
        "nan_differs": nan & differs,
        "infinite": infinite,
        "infinite_differs": infinite & differs,
        "nonfinite": nonfinite,
        "flushed": lost,
        "inexact": finite & differs,
        "undecided": finite & compared.undecided,
        "unbounded": finite & compared.unbounded,
    }
    error = torch.where(usual, ulps(got, want, kind), 0.0)
    steps = torch.where(usual, (ordinals(compared.output) - ordinals(want.to(compared.output.dtype))).abs(), 0)
    regions = find_regions(compared.inputs[kernel.plan.swept[0]], kernel.plan.kind.smallest_normal)
    counts = count_regions(torch.where(usual, regions, len(REGIONS)), error, steps.double())
    counts.count = len(got)
    counts.over += torch.stack([(error > limit).sum() for limit in OVER]).cpu().numpy()
    counts.other = Counter(dict(zip(masks, torch.stack(list(masks.values())).sum(1).tolist(), strict=True)))
    return counts, torch.where(usual, error, torch.where(nonfinite, torch.inf, torch.nan)), wrong


def flushed_below(precision: Precision, kind: DType) -> float:
    """The magnitude below which results may come as 0: the least normal number on a backend that flushes subnormals."""
    return min(precision.eta, kind.smallest_normal) if precision.eta > kind.smallest_subnormal else 0.0


def count_regions(regions: Tensor, error: Tensor, steps: Tensor) -> SweepCounts:
    """Count, sum and maximum of the errors in units and in steps, by region; values beyond all regions are left out."""
    counts = SweepCounts()
    counts.values += torch.bincount(regions, minlength=len(REGIONS) + 1)[:-1].cpu().numpy()
    for region in np.flatnonzero(counts.values).tolist():
        for unit, each in enumerate((error, steps)):
            here = torch.where(regions == region, each, 0.0)
            counts.sums[unit, region], counts.maxima[unit, region] = here.sum().item(), here.max().item()
    return counts


def bin_errors(shares: Tensor, x: Tensor, error: Tensor, wrong: Tensor) -> Doubles:
    """`SweepCounts.bins` of values, from their share of all ranks, themselves, their errors and wrong signs."""
    present, last = torch.isfinite(x) & torch.isfinite(error), 4 * BINS
    error, x = torch.where(present, error.double(), 0.0), torch.where(present, x, 0.0)
    largest = torch.full((last + 1,), -torch.inf, dtype=torch.float64, device=x.device)
    near = (x / NEAR_VIEW + 1) / 2, present & (x.abs() < NEAR_VIEW)
    for view, (share, inside) in enumerate(((shares, present), near)):
        index = (share * BINS).long().clamp(0, BINS - 1) + (2 * view + wrong.long()) * BINS
        largest.scatter_reduce_(0, torch.where(inside, index, last), error, "amax")
    bins = largest[:last].view(2, 2, BINS).cpu().numpy()
    return np.where(np.isneginf(bins), np.nan, bins)


class Violations(NamedTuple):
    """Values that break the contract, on the host: their indices, symptoms (from 1) and ratios of error to bound."""

    indices: Tensor
    symptoms: Tensor
    ratios: Tensor


def find_violations(kernel: SweptKernel, compared: ComparedValues) -> Violations:
    """Where the target's contract is broken.

    A result that is correctly rounded keeps every contract, so that only the others are judged. Inputs that are not
    finite are judged where the target takes such.
    """
    got, want = compared.got, compared.want
    suspect = ~(((got >= compared.low) & (got <= compared.high)) | (got.isnan() & want.isnan())) | compared.unbounded
    for name, values in compared.inputs.items():
        if name not in kernel.target.nonfinite:
            suspect &= torch.isfinite(values)
    indices = suspect.nonzero().reshape(-1)
    symptoms = torch.zeros(len(indices), dtype=torch.int64, device=indices.device)
    ratios = torch.zeros(len(indices), dtype=torch.float64, device=indices.device)
    left, known = torch.arange(len(indices), device=indices.device), None
    for stage in STAGES_OF_MANY:
        if not len(left):
            break
        inputs = {name: values[indices[left]] for name, values in compared.inputs.items()}
        found = kernel.rounding.expected(inputs, **stage_options(stage, known[0] if known else None))
        found = merge_members({"": known[1]} if known else {}, {"": found})[""]
        output = compared.output[indices[left]]
        result = compare_elements(output, found, kernel.rounding.precision, kernel.target.contract)
        symptoms[left], ratios[left] = result.symptom.long(), result.ratio
        # As the oracle does: only what exceeds the bound narrowly is worth the last stage.
        keep = (result.symptom > 0) & ((result.ratio <= NARROW_LARGE) | (stage < len(STAGES) - 2))
        left, known = left[keep], (stage, select_expected(found, keep))
    wrong = symptoms > 0
    return Violations(indices[wrong].cpu(), symptoms[wrong].cpu(), ratios[wrong].cpu())


def worst_values(plan: SweepPlan, request: int, bits: Sequence[Bits], violations: Violations) -> list[WrongValue]:
    """The worst value of each region and symptom. `bits` are those of the swept arguments in the request."""
    bits = [words[violations.indices.numpy()] for words in bits]
    x = torch.from_numpy(from_bits(bits[0], plan.kind)).nan_to_num()
    regions, symptoms = find_regions(x, plan.kind.smallest_normal).numpy(), violations.symptoms.numpy()
    ratios = violations.ratios.numpy()
    order = np.argsort(-ratios, kind="stable")
    _, first = np.unique(np.stack([regions, symptoms], 1)[order], axis=0, return_index=True)
    found = []
    for i, ratio in zip(order[first].tolist(), ratios[order[first]].tolist(), strict=True):
        part, words = plan.part_of(request, bits[0][i]), tuple(int(each[i]) for each in bits)
        found.append(WrongValue(part, int(regions[i]), SYMPTOMS[symptoms[i] - 1], words, ratio))
    return found
