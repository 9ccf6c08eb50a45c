"""Balls enclose the true values, and prove what two agreeing precisions only suggest."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable
from typing import Any

import mpmath
import pytest
import torch
from mpmath import mp, mpf
from torch import Tensor

from fuzz.errors import Unadjudicated
from fuzz.reference.exact import evaluate as exact_evaluation
from fuzz.reference.exact import evaluate_elementwise, evaluate_exact
from fuzz.reference.exact.arithmetic import BINARY, UNARY, RealArithmetic, Undetermined
from fuzz.reference.exact.ball_arithmetic import BallArithmetic
from fuzz.reference.exact.mpmath_arithmetic import MpmathArithmetic

EDGES = [0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 3.0, -7.0, 1e-300, -1e-300, 1e30, -1e30, 40.0, -40.0]


@pytest.fixture(autouse=True)
def arithmetic() -> str:
    """These tests choose the arithmetic themselves."""
    return "balls"


def evaluate(formula: Callable[[Tensor], Tensor], *x: float) -> Any:
    return evaluate_exact(lambda x: {"y": formula(x)}, {"x": torch.tensor(x, dtype=torch.float64)})


def without_flint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flint", None)


def encloses(ball: Any, want: Any) -> bool:
    """Whether a ball contains a number of mpmath, up to the number's own error. exp(-2^64) is 0 there."""
    middle, radius = mp.make_mpf(ball.mid()._mpf_), mp.make_mpf(ball.rad()._mpf_)
    return bool(abs(middle - want) <= radius + abs(want) * mpf(10) ** -100 + mpf(10) ** -1000)


@pytest.mark.parametrize("name", [*UNARY, *BINARY, "add", "mul", "div"])
def test_each_function_encloses_what_mpmath_computes_with_more_digits(name: str) -> None:
    balls, numbers, draw = BallArithmetic(), MpmathArithmetic(), random.Random(name)
    values = [*EDGES, *(draw.uniform(-3, 3) for _ in range(20)), *(draw.uniform(0, 1) for _ in range(10))]
    checked = 0
    for x in values:
        for y in values if name in BINARY or name in ("add", "mul", "div") else [None]:
            arguments = [v for v in (x, y) if v is not None]
            with balls.precision(50):
                try:
                    ball = balls.call_finite(name, *map(balls.number, arguments))
                except Undetermined:
                    continue
            if ball is None:
                continue
            with mpmath.workdps(120):
                want = numbers.call_finite(name, *map(mpf, arguments))
                if want is not None and mp.isfinite(want):
                    assert encloses(ball, want), (name, arguments, ball, want)
                    checked += 1
    assert checked >= 10


@pytest.mark.parametrize("name", UNARY)
def test_the_image_of_a_wide_ball_encloses_the_images_of_its_points(name: str) -> None:
    from flint import arb

    balls, numbers = BallArithmetic(), MpmathArithmetic()
    with balls.precision(50):
        middle = 1.7 if name == "acosh" else 0.7
        ball = balls.call_finite(name, arb(middle, 1e-6))
    for distance in (-9e-7, 0.0, 9e-7):
        with mpmath.workdps(80):
            assert encloses(ball, numbers.call_finite(name, mpf(middle + distance)))


def test_a_cancellation_on_which_two_precisions_agree_is_wrong_and_its_enclosure_is_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """1 + erf(-60) is 10^-1566: 0 at 400 digits and at 800, although exp(3600) makes 0.0094 of it."""

    def formula(x: Tensor) -> Tensor:
        return torch.exp(x * x) * (1 + torch.erf(-x))

    proven = evaluate(formula, 60.0)
    assert proven.proof == "enclosure" and proven.digits >= 1600
    with mpmath.workdps(50):
        assert abs(proven.values["y"][0] / (mp.exp(3600) * mp.erfc(60)) - 1) < mpf(10) ** -25
    without_flint(monkeypatch)
    agreed = evaluate(formula, 60.0)
    assert agreed.proof == "" and agreed.digits == 800 and agreed.values["y"][0] == 0


def test_a_comparison_is_decided_by_as_many_digits_as_it_takes() -> None:
    found = evaluate(lambda x: torch.where(1 + torch.erf(-x) > 0, 1.0, -1.0), 60.0)
    assert found.proof == "enclosure" and found.values["y"][0] == 1


def test_numbers_that_are_equal_by_different_formulas_are_left_to_agreement() -> None:
    found = evaluate(lambda x: torch.relu(torch.log2(x) - torch.log(x) / torch.log(x * 0 + 2)), 3.0)
    assert found.proof == "" and found.values["y"][0] == 0


def test_a_tie_of_numbers_that_were_computed_alike_is_known() -> None:
    found = evaluate(lambda x: torch.sort(torch.softmax(x, -1)).values * torch.softmax(x, -1).argmax(), 0.1, 0.7, 0.7)
    assert found.proof == "enclosure"
    assert float(found.values["y"][2]) == pytest.approx(math.exp(0.7) / (math.exp(0.1) + 2 * math.exp(0.7)))


