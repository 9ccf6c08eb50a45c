"""Counts the errors of values one by one, on the device where they are."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fuzz.model.dtypes import DType
from fuzz.sweep.correct_rounding import Inputs
from fuzz.sweep.counts import BINS, BOUNDS, NEAR, OVER, REGIONS, Doubles, SweepCounts
from fuzz.sweep.kernel import SweptKernel
from fuzz.sweep.ulps import ordinals, ulps

TABLE = ("values", "ulp_sum", "ulp_max", "ordinal_sum", "ordinal_max")


@dataclass
class ComparedValues:
    """Results of some inputs (float64), with what encloses the correctly rounded ones (`low` and `high`, float64)."""

    inputs: Inputs
    output: Tensor
    low: Tensor
    high: Tensor
    kind: DType

    @cached_property
    def got(self) -> Tensor:
        return self.output.double()

    @cached_property
    def want(self) -> Tensor:
        """The correctly rounded result; where it is undecided, of what it may be that which is further away."""
        further = (self.got - self.low).abs() >= (self.got - self.high).abs()
        return torch.where(further | self.low.isnan(), self.low, self.high)

    @cached_property
    def finite(self) -> Tensor:
        """Where all inputs are finite."""
        return torch.stack([torch.isfinite(values) for values in self.inputs.values()]).all(0)


def regions_of(x: Tensor, smallest_normal: float) -> Tensor:
    """The region of each finite value (float64), int32."""
    region = torch.zeros(x.shape, dtype=torch.int32, device=x.device)
    for bound in BOUNDS:
        region = region + (x >= bound).to(torch.int32)
    return torch.where((x.abs() < smallest_normal) & (x != 0), len(REGIONS) - 1, region)


def count_values(kernel: SweptKernel, compared: ComparedValues) -> tuple[SweepCounts, Tensor, Tensor]:
    """(counts, error, wrong): error in units in the last place, NaN where it is not usual; where the sign is wrong."""
    got, want, finite, output = compared.got, compared.want, compared.finite, compared.output
    flushed = finite & find_flushed(kernel, compared)
    usual = finite & torch.isfinite(got) & torch.isfinite(want) & ~flushed
    wrong = finite & (got * want.sign() < 0)
    error = torch.where(usual, ulps(got, want, compared.kind), 0.0)
    steps = torch.where(usual, (ordinals(output) - ordinals(want.to(output.dtype))).abs().double(), 0.0)
    regions = regions_of(compared.inputs[kernel.plan.swept[0]], kernel.plan.kind.smallest_normal)
    over = torch.stack([(error > limit).sum() for limit in OVER]).double()
    counts = counts_of_row(torch.cat([_table(regions, usual, error, steps), over]).cpu().numpy())
    counts.count = len(output)
    counts.other = _count_other(compared, flushed, wrong)
    return counts, torch.where(usual, error, torch.nan), wrong


def _table(regions: Tensor, usual: Tensor, error: Tensor, steps: Tensor) -> Tensor:
    """Count, sum and maximum of the errors in units and in steps, by region: the columns of TABLE in a row."""
    masks = [(regions == index) & usual for index in range(len(REGIONS))]
    columns = [torch.stack([mask.sum().double() for mask in masks])]
    for values in (error, steps):
        chosen = torch.stack([torch.where(mask, values, 0.0) for mask in masks])
        columns += [chosen.sum(1), chosen.amax(1)]
    return torch.cat(columns)


def counts_of_row(row: Doubles) -> SweepCounts:
    """Counts with the columns of TABLE, and those over the limits that follow them."""
    size, counts = len(REGIONS), SweepCounts()
    for index, name in enumerate(TABLE):
        setattr(counts, name, row[index * size : (index + 1) * size].copy())
    counts.over = row[len(TABLE) * size :][: len(OVER)].copy()
    return counts


def _count_other(compared: ComparedValues, flushed: Tensor, wrong: Tensor) -> Counter[str]:
    """Counts beside the table: NaN and infinite inputs, results that are not finite, flushed and undecided ones."""
    got, want, finite = compared.got, compared.want, compared.finite
    same = (got == want) | (got.isnan() & want.isnan())
    nan = torch.stack([values.isnan() for values in compared.inputs.values()]).any(0)
    masks = {
        "sign": wrong,
        "nan": nan,
        "nan_differs": nan & ~same,
        "infinite": ~finite & ~nan,
        "infinite_differs": ~finite & ~nan & ~same,
        "nonfinite": finite & ~same & ~(torch.isfinite(got) & torch.isfinite(want)),
        "flushed": flushed,
        "undecided": finite & (compared.low != compared.high),
        "inexact": finite & ~same,
    }
    return Counter(dict(zip(masks, torch.stack(list(masks.values())).sum(1).tolist(), strict=True)))


def find_flushed(kernel: SweptKernel, compared: ComparedValues) -> Tensor:
    """Subnormal results that came as 0 on a backend that flushes them."""
    eta, want = kernel.rounding.precision.eta, compared.want
    if eta <= compared.kind.smallest_subnormal:
        return torch.zeros_like(want, dtype=torch.bool)
    return (want.abs() < min(eta, compared.kind.smallest_normal)) & (want != 0) & (compared.got == 0)


def bin_errors(shares: Tensor, x: Tensor, error: Tensor, wrong: Tensor) -> Doubles:
    """`SweepCounts.bins` of values, from their share of all ranks, themselves, their errors and wrong signs."""
    present, last = torch.isfinite(x) & torch.isfinite(error), 4 * BINS
    error, x = torch.where(present, error.double(), 0.0), torch.where(present, x, 0.0)
    largest = torch.full((last + 1,), -torch.inf, dtype=torch.float64, device=x.device)
    for view, (share, inside) in enumerate(((shares, present), ((x / NEAR + 1) / 2, present & (x.abs() < NEAR)))):
        index = (share * BINS).long().clamp(0, BINS - 1) + (2 * view + wrong.long()) * BINS
        largest.scatter_reduce_(0, torch.where(inside, index, last), error, "amax")
    bins = largest[:last].view(2, 2, BINS).cpu().numpy()
    return np.where(np.isneginf(bins), np.nan, bins)
