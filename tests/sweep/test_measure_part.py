"""What is counted of many parts at once, as on a GPU, is what is counted of each of them; run here on the CPU."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from fuzz.backends import backend
from fuzz.sweep import correct_rounding
from fuzz.sweep.fork_pool import ForkPool
from fuzz.sweep.kernel import SweptKernel
from fuzz.sweep.measure import STRETCH, measure_part
from fuzz.sweep.plan import GPU_PARTS, PART, SweepPlan, make_plan
from fuzz.sweep.ranks import rank_of
from fuzz.sweep.sweep_counts import SweepCounts
from fuzz.target.loader import load, load_planted

TABLE = (
    "count",
    "values",
    "sums",
    "maxima",
    "over",
    "sign_runs",
)


def kernel(plan: SweepPlan) -> SweptKernel:
    target = load(plan.text)
    launcher = load_planted(target, plan.planted)[1] if plan.planted else target.launcher
    return SweptKernel(plan, target, launcher, backend("cpu"))


def alike(one: SweepCounts, other: SweepCounts) -> None:
    for name in TABLE:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    assert +one.other - Counter(judged=one.other["judged"]) == +other.other


def measured(plan: SweepPlan, request: int) -> tuple[SweepCounts, SweepCounts]:
    """(both parts of a request at once, one by one and added up)."""
    found, total = measure_part(kernel(replace(plan, together=2)), request), SweepCounts()
    for part in (2 * request, 2 * request + 1):
        small = measure_part(kernel(replace(plan, together=1)), part)
        total.add(small)
    assert found.other["judged"] == 2 * PART // STRETCH
    return found, total


X = (-13.5, -5.0, -3.65, -0.7517, -0.5, -(2.0**-126), -0.0, 0.0, 2.0**-126, 0.5, 2.0, np.inf)
"""Where a region ends, or begins, or where the result is about 0."""


@pytest.mark.parametrize("bug", [None, "erf_saturates"])
def test_float32_beside_every_edge(bug: str | None) -> None:
    """The 2^17 values around each."""
    asked = make_plan(load("gelu_bw"), "gelu_bw", dtype="float32", backend="cuda", planted=bug)
    assert asked.large and asked.requests == asked.parts // GPU_PARTS
    signs = 0
    places = rank_of(np.array(X, dtype=np.float32).view(np.uint32), asked.kind)
    for request in sorted({int(place) >> 17 for place in places})[1 if bug else 0 : 3 if bug else None]:
        found, whole = measured(replace(asked, backend="cpu"), request)
        # The uncertainty of a block leaves more to arbitrary precision, which decides the same.
        assert 0 <= found.other.pop("decided") < 1000 and 0 <= whole.other.pop("decided", 0) < 1000
        alike(found, whole)
        assert {one.symptom for one in found.worst} == {one.symptom for one in whole.worst}
        assert {one.part >> 1 for one in found.worst} <= {request}
        signs += len(found.sign_runs)
    assert bool(signs) == bool(bug)


@pytest.mark.parametrize("many", [0, 1 << 30])
def test_all_pairs_of_two_first_values(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gates of about 2^-60, where half of the product is a tie now and then that float64 alone does not decide."""
    monkeypatch.setattr(correct_rounding, "MOST_IN_DOUBT", many)
    asked = make_plan(load("geglu"), "geglu", dtype="bfloat16", backend="cuda", pairs=True)
    assert asked.large and asked.exhaustive
    found, total = measured(replace(asked, backend="cpu"), (0x8000 + (127 - 60) * 128) // 2)
    if many:
        alike(found, total)
    else:
        assert found.other["undecided"] >= total.other["decided"] > 100 and not found.other["decided"]
        np.testing.assert_array_equal(found.values, total.values)
        assert (found.maxima >= total.maxima).all()


def test_a_pool_decides_what_one_process_decides() -> None:
    plan = make_plan(load("geglu"), "geglu", dtype="bfloat16", backend="cpu", pairs=True)
    rounding = kernel(plan).rounding
    rounding.output = "y"
    gate = torch.full((128,), 1.5 * 2.0**-60, dtype=torch.float64)
    inputs = {"gate": gate, "up": 1 + torch.arange(128, dtype=torch.float64) / 128}
    alone = rounding.rounded(inputs, plan.kind)
    rounding.pool = ForkPool(rounding.exact, 2)
    try:
        shared = rounding.rounded(inputs, plan.kind)
    finally:
        rounding.pool.shutdown(cancel_futures=True)
    assert alone[2] == shared[2] > 16 and torch.equal(alone[0], alone[1])
    assert torch.equal(alone[0], shared[0]) and torch.equal(alone[1], shared[1])
