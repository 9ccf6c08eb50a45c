"""More digits until the answer is stable, and what is said where it does not get there."""

from __future__ import annotations

import time
from typing import Any

import mpmath
import pytest
import torch
import torch.nn.functional as F
from mpmath import mp, mpf
from torch import Tensor

from fuzz.errors import Unadjudicated
from fuzz.reference.envelope import COTANGENT, with_gradients
from fuzz.reference.exact import evaluate_elementwise, evaluate_exact, format_number

ROWS, WIDTH, EPS = 2, 5, 1e-5


def of(formula: Any, *x: float, **limits: float) -> Any:
    """(the exact value, its digits) of a function of one vector, its first element."""
    found = evaluate_exact(lambda x: {"y": formula(x)}, {"x": torch.tensor(x, dtype=torch.float64)}, **limits)  # type: ignore[arg-type]
    return found.values["y"].reshape(-1)[0], found.digits


def test_layer_norm_with_autograd_agrees_with_its_formula_to_60_digits() -> None:
    """x one million above its deviation, so that float64 loses ten digits."""
    drawn = torch.Generator().manual_seed(4)
    x = torch.randn(ROWS, WIDTH, generator=drawn, dtype=torch.float64) + 1e6
    dy, weight = (torch.randn(n, generator=drawn, dtype=torch.float64) for n in ((ROWS, WIDTH), (WIDTH,)))
    joint = with_gradients(lambda x, weight: {"y": F.layer_norm(x, (WIDTH,), weight, eps=EPS)}, ("y",), ("x", "weight"))
    found = evaluate_exact(joint, {"x": x, "weight": weight, COTANGENT + "y": dy})
    with mpmath.workdps(found.digits + 20):
        w = [mpf(v) for v in weight.tolist()]
        dweight = [mpf(0)] * WIDTH
        for row in range(ROWS):
            v, g = ([mpf(a) for a in t[row].tolist()] for t in (x, dy))
            mean = mp.fsum(v) / WIDTH
            rstd = 1 / mp.sqrt(mp.fsum((a - mean) ** 2 for a in v) / WIDTH + mpf(EPS))
            xhat = [(a - mean) * rstd for a in v]
            wdy = [a * b for a, b in zip(w, g, strict=True)]
            c1 = mp.fsum(a * b for a, b in zip(xhat, wdy, strict=True)) / WIDTH
            c2 = mp.fsum(wdy) / WIDTH
            for i in range(WIDTH):
                close(found.values["y"][row, i], w[i] * xhat[i])
                close(found.values["dx"][row, i], rstd * (wdy[i] - c2 - xhat[i] * c1))
                dweight[i] += g[i] * xhat[i]
        for i in range(WIDTH):
            close(found.values["dweight"][i], dweight[i])


def close(got: Any, want: Any) -> None:
    assert abs(got - want) <= mpf(10) ** -60 * abs(want), (got, want)


@pytest.mark.parametrize("function", [torch.softmax, torch.log_softmax])
def test_gradients_of_softmax_have_exact_values(function: Any) -> None:
    x, dy = torch.tensor([[0.5, 2.0, -1.0]]), torch.tensor([[1.0, -3.0, 0.25]])
    joint = with_gradients(lambda x: {"y": function(x, -1)}, ("y",), ("x",))
    found = evaluate_exact(joint, {"x": x, COTANGENT + "y": dy}).values["dx"].reshape(-1)
    leaf = x.double().requires_grad_()
    due = torch.autograd.grad(function(leaf, -1), leaf, dy.double())[0].reshape(-1)
    assert [float(value) for value in found] == pytest.approx(due.tolist(), rel=1e-13)


def test_differences_of_1e_40_double_the_digits(arithmetic: str) -> None:
    """exp(-92) is about 1e-40: beside 1 it needs 40 digits, its square 80, and 25 digits of that are compared."""
    value, digits = of(lambda x: ((1 + torch.exp(x)) - 1) ** 2 * 1e80, -92.0)
    assert digits >= (200 if arithmetic == "mpmath" else 100)
    with mpmath.workdps(60):
        assert abs(value / (mp.exp(-184) * mpf(1e80)) - 1) < mpf(10) ** -25


@pytest.mark.parametrize(("x", "least", "least_of_balls"), [(-13.0, 200, 100), (-40.0, 800, 800)])
def test_a_difference_beyond_the_first_digits_is_not_taken_for_zero(
    x: float, least: int, least_of_balls: int, arithmetic: str
) -> None:
    """1 + erf(-40) is 0 at 50 digits and at 100, 1e-697 in truth."""
    value, digits = of(lambda x: 1 + torch.erf(x), x)
    with mpmath.workdps(50):
        assert (
            digits >= (least if arithmetic == "mpmath" else least_of_balls)
            and abs(value / mp.erfc(-x) - 1) < mpf(10) ** -25
        )


