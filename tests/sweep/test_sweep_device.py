"""What a GPU counts of large parts is what the CPU counts of small ones; run here on the CPU, with less of all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fuzz.backends import backend
from fuzz.loader import load, planted
from fuzz.reference import precision
from fuzz.sweep import Plan, Tally, planned
from fuzz.sweep import device as large
from fuzz.sweep.device import Device
from fuzz.sweep.measure import Bench, measured
from fuzz.sweep.screen import STRETCHES
from fuzz.sweep.truth import Truth

TABLE = ("count", "number", "ulps", "most", "ordinals", "most_ordinals", "over", "runs", "open_first", "open_last")


def bench(plan: Plan) -> Bench:
    target = load(plan.text)
    launcher = planted(target, plan.planted)[1] if plan.planted else target.launcher
    return Bench(plan, target, launcher, backend("cpu"), Truth(target, "", precision("cpu"), plan.options))


def alike(one: Tally, other: Tally) -> None:
    for name in TABLE:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    assert {**one.other, "judged": 0} == {"judged": 0} | {name: n for name, n in other.other.items() if n}


@pytest.mark.parametrize(
    ("target", "dtype", "bug"), [("gelu_bw", "bfloat16", "erf_saturates"), ("silu", "bfloat16", None)]
)
def test_all_values_of_one_argument(target: str, dtype: str, bug: str | None) -> None:
    made = bench(planned(load(target), target, dtype=dtype, backend="cpu", planted=bug))
    device, total = Device(made, size=1 << 13, span=4), Tally()
    for number in range(2):
        total.add(device.spanned(number))
    whole = measured(made, 0)
    assert isinstance(whole, Tally)
    alike(total, whole)
    assert bool(total.wrong) == bool(bug) and total.other["judged"] == 8 * STRETCHES
    assert {one.symptom for one in total.worst} == {one.symptom for one in whole.worst}


@pytest.mark.parametrize("many", [0, 1 << 30])
def test_all_pairs_of_a_few_first_values(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gates of about 2^-60, where half of the product is a tie now and then that float64 alone does not decide."""
    monkeypatch.setattr(large, "MANY", many)
    asked = planned(load("geglu"), "geglu", dtype="bfloat16", backend="cuda", pairs=True)
    assert asked.large and asked.requests == 4 and asked.exhaustive
    made = bench(replace(asked, backend="cpu"))
    number = (0x8000 + (127 - 60) * 128) // 2
    found, total = Device(made, size=1 << 17, span=1).spanned(number), Tally()
    for part in (2 * number, 2 * number + 1):
        small = measured(made, part)
        assert isinstance(small, Tally)
        total.add(small)
    if many:
        alike(found, total)
    else:
        assert found.other["undecided"] >= total.other["settled"] > 100 and not found.other["settled"]
        np.testing.assert_array_equal(found.number, total.number)
        assert (found.most >= total.most).all()
