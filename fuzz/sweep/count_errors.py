"""Counts the errors of values one by one, on the device where they are."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fuzz.model.dtypes import Doubles, DType
from fuzz.reference.envelope import Precision
from fuzz.sweep.correct_rounding import Inputs
from fuzz.sweep.kernel import SweptKernel
from fuzz.sweep.sweep_counts import BINS, BOUNDS, NEAR, OVER, REGIONS, SweepCounts
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


def find_regions(x: Tensor, smallest_normal: float) -> Tensor:
    """The region of each finite value (float64), int32."""
    region = torch.zeros(x.shape, dtype=torch.int32, device=x.device)
    for bound in BOUNDS:
        region = region + (x >= bound).to(torch.int32)
    return torch.where((x.abs() < smallest_normal) & (x != 0), len(REGIONS) - 1, region)


def count_values(kernel: SweptKernel, compared: ComparedValues) -> tuple[SweepCounts, Tensor, Tensor]:
    """(counts, error, wrong): error in units in the last place, NaN where it is not usual; where the sign is wrong."""
    kind, flushed = compared.kind, flushed_below(kernel.rounding.precision, compared.kind)
    masks, error, steps = classify(compared.inputs, compared.output, compared.want, kind, flushed)
    usual = masks.pop("usual")
    masks["undecided"] = ~masks["nan"] & ~masks["infinite"] & (compared.low != compared.high)
    regions = find_regions(compared.inputs[kernel.plan.swept[0]], kernel.plan.kind.smallest_normal)
    over = torch.stack([(error > limit).sum() for limit in OVER]).double()
    counts = parse_counts(torch.cat([_table(regions, usual, error, steps.double()), over]).cpu().numpy())
    counts.count = len(compared.output)
    counts.other = Counter(dict(zip(masks, torch.stack(list(masks.values())).sum(1).tolist(), strict=True)))
    return counts, torch.where(usual, error, torch.nan), masks["sign"]


def classify(
    inputs: Inputs, output: Tensor, want: Tensor, kind: DType, flushed: float, doubt: Tensor | None = None
) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """(masks by what is said of a value, error in units in the last place, error in steps of the order of values).

    `want` is the correctly rounded result (float64). Errors are 0 where they are not usual. Results below `flushed`
    may come as 0. Where `doubt` holds, nothing is said of finite inputs.
    """
    nan, finite = torch.zeros_like(want, dtype=torch.bool), torch.ones_like(want, dtype=torch.bool)
    for values in inputs.values():
        nan, finite = nan | values.isnan(), finite & torch.isfinite(values)
    infinite, got, judged = ~finite & ~nan, output.double(), finite if doubt is None else finite & ~doubt
    differs = ~((got == want) | (got.isnan() & want.isnan()))
    known = torch.isfinite(got) & torch.isfinite(want)
    lost = judged & (want.abs() < flushed) & (want != 0) & (got == 0)
    masks = {
        "usual": judged & known & ~lost,
        "sign": judged & (got * want.sign() < 0),
        "nan": nan,
        "nan_differs": nan & differs,
        "infinite": infinite,
        "infinite_differs": infinite & differs,
        "nonfinite": judged & differs & ~known,
        "flushed": lost,
        "inexact": judged & differs,
    }
    error = torch.where(masks["usual"], ulps(got, want, kind), 0.0)
    steps = torch.where(masks["usual"], (ordinals(output) - ordinals(want.to(output.dtype))).abs(), 0)
    return masks, error, steps


def flushed_below(precision: Precision, kind: DType) -> float:
    """The magnitude below which results may come as 0: the least normal number on a backend that flushes subnormals."""
    return min(precision.eta, kind.smallest_normal) if precision.eta > kind.smallest_subnormal else 0.0


def _table(regions: Tensor, usual: Tensor, error: Tensor, steps: Tensor) -> Tensor:
    """Count, sum and maximum of the errors in units and in steps, by region: the columns of TABLE in a row."""
    masks = [(regions == index) & usual for index in range(len(REGIONS))]
    columns = [torch.stack([mask.sum().double() for mask in masks])]
    for values in (error, steps):
        chosen = torch.stack([torch.where(mask, values, 0.0) for mask in masks])
        columns += [chosen.sum(1), chosen.amax(1)]
    return torch.cat(columns)


def parse_counts(row: Doubles) -> SweepCounts:
    """Counts with the columns of TABLE, and those over the limits that follow them."""
    size, counts = len(REGIONS), SweepCounts()
    for index, name in enumerate(TABLE):
        setattr(counts, name, row[index * size : (index + 1) * size].copy())
    counts.over = row[len(TABLE) * size :][: len(OVER)].copy()
    return counts


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
