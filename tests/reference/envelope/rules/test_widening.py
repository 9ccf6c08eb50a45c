"""Before they are rounded to integers members meet ties within their bound, each with either side of every other."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from fuzz.reference.envelope import evaluate, make_precision

CPU = make_precision("libm")
NEAR = {"x": torch.tensor([1.0, 2.0, 4.0]) / 3, "y": torch.tensor([8.0, 9.0, 10.0]) / 7}


@pytest.mark.parametrize("members", [8, 20])
@pytest.mark.parametrize("x_is_above", [False, True])
@pytest.mark.parametrize("y_is_above", [False, True])
def test_two_ties_are_decided_in_all_four_ways(members: int, x_is_above: bool, y_is_above: bool) -> None:
    def reference(x: Tensor, y: Tensor) -> dict[str, Tensor]:
        x_above = torch.floor(x * 3) > torch.tensor([0.5, 1.5, 3.5])
        y_above = torch.floor(y * 7) > torch.tensor([7.5, 8.5, 9.5])
        hit = (x_above == x_is_above) & (y_above == y_is_above)
        return {"hit": torch.where(hit, 1.0, 0.0)}

    expected = evaluate(reference, NEAR, CPU, members=members)["hit"]
    assert bool(((expected.value + expected.spread) >= 1).all())


@pytest.mark.parametrize("members", [2, 8, 20])
def test_places_that_members_decided_on_stay_inside(members: int) -> None:
    """The place after the last one counts as the first: rounding decides which, and neither is outside."""
    table = torch.arange(40.0)

    def reference(x: Tensor) -> dict[str, Tensor]:
        places = torch.floor(x * 3) * 20
        return {"y": table[torch.where(places < 40, places, 0.0).to(torch.int64)]}

    expected = evaluate(reference, {"x": torch.tensor([2.0]) / 3}, CPU, members=members)["y"]
    assert {expected.value.item(), expected.spread.item()} <= {0.0, 19.0, 20.0}


@pytest.mark.parametrize("members", [8, 20])
def test_a_power_of_what_is_not_positive_is_undecided_where_rounding_makes_its_exponent_whole(members: int) -> None:
    def reference(base: Tensor, exponent: Tensor) -> dict[str, Tensor]:
        return {"y": base ** (exponent * 3 - 1)}

    bases, exponents = [-2.0, -2.0, 2.0, -0.0, -0.0, 0.0], [1e-9, 0.25, 1e-9, 1e-9, 0.25, 1 / 3]
    inputs = {"base": torch.tensor(bases), "exponent": torch.tensor(exponents)}
    expected = evaluate(reference, inputs, CPU, members=members)["y"]
    assert expected.value.isnan().tolist() == [True, True, False, False, False, False]
    assert expected.value.tolist()[3:] == [math.inf, math.inf, 0.0]
    assert expected.spread.isinf().tolist() == [True, False, False, True, False, False]
    assert expected.spread[5] >= 1


@pytest.mark.parametrize("offset", [0.0, -4e12])
@pytest.mark.parametrize("replicas", [None, 3])
def test_members_meet_what_lies_between_where_exponents_are_uncertain(offset: float, replicas: int | None) -> None:
    """Added to a large number all logits of a row are equal, and the derivative of its softmax is no longer small."""

    def reference(x: Tensor) -> dict[str, Tensor]:
        logits = x + offset
        y = torch.exp(logits - logits.amax(-1, keepdim=True))
        y = y / y.sum(-1, keepdim=True)
        return {"slope": y * (1 - y)}

    x = torch.tensor([[0.0, -20.0, -30.0, -40.0]])
    stacked = x if replicas is None else x.expand(replicas, 1, 4).clone()
    expected = evaluate(reference, {"x": stacked}, CPU, members=20, check_range=True, replicas=replicas)["slope"]
    bound = 4 * expected.spread + expected.value
    assert bool(((bound > 0.1875) == bool(offset)).all())


@pytest.mark.parametrize("bins", [2, 3])
def test_what_underflows_keeps_its_sign(bins: int) -> None:
    """The least subnormal number times a number of bins is in the first one."""

    def reference(x: Tensor) -> dict[str, Tensor]:
        places = (x.clamp(0, 1) * bins).floor().clamp(max=bins - 1).long()
        return {"y": torch.bincount(places, minlength=bins)}

    for precision in (CPU, make_precision("libdevice")):
        y = evaluate(reference, {"x": torch.tensor([2.0**-149, 0.0, 0.5])}, precision, members=40)["y"]
        assert float(y.value.sum()) == 3 and float(y.value[0]) >= 2


def test_a_small_difference_may_have_either_sign() -> None:
    inputs = {"x": torch.tensor([1.0 + 2.0**-23]), "y": torch.tensor([1.0])}
    expected = evaluate(lambda x, y: {"y": (x * 3.3 - y * 3.3).floor()}, inputs, CPU, members=40)["y"]
    assert float(expected.value - expected.spread) <= -1