def test_numbers_that_were_computed_alike_in_two_places_are_known_to_be_equal() -> None:
    """Distributions of the same logits, each with its own softmax: their distance is 0, and so is its gradient."""

    def distance(x: Tensor) -> Tensor:
        return (torch.softmax(x, -1) - torch.softmax(x + 0, -1)).abs()

    found = evaluate(lambda x: torch.sign(distance(x)) + torch.maximum(distance(x), x * 0), 0.1, 0.7, -2.0)
    assert found.proof == "enclosure" and not any(found.values["y"].tolist())


def test_a_number_that_no_format_holds_is_zero() -> None:
    """The difference is 0, which no ball proves; that it is below half the smallest subnormal number is proven."""
    found = evaluate(lambda x: torch.exp(torch.log(x)) - x, 3.0)
    assert found.proof == "enclosure" and found.values["y"][0] == 0


@pytest.mark.parametrize(("x", "want"), [(0.5, 0.0), (1.5, 2.0), (2.5, 2.0), (-0.5, 0.0), (-1.5, -2.0), (2.6, 3.0)])
def test_halves_round_to_even(x: float, want: float) -> None:
    assert evaluate(torch.round, x).values["y"][0] == want


def test_an_overflow_of_torch_is_not_taken_for_an_infinity() -> None:
    found = evaluate(lambda x: 1 / (1 / torch.exp(x)), 1e9)
    assert found.proof == "enclosure" and mp.isfinite(found.values["y"][0]) and found.values["y"][0] > mpf(10) ** 400


def test_a_function_of_the_author_is_confirmed_but_not_proven() -> None:
    found = evaluate_elementwise(lambda x: dict(y=mp.erfc(x)), dict(x=torch.tensor([3.0])))
    assert found.proof == "" and found.digits == 800


@pytest.mark.parametrize("largest", [True, False])
def test_extremes_that_cannot_be_told_apart_are_enclosed(largest: bool) -> None:
    """tanh(900) and tanh(950) are 1 but for 10^-782, and the largest of a row of other numbers is one of these."""

    def formula(x: Tensor) -> Tensor:
        saturated = torch.tanh(x).view(2, -1)
        extreme = saturated.amax(-1, keepdim=True) if largest else -(-saturated).amin(-1, keepdim=True)
        return (saturated - extreme).exp().sum(-1)

    rows = [900.0, 950.0, 0.25, 0.5, 900.0, 0.25]
    found = evaluate_exact(lambda x: {"y": formula(x)}, {"x": torch.tensor(rows, dtype=torch.float64)}, quick=True)
    assert found.proof == "enclosure" and found.digits == 100
    with mpmath.workdps(50):
        small, large = (mp.exp(mp.tanh(x) - 1) for x in (0.25, 0.5))
        for value, want in zip(found.values["y"], (2 + small, large + 1 + small), strict=True):
            assert abs(value - want) < mpf(10) ** -25


def test_where_an_extreme_lies_stays_undecided_among_numbers_that_cannot_be_told_apart() -> None:
    found = evaluate(lambda x: torch.tanh(x).argmax() + x[0], 5000.0, 5001.0)
    assert found.proof == ""


def matrices(*shape: int) -> Any:
    draw = random.Random(str(shape))
    numbers = torch.tensor([draw.gauss(0, 1) for _ in range(math.prod(shape))])
    return BallArithmetic().array(numbers.view(shape).tolist())


@pytest.mark.parametrize("batch", [(), (2,)])
def test_a_product_of_matrices_is_that_of_its_elements(batch: tuple[int, ...]) -> None:
    balls = BallArithmetic()
    a, b = matrices(*batch, 3, 5), matrices(*batch, 5, 4)
    with balls.precision(100):
        found, want = balls.matmul(a, b), RealArithmetic.matmul(balls, a, b)
    assert found.shape == want.shape == (*batch, 3, 4)
    pairs = list(zip(found.reshape(-1).tolist(), want.reshape(-1).tolist(), strict=True))
    assert all(x == y and x.is_exact() for x, y in pairs)


def test_products_of_the_same_rows_and_columns_are_the_same_numbers() -> None:
    balls = BallArithmetic()
    a, b = matrices(2, 3, 5), matrices(1, 5, 2)
    a[1, 2], b = a[0, 0], b.repeat(2, 0)
    found = balls.matmul(a, b)
    assert found[1, 2, 0] is found[0, 0, 0] and found[1, 2, 1] is found[0, 0, 1]
    assert found[1, 2, 0] is not found[0, 0, 1]


def test_a_product_with_what_is_not_finite_is_torchs() -> None:
    balls = BallArithmetic()
    found = balls.matmul(balls.array([[math.inf, 1.0]]), balls.array([[2.0], [3.0]]))
    assert found.tolist() == [[math.inf]]


def test_mpmath_is_not_asked_in_vain_where_balls_took_half_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> Any:
        raise AssertionError("mpmath was asked")

    monkeypatch.setattr(exact_evaluation, "_agree", fail)
    x = torch.tensor([0.5, 1.25], dtype=torch.float64)
    with pytest.raises(Unadjudicated, match="the time is spent"):
        evaluate_exact(lambda x: {"y": torch.lgamma(x.repeat(50_000))}, {"x": x}, seconds=0.1, quick=True)
