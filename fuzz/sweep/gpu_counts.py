"""Totals: tallies from what a device has counted, of the stretches of whole parts or of single values beside them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fuzz.sweep.counts import BINS, NEAR, OVER, REGIONS, SweepCounts
from fuzz.sweep.gpu_screen import COUNTS, OTHERS, Parts, region, unpacked
from fuzz.sweep.measure import ComparedValues, KernelRunner, flushes, others
from fuzz.sweep.ulps import ordinals, ulps

TABLE = ("number", "ulps", "most", "ordinals", "most_ordinals")
BEFORE = len(COUNTS) - len(OVER)


def of_stretches(parts: Parts, first: int, counts: Tensor, sums: Tensor) -> SweepCounts:
    """The tally of parts from `first` on, from what `sums_of` says of all their stretches."""
    each = unpacked(counts)
    middles = first * parts.size + torch.arange(len(counts), device=counts.device) * parts.stretch + parts.stretch // 2
    chosen = (parts.regions(middles) == torch.arange(len(REGIONS), device=counts.device)[:, None]).double().unsqueeze(2)
    added = (chosen * torch.stack([each[:, 0].double(), sums[:, 0], sums[:, 2]], 1)).sum(1)
    most = (chosen * sums[:, [1, 3]]).amax(1)
    columns = added[:, 0], added[:, 1], most[:, 0], added[:, 2], most[:, 1]
    all_counts = each.sum(0).double()
    told = torch.cat([*columns, all_counts[BEFORE:], all_counts[1 : 1 + len(OTHERS)]]).cpu().numpy()
    tally = _numbered(told)
    tally.count = len(counts) * parts.stretch
    tally.other = Counter({name: int(n) for name, n in zip(OTHERS, told[-len(OTHERS) :], strict=True)})
    return tally


def of_values(kernel: KernelRunner, compared: ComparedValues, x: Tensor) -> tuple[SweepCounts, Tensor, Tensor]:
    """(tally, error, wrong): of values one by one; error in units where that is usual, and where the sign is wrong."""
    got, want, kind, output = compared.got, compared.want, compared.kind, compared.output
    finite = torch.stack([torch.isfinite(one) for one in compared.inputs.values()]).all(0)
    flushed = finite & flushes(kernel, want, got, kind)
    usual = finite & torch.isfinite(got) & torch.isfinite(want) & ~flushed
    wrong = finite & (got * want.sign() < 0)
    error = torch.where(usual, ulps(got, want, kind), 0.0)
    steps = torch.where(usual, (ordinals(output) - ordinals(want.to(output.dtype))).abs().double(), 0.0)
    over = torch.stack([(error > limit).sum() for limit in OVER]).double()
    places = region(x, kernel.plan.kind.smallest_normal)
    tally = _numbered(torch.cat([_table(places, usual, error, steps), over]).cpu().numpy())
    tally.count = len(x)
    tally.other = others(compared, finite, flushed)
    tally.other["sign"] = int(wrong.sum())
    return tally, torch.where(usual, error, torch.nan), wrong


def drawn(parts: Parts, flat: Tensor, error: Tensor, wrong: Tensor) -> np.ndarray[Any, Any]:
    """For the plot, as `tally.binned`, from numbers of values, their errors, and whether their sign is wrong."""
    places, rest = parts.places(flat)[0], 4 * BINS
    x = parts.doubles(flat)[parts.swept[0]]
    there = torch.isfinite(x) & torch.isfinite(error)
    error, x = torch.where(there, error.double(), 0.0), torch.where(there, x, 0.0)
    made = torch.full((rest + 1,), -torch.inf, dtype=torch.float64, device=flat.device)
    views = (places.double() / (1 << parts.kind.bits), there), ((x / NEAR + 1) / 2, there & (x.abs() < NEAR))
    for view, (share, inside) in enumerate(views):
        index = (share * BINS).long().clamp(0, BINS - 1) + (2 * view + wrong.long()) * BINS
        made.scatter_reduce_(0, torch.where(inside, index, rest), error, "amax")
    bins = made[:rest].view(2, 2, BINS).cpu().numpy()
    return np.where(np.isneginf(bins), np.nan, bins)


def _numbered(told: np.ndarray[Any, Any]) -> SweepCounts:
    """A tally with the numbers of the table, and those over the limits that follow them."""
    size, tally = len(REGIONS), SweepCounts()
    for index, name in enumerate(TABLE):
        setattr(tally, name, told[index * size : (index + 1) * size].copy())
    tally.over = told[len(TABLE) * size :][: len(OVER)].copy()
    return tally


def _table(places: Tensor, usual: Tensor, error: Tensor, steps: Tensor) -> Tensor:
    """Count, sum and maximum of the errors in units and in steps, by region: 5 x 8 numbers in a row."""
    masks = [(places == index) & usual for index in range(len(REGIONS))]
    rows = [torch.stack([mask.sum().double() for mask in masks])]
    for one in (error, steps):
        rows.append(torch.stack([torch.where(mask, one, 0.0).sum() for mask in masks]))
        rows.append(torch.stack([torch.where(mask, one, 0.0).amax() for mask in masks]))
    return torch.cat(rows)
