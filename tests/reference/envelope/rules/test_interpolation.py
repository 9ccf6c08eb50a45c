"""Places of an interpolation are off by what their own dim rounds: not at all where a step is a power of two."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fuzz.reference.envelope import Expected, evaluate_backward, make_precision

CPU = make_precision("libm")
STEPS: dict[str, dict[str, Any]] = {
    "twice": dict(scale_factor=2), "8 times": dict(scale_factor=8), "half": dict(scale_factor=0.5),
    "3 times": dict(scale_factor=3), "sizes": dict(size=1777), "fewer": dict(size=333),
    "corners": dict(size=1777, align_corners=True), "exact corners": dict(size=1999, align_corners=True),
}  # fmt: skip


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3))


def expected(x: Tensor, options: dict[str, Any]) -> dict[str, Expected]:
    g = torch.ones_like(F.interpolate(x, **options))
    return evaluate_backward(lambda x: {"y": F.interpolate(x, **options)}, {"x": x}, {"y": g}, ["x"], CPU, members=80)


def gradient(x: Tensor, options: dict[str, Any]) -> Tensor:
    x = x.clone().requires_grad_()
    y = F.interpolate(x, **options)
    return torch.autograd.grad(y, x, torch.ones_like(y))[0]


def linear(x: Tensor, size: int, step: float, aligned: bool, by_difference: bool) -> Tensor:
    """Between two points, in float32: of weights that add up to 1, or of the points' difference."""
    number, f = torch.arange(size, dtype=torch.float32), torch.float32
    place = number * torch.tensor(step, dtype=f) if aligned else ((number + 0.5) * torch.tensor(step, dtype=f) - 0.5)
    place = place.clamp(min=0.0)
    left = place.floor().long().clamp(max=x.shape[-1] - 1)
    right, part = (left + 1).clamp(max=x.shape[-1] - 1), place - left
    a, b = x[..., left], x[..., right]
    return a + part * (b - a) if by_difference else (1 - part) * a + part * b


@pytest.mark.parametrize("kind", ["normal", "equal", "cancelling"])
@pytest.mark.parametrize("name", STEPS)
def test_usual_formulas_are_inside(name: str, kind: str, ratio: Any) -> None:
    x = {
        "normal": normal(1, 1, 1000), "equal": torch.full((1, 1, 1000), 0.1),
        "cancelling": 1e4 * (-1.0) ** torch.arange(1000.0).view(1, 1, -1) + normal(1, 1, 1000),
    }[kind]  # fmt: skip
    options = {**STEPS[name], "mode": "linear"}
    found, y = expected(x, options), F.interpolate(x, **options)
    assert ratio(y, found["y"]) < 0.8 and ratio(gradient(x, options), found["dx"]) < 0.8
    aligned, size = bool(options.get("align_corners")), y.shape[-1]
    step = 999 / (size - 1) if aligned else 1 / options["scale_factor"] if "scale_factor" in options else 1000 / size
    for by_difference in (False, True):
        assert ratio(linear(x, size, step, aligned, by_difference), found["y"]) < 0.8


@pytest.mark.parametrize("mode", ["linear", "bilinear", "bicubic"])
def test_a_step_of_a_power_of_two_moves_nothing(mode: str, ratio: Any) -> None:
    x = normal(*((1, 1, 1000) if mode == "linear" else (1, 1, 4, 1000)))
    options = dict(scale_factor=2, mode=mode)
    found, y = expected(x, options), F.interpolate(x, **options)
    assert ratio(y, found["y"]) < 0.8 and ratio(gradient(x, options), found["dx"]) < 0.8
    assert ratio(y * (1 + 1e-4), found["y"]) > 1
    assert float((4 * found["y"].spread / found["y"].value.abs()).median()) < 1e-5


def test_a_long_dim_does_not_blur_the_places_of_a_short_one(ratio: Any) -> None:
    x = normal(1, 1, 3, 2048)
    options = dict(size=(7, 4096), mode="bilinear")
    found, y = expected(x, options)["y"], F.interpolate(x, **options)
    assert ratio(y, found) < 0.8
    assert float((4 * found.spread).max()) < 1e-4


def test_places_that_are_off_by_a_bit_of_their_size_are_outside(ratio: Any) -> None:
    x = normal(1, 1, 1000)
    moved = linear(x, 2000, float(np.float32(0.5) * np.float32(1 - 1e-5)), False, False)
    assert ratio(moved, expected(x, dict(scale_factor=2, mode="linear"))["y"]) > 1


@pytest.mark.parametrize("times", [2, 4])
@pytest.mark.parametrize("size", [41, 47, 55, 61, 97, 107])
def test_a_ratio_of_sizes_may_be_a_product_with_a_reciprocal(size: int, times: int, ratio: Any) -> None:
    x, count = normal(1, 2, size), size * times
    step = float(np.float32(size) * (np.float32(1) / np.float32(count)))
    assert step * times < 1
    moved = linear(x, count, step, False, False)
    assert ratio(moved, expected(x, dict(size=count, mode="linear"))["y"]) <= 1
    assert ratio(moved, expected(x, dict(scale_factor=times, mode="linear"))["y"]) > 1


def test_a_ratio_with_a_power_of_two_is_exact(ratio: Any) -> None:
    x = normal(1, 1, 512)
    moved = linear(x, 1024, 0.5 * (1 - 2.0**-24), False, False)
    assert ratio(moved, expected(x, dict(size=1024, mode="linear"))["y"]) > 1
