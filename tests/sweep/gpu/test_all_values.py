"""What a GPU counts of large parts is what the CPU counts of small ones; run here on the CPU, with less of all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch._dynamo.testing import CompileCounter

from fuzz.backends import backend
from fuzz.reference.envelope import make_precision
from fuzz.sweep.correct_rounding import CorrectRounding
from fuzz.sweep.fork_pool import ForkPool
from fuzz.sweep.gpu import all_values as large
from fuzz.sweep.gpu.all_values import GpuSweep
from fuzz.sweep.gpu.compiled_functions import STRETCHES, Parts, classify_function, input_function, sum_function
from fuzz.sweep.kernel import SweptKernel
from fuzz.sweep.measure import measure_part
from fuzz.sweep.plan import SweepPlan, make_plan
from fuzz.sweep.ranks import rank_of
from fuzz.sweep.sweep_counts import SweepCounts
from fuzz.target.loader import load, load_planted

TABLE = (
    "count",
    "values",
    "ulp_sum",
    "ulp_max",
    "ordinal_sum",
    "ordinal_max",
    "over",
    "sign_runs",
    "first_open",
    "last_open",
)


def kernel(plan: SweepPlan) -> SweptKernel:
    target = load(plan.text)
    launcher = load_planted(target, plan.planted)[1] if plan.planted else target.launcher
    return SweptKernel(
        plan, target, launcher, backend("cpu"), CorrectRounding(target, "", make_precision("libm"), plan.options)
    )


def alike(one: SweepCounts, other: SweepCounts) -> None:
    for name in TABLE:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    assert {**one.other, "judged": 0} == {"judged": 0} | {name: n for name, n in other.other.items() if n}


@pytest.mark.parametrize(
    ("target", "dtype", "bug"), [("gelu_bw", "bfloat16", "erf_saturates"), ("silu", "bfloat16", None)]
)
def test_all_values_of_one_argument(target: str, dtype: str, bug: str | None) -> None:
    made = kernel(make_plan(load(target), target, dtype=dtype, backend="cpu", planted=bug))
    device, total = GpuSweep(made, size=1 << 13, span=4), SweepCounts()
    for number in range(2):
        total.add(device.measure_span(number))
    whole = measure_part(made, 0)
    assert isinstance(whole, SweepCounts)
    alike(total, whole)
    assert bool(total.wrong) == bool(bug) and total.other["judged"] == 8 * STRETCHES
    assert {one.symptom for one in total.worst} == {one.symptom for one in whole.worst}


X = (-13.5, -5.0, -3.65, -0.7517, -0.5, -(2.0**-126), -0.0, 0.0, 2.0**-126, 0.5, 2.0, np.inf)
"""Where a region ends, or begins, or where the result is about 0."""


@pytest.mark.parametrize("bug", [None, "erf_saturates"])
def test_float32_beside_every_edge(bug: str | None) -> None:
    """The 2^16 values around each; a part of the device is one of the host's own here."""
    asked = make_plan(load("gelu_bw"), "gelu_bw", dtype="float32", backend="cuda", planted=bug)
    assert asked.large
    made = kernel(replace(asked, backend="cpu"))
    device, signs = GpuSweep(made, size=1 << 16, span=1), 0
    places = rank_of(np.array(X, dtype=np.float32).view(np.uint32), asked.kind)
    for part in sorted({int(place) >> 16 for place in places})[1 if bug else 0 : 3 if bug else None]:
        found, whole = device.measure_span(part), measure_part(made, part)
        assert isinstance(whole, SweepCounts)
        # How many float64 leaves to mpmath depends on the noise that a value meets where it stands in its tensor.
        assert abs(found.other.pop("decided", 0) - whole.other.pop("decided", 0)) < 100
        alike(found, whole)
        signs += len(found.sign_runs)
    assert bool(signs) == bool(bug)


# Loading a target of fla-core disables it for the whole process.
@torch._dynamo.config.patch(disable=False)
def test_screens_compile_whole_and_once() -> None:
    """A GPU's compiler gets each as one graph, the same for every part; its answers are those of plain torch."""
    plan = make_plan(load("geglu"), "geglu", dtype="bfloat16", backend="cuda", pairs=True)
    parts, rounding = Parts.of(plan, 1 << 17), kernel(replace(plan, backend="cpu")).rounding
    rounding.output = "y"
    traced = CompileCounter()
    functions = input_function(parts), classify_function(parts, rounding, plan.kind), sum_function(parts)
    compiled = [torch.compile(one, backend=traced, fullgraph=True, dynamic=False) for one in functions]
    allowance = torch.full((2, 2, 1), 2.0**-40, dtype=torch.float64)
    for number in (torch.full((1,), 16000), torch.full((1,), 9000)):
        output = parts.tensors(functions[0](number))["gate"]
        first = [functions[0](number), functions[1](number, output, allowance)]
        second = [compiled[0](number), compiled[1](number, output, allowance)]
        for one, other in zip([*first, functions[2](*first[1])], [*second, compiled[2](*second[1])], strict=True):
            assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert traced.frame_count == 3


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
        rounding.pool.stop()
    assert alone[2] == shared[2] > 16 and torch.equal(alone[0], alone[1])
    assert torch.equal(alone[0], shared[0]) and torch.equal(alone[1], shared[1])


@pytest.mark.parametrize(("many", "size"), [(0, 1 << 16), (0, 1 << 17), (1 << 30, 1 << 17)])
def test_all_pairs_of_a_few_first_values(many: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gates of about 2^-60, where half of the product is a tie now and then that float64 alone does not decide."""
    monkeypatch.setattr(large, "MANY", many)
    asked = make_plan(load("geglu"), "geglu", dtype="bfloat16", backend="cuda", pairs=True)
    assert asked.large and asked.requests == 4 and asked.exhaustive
    made = kernel(replace(asked, backend="cpu"))
    number = (0x8000 + (127 - 60) * 128) // 2
    found, total = GpuSweep(made, size=size, span=(1 << 17) // size).measure_span(number), SweepCounts()
    for part in (2 * number, 2 * number + 1):
        small = measure_part(made, part)
        assert isinstance(small, SweepCounts)
        total.add(small)
    if many:
        alike(found, total)
    else:
        assert found.other["undecided"] >= total.other["decided"] > 100 and not found.other["decided"]
        np.testing.assert_array_equal(found.values, total.values)
        assert (found.ulp_max >= total.ulp_max).all()
