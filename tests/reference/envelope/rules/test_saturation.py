"""Where tanh and the sigmoid are 1 in float32, gradients that multiply what is left of 1 by x have a bound of use."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as nn

from fuzz.reference.envelope import evaluate, evaluate_backward, make_precision

PRECISIONS = CPU, CUDA, _ = [make_precision(name) for name in ("libm", "libdevice", "numpy")]
Array = np.ndarray[Any, Any]
F = np.float32
Formula = Callable[[Array], Array]
ONE = F(1)

X = np.concatenate(
    [np.linspace(-30, 30, 601), np.geomspace(30, 1e6, 30), -np.geomspace(30, 1e6, 30), np.geomspace(1e-9, 1, 20)]
).astype(F)

TANH: dict[str, Formula] = {
    "library": np.tanh,
    "one quotient": lambda z: np.sign(z) * (ONE - F(2) / (np.exp(F(2) * np.abs(z)) + ONE)),
    "sigmoid": lambda z: F(2) / (ONE + np.exp(F(-2) * z)) - ONE,
    "decay": lambda z: np.sign(z) * (ONE - np.exp(F(-2) * np.abs(z))) / (ONE + np.exp(F(-2) * np.abs(z))),
    "growth": lambda z: (np.exp(F(2) * np.clip(z, -30, 30)) - ONE) / (np.exp(F(2) * np.clip(z, -30, 30)) + ONE),
}
SIGMOID: dict[str, Formula] = {
    "decay": lambda z: ONE / (ONE + np.exp(-z)),
    "growth": lambda z: np.exp(np.minimum(z, F(80))) / (ONE + np.exp(np.minimum(z, F(80)))),
    "tanh": lambda z: np.where(z > 0, F(0.5) * (ONE + np.tanh(F(0.5) * z)), ONE / (ONE + np.exp(-z))),
}
TANH_NEAR_0 = {"library": np.tanh, "one quotient": TANH["one quotient"]}
K, C = F(math.sqrt(2 / math.pi)), F(0.044715)


def gelu(x: Array, tanh: Formula) -> tuple[Array, Array]:
    """GELU by tanh and its derivative."""
    t = tanh(K * (x + C * x * x * x))
    slope = F(0.5) * x * (ONE - t * t) * (K * (ONE + F(3) * C * x * x))
    return F(0.5) * x * (ONE + t), F(0.5) * (ONE + t) + slope


def silu(x: Array, sigmoid: Formula) -> tuple[Array, Array]:
    s = sigmoid(x)
    return x * s, s * (ONE + x * (ONE - s))


def swish(x: Array, sigmoid: Formula) -> tuple[Array, Array]:
    """SiLU, and its derivative by its result."""
    s = sigmoid(x)
    f = x * s
    return f, f + s * (ONE - f)


def mish(x: Array, tanh: Formula) -> tuple[Array, Array]:
    t = tanh(np.where(x > 20, x, np.log(ONE + np.exp(np.minimum(x, F(20))))))
    return x * t, t + x * (ONE / (ONE + np.exp(-x))) * (ONE - t * t)


ACTIVATIONS: dict[str, tuple[Any, Any, dict[str, Formula]]] = {
    "gelu": (lambda x: nn.gelu(x, approximate="tanh"), gelu, TANH),
    "written gelu": (lambda x: 0.5 * x * (1 + torch.tanh(float(K) * (x + float(C) * x * x * x))), gelu, TANH),
    "silu": (nn.silu, silu, SIGMOID),
    "swish": (nn.silu, swish, SIGMOID),
    "mish": (nn.mish, mish, TANH),
    "tanh": (torch.tanh, lambda x, tanh: (tanh(x), ONE - tanh(x) ** 2), TANH_NEAR_0),
}
CASES = [(name, formula) for name, (_, _, formulas) in ACTIVATIONS.items() for formula in formulas]


def expected(name: str, x: Array, precision: Any) -> Any:
    activation, given = ACTIVATIONS[name][0], torch.from_numpy(x)
    cotangents = {"y": torch.ones_like(given)}
    return evaluate_backward(lambda x: {"y": activation(x)}, {"x": given}, cotangents, ["x"], precision, members=80)


@cache
def expected_of_all(name: str, precision: int) -> Any:
    return expected(name, X, PRECISIONS[precision])


@pytest.mark.parametrize("precision", range(3), ids=["libm", "libdevice", "numpy"])
@pytest.mark.parametrize(("name", "formula"), CASES)
def test_formulas_of_saturated_activations_are_inside(name: str, formula: str, precision: int, ratio: Any) -> None:
    _, kernel, formulas = ACTIVATIONS[name]
    with np.errstate(all="ignore"):
        value, gradient = kernel(X, formulas[formula])
    found = expected_of_all(name, precision)
    assert ratio(torch.from_numpy(np.asarray(value, F)), found["y"]) <= 1
    assert ratio(torch.from_numpy(np.asarray(gradient, F)), found["dx"]) <= 1


def test_the_gradient_of_silu_by_its_result_may_lose_the_1_of_large_numbers(ratio: Any) -> None:
    x = np.geomspace(1e6, 1e30, 100).astype(F)
    gradient = swish(x, SIGMOID["decay"])[1]
    assert ratio(torch.from_numpy(gradient), expected("silu", x, CPU)["dx"]) <= 1


@pytest.mark.parametrize("name", ["gelu", "written gelu", "silu", "mish"])
def test_a_gradient_that_is_off_where_the_activation_is_linear_is_outside(name: str, ratio: Any) -> None:
    _, kernel, formulas = ACTIVATIONS[name]
    x = np.array([60, 200, 1e4, 1e6], F)
    found = expected(name, x, CPU)["dx"]
    gradient = kernel(x, next(iter(formulas.values())))[1]
    assert ratio(torch.from_numpy(gradient), found) <= 1
    assert ratio(torch.from_numpy(gradient * F(1 + 1e-5)), found) > 1
    if "gelu" in name:
        assert ratio(torch.full((4,), -1e-6), expected(name, -x, CPU)["dx"]) > 1


def test_a_quotient_that_is_not_correctly_rounded_is_inside_until_it_leaves_the_range() -> None:
    spread = expected("gelu", np.array([8, 12, 14, 100], F), CUDA)["dx"].spread
    assert float(spread[:2].min()) > 1e-5 and float(spread[2:].max()) < 1e-6


def test_no_noise_is_taken_from_members_that_measure_float64() -> None:
    y = evaluate(lambda x: {"y": 1 - torch.tanh(x)}, {"x": torch.tensor([18.0])}, CPU, members=20)["y"]
    assert float(y.spread) > 1e-8 and float(y.uncertainty) > 1e-16


def own_distance(x: torch.Tensor, name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """An activation and its gradient, by a distance of tanh or the sigmoid from 1 that is computed by itself."""
    if name == "glu":
        return torch.sigmoid(x), torch.sigmoid(x) * torch.sigmoid(-x)
    if name == "tanh":
        return torch.tanh(x), 4 * torch.sigmoid(2 * x) * torch.sigmoid(-2 * x)
    inner, slope = 2 * K * (x + C * x * x * x), 2 * K * (1 + 3 * C * x * x)
    s = torch.sigmoid(inner)
    return x * s, s + x * s * torch.sigmoid(-inner) * slope


SATURATED = {
    "gelu": (lambda x: nn.gelu(x, approximate="tanh"), np.linspace(-12, -5, 351)),
    "tanh": (torch.tanh, np.linspace(8, 50, 421)),
    "glu": (lambda x: nn.glu(torch.stack([torch.ones_like(x), x]), 0)[0], np.linspace(30, 100, 351)),
}


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", SATURATED)
def test_what_float64_has_lost_of_a_distance_from_1_is_inside(name: str, kind: torch.dtype, ratio: Any) -> None:
    activation, points = SATURATED[name]
    x = torch.from_numpy(points).to(kind)
    arguments = {"x": x}, {"y": torch.ones_like(x)}, ["x"], CPU
    found = evaluate_backward(lambda x: {"y": activation(x)}, *arguments, members=80)
    value, gradient = (t.to(kind) for t in own_distance(x.float(), name))
    assert ratio(value, found["y"]) <= 1 and ratio(gradient, found["dx"]) <= 1
    assert ratio(gradient + 2.0**-40, found["dx"]) > 1 or name == "gelu"