def test_a_difference_that_is_zero_is_zero(arithmetic: str) -> None:
    value, digits = of(lambda x: x - x.mean(), 37.7, 37.7, 37.7)
    assert value == 0 and digits == (800 if arithmetic == "mpmath" else 100)


def test_nothing_overflows() -> None:
    value, _ = of(lambda x: torch.exp(x) / torch.exp(x).sum(), 1000.0, 999.0)
    assert abs(float(value) - 1 / (1 + 2.718281828459045**-1)) < 1e-15


def test_infinities_and_nan_are_values() -> None:
    infinity, nan = float("inf"), float("nan")
    value, _ = of(lambda x: x - x.amax(), infinity, 1.0)
    assert value != value
    assert of(lambda x: torch.where(torch.isnan(x), 1.0, x), nan)[0] == 1
    assert of(lambda x: 1 / x, 0.0)[0] == mp.inf and of(torch.log, 0.0)[0] == -mp.inf


def test_the_time_limit_is_honoured() -> None:
    def slow(x: Tensor) -> Tensor:
        for _ in range(10_000):
            x = torch.lgamma(x.abs() + 1.5)
        return x

    started = time.monotonic()
    with pytest.raises(Unadjudicated, match="the time is spent"):
        of(slow, *[0.5] * 64, seconds=0.2)
    assert time.monotonic() - started < 60


def test_what_is_too_large_is_left_alone() -> None:
    with pytest.raises(Unadjudicated, match="too large: 5 elements, more than 4"):
        of(torch.exp, *[0.5] * 5, elements=4)
    with pytest.raises(Unadjudicated, match="too large: a tensor of 1000000 elements"):
        of(lambda x: x.expand(1000, 1000) * 2, 1.0)


@pytest.mark.parametrize(
    ("formula", "reason"),
    [
        (lambda x: x * x.mean().item(), "takes a number out of a tensor"),
        (lambda x: torch.fft.rfft(x).real, "no rule for aten._fft_r2c"),
        (lambda x: torch.linalg.inv(x.view(1, 1)), "no rule for aten.linalg_inv_ex"),
        (lambda x: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_the_reason_is_told(formula: Any, reason: str) -> None:
    with pytest.raises(Unadjudicated, match=reason):
        of(formula, 0.1) if reason != "takes a number out of a tensor" else of(formula, 0.1, 0.2, 0.7)


def test_a_number_that_a_double_holds_may_be_taken_out() -> None:
    assert of(lambda x: x * x.max().item(), 0.5, 2.0)[0] == 1


def test_an_elementwise_function_in_mpmath_is_asked_for_each_element() -> None:
    def exact(x: Any, w: Any, power: float) -> dict[str, Any]:
        return dict(y=mp.sqrt(2) * x**power + w)

    x, w = torch.tensor([[1.0], [2.0]], dtype=torch.float64), torch.tensor([0.5, 1.5, 2.5], dtype=torch.float64)
    y = evaluate_elementwise(exact, dict(x=x, w=w, power=3)).values["y"]
    assert y.shape == (2, 3)
    with mpmath.workdps(60):
        assert abs(y[1, 2] - (mp.sqrt(2) * 8 + mpf(2.5))) < mpf(10) ** -50
    with pytest.raises(Unadjudicated, match="exact= fails: KeyError"):
        evaluate_elementwise(lambda x: {}["x"], dict(x=x))


def test_numbers_are_told_to_twenty_digits() -> None:
    assert format_number(of(lambda x: x / 3, 1.0)[0]) == "0.33333333333333333333"


def test_a_quick_answer_is_enough_where_something_confirms_it() -> None:
    """At -40 the sum cancels to nothing at any number of digits that is tried; at -6 it does not."""
    x = torch.tensor([-6.0, -40.0], dtype=torch.float64)
    found = evaluate_exact(lambda x: {"y": 1 + torch.erf(x)}, {"x": x}, quick=True)
    assert found.digits == 100 and abs(float(found.values["y"][0]) / 2.1519736712498913e-17 - 1) < 1e-12


def test_the_time_limit_is_honoured_within_one_operation() -> None:
    started = time.monotonic()
    with pytest.raises(Unadjudicated, match="the time is spent"):
        of(lambda x: torch.lgamma(x.repeat(100_000)), 0.5, 1.25, seconds=0.2)
    assert time.monotonic() - started < 5
