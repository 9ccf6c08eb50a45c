"""Counts by region, and runs of wrong signs over the parts of a sweep."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import torch

from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.dtypes import from_bits, to_bits
from fuzz.sweep.count_errors import Violations, find_regions, worst_values
from fuzz.sweep.plan import make_plan
from fuzz.sweep.sweep_counts import REGIONS, SweepCounts, find_runs
from fuzz.target.loader import load


def test_regions_of_bfloat16_have_the_reports_counts() -> None:
    kind = named_dtype("bfloat16")
    values = from_bits(np.arange(1 << 16, dtype=np.uint16), kind)
    finite = torch.from_numpy(values[np.isfinite(values)].astype(np.float64))
    region = find_regions(finite, kind.smallest_normal).numpy()
    counts = dict(zip(REGIONS, np.bincount(region).tolist(), strict=True))
    assert list(counts.values()) == [16095, 160, 256, 32003, 256, 160, 16096, 254]


def test_runs_join_across_parts_only_where_both_touch_the_seam() -> None:
    x = np.arange(4.0)
    assert find_runs(x, np.array([True, True, False, True])) == [(0.0, 1.0), (3.0, 3.0)]
    total = SweepCounts()
    total.add(SweepCounts(sign_runs=[(0.0, 1.0), (3.0, 3.0)], first=0.0, last=3.0))
    total.add(SweepCounts(sign_runs=[(4.0, 5.0)], first=4.0, last=6.0))
    assert total.sign_runs == [(0.0, 1.0), (3.0, 5.0)]
    total.add(SweepCounts(sign_runs=[(8.0, 9.0)], first=8.0, last=9.0))
    assert total.sign_runs[-1] == (8.0, 9.0) and Fraction(len(total.sign_runs)) == 3


def test_of_each_region_and_symptom_the_worst_value_is_kept_over_all_parts() -> None:
    plan = make_plan(load("gelu_bw"), "gelu_bw", dtype="float32", backend="cpu")
    kind = plan.kind

    def part_of(number: int, x: list[float], symptoms: list[int], ratios: list[float]) -> SweepCounts:
        violations = Violations(torch.arange(len(x)), torch.tensor(symptoms), torch.tensor(ratios))
        return SweepCounts(worst=worst_values(plan, number, [to_bits(np.array(x), kind)], violations))

    total = SweepCounts()
    total.add(part_of(0, [3.0, 4.0, 4.5, -9.0], [1, 2, 2, 2], [2.0, 5.0, 7.0, 3.0]))
    total.add(part_of(1, [4.75, -8.0, np.nan], [2, 2, 2], [6.0, 4.0, np.inf]))
    total.add(part_of(2, [], [], []))
    kept = [(value.symptom, value.part, value.ratio, from_bits(value.bits[0], kind)) for value in total.worst]
    near_zero, *others = sorted(kept, key=lambda value: -value[2])
    assert near_zero[:3] == ("sign", 1, np.inf) and np.isnan(near_zero[3])
    assert others == [("sign", 0, 7.0, 4.5), ("sign", 1, 4.0, -8.0), ("nonfinite", 0, 2.0, 3.0)]
