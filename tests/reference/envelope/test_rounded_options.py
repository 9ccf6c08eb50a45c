"""Options may be what float32 holds of them, where the reference computes with doubles."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fuzz.reference.envelope import evaluate, evaluate_backward, make_precision, merge_members

CPU = make_precision("libm")
F = np.float32
Formula = Callable[..., Any]
X = torch.from_numpy(np.random.default_rng(3).standard_normal(64).astype(F))


def single(x: float) -> torch.Tensor:
    return torch.tensor(x, dtype=torch.float32)


FORMULAS: dict[str, tuple[Formula, Formula, float]] = {
    "bias correction": (lambda x, b: x / (1 - b**3), lambda x, b: x / (1 - single(b) ** 3), 0.999),
    "momentum": (lambda x, b: (1 - b) * x, lambda x, b: (1 - single(b)) * x, 0.999),
    "variance": (lambda x, b: b * 0 * x + (1 - b) * x * x, lambda x, b: (1 - single(b)) * x * x, 0.999),
    "lerp": (lambda x, b: torch.lerp(0 * x, x, 1 - b), lambda x, b: torch.lerp(0 * x, x, 1 - single(b)), 0.999),
    "root": (lambda x, b: x * math.sqrt(1 - b), lambda x, b: x * torch.sqrt(1 - single(b)), 0.999),
    "average": (
        lambda x, b: b * x + (1 - b) * x.flip(0), lambda x, b: single(b) * x + (1 - single(b)) * x.flip(0), 0.9
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMULAS)
def test_options_may_be_rounded_to_float32(name: str, ratio: Any) -> None:
    formula, kernel, b = FORMULAS[name]
    expected = evaluate(lambda x, b: {"y": formula(x, b)}, {"x": X, "b": b}, CPU, members=20)["y"]
    assert ratio(kernel(X, b), expected) <= 1
    assert ratio(formula(X.double(), b).float(), expected) <= 1
    # 1 - 0.999 is known to 2.6e-5 where float32 holds the 0.999, and 1 - 0.9 as well as any number.
    assert ratio(kernel(X, b) * (1 + (2.0**-12 if b == 0.999 else 2.0**-18)), expected) > 1
    assert ratio(kernel(X.roll(1), b), expected) > 1


def test_stages_may_evaluate_other_groups_of_members() -> None:
    reference, inputs = (lambda x, b: {"y": (1 - b) * x * x}), {"x": X, "b": 0.999}
    at_once = evaluate(reference, inputs, CPU, members=80)
    first, second, third = (
        evaluate(reference, inputs, CPU, members=m, after=a) for m, a in ((11, 0), (20, 11), (80, 20))
    )
    in_stages = merge_members(merge_members(first, second), third)
    assert torch.equal(at_once["y"].spread, in_stages["y"].spread)


def test_gradients_have_rounded_options_too(ratio: Any) -> None:
    def reference(x: torch.Tensor, b: float) -> dict[str, torch.Tensor]:
        return {"y": (1 - b) * x * x}

    found = evaluate_backward(reference, {"x": X, "b": 0.999}, {"y": torch.ones(64)}, ["x"], CPU, members=20)["dx"]
    gradient = 2 * (1 - single(0.999)) * X
    assert ratio(gradient, found) <= 1 < ratio(gradient * (1 + 2.0**-12), found)


def test_few_members_cost_no_further_evaluation() -> None:
    calls = []

    def reference(x: torch.Tensor, b: float, eps: float) -> dict[str, torch.Tensor]:
        calls.append((b, eps))
        return {"y": x * (1 - b) + eps}

    evaluate(reference, {"x": X, "b": 0.999, "eps": 0.5}, CPU, members=8)
    assert calls == [(0.999, 0.5)]
    evaluate(reference, {"x": X, "b": 0.999, "eps": 0.5}, CPU, members=20)
    assert calls[1:] == [(0.999, 0.5), (float(F(0.999)), 0.5)]


def test_an_option_that_counts_is_that_of_the_host(ratio: Any) -> None:
    def reference(x: torch.Tensor, share: float) -> dict[str, torch.Tensor]:
        count = int(share * 10)  # 7, and 6 with float32's 0.7.
        if count < 7 and x[0] == 1:
            raise ValueError("a size that no case has")
        return {"y": x[:count] * 2}

    for first in (1.0, 2.0):
        x = torch.tensor([first, *range(1, 12)])
        expected = evaluate(reference, {"x": x, "share": 0.7}, CPU, members=20)["y"]
        assert ratio(x[:7] * 2, expected) <= 1 < ratio(x[1:8] * 2, expected)


def test_replicas_get_what_each_gets_alone() -> None:
    def reference(x: torch.Tensor, b: float) -> dict[str, torch.Tensor]:
        return {"y": (1 - b) * x, "n": (x > 1 - b).sum()}

    stack = torch.stack([X, 2 * X])
    together = evaluate(reference, {"x": stack, "b": 0.999}, CPU, members=20, replicas=2)
    for row, x in enumerate(stack):
        alone = evaluate(reference, {"x": x, "b": 0.999}, CPU, members=20)
        for name, one in alone.items():
            assert torch.equal(one.spread, together[name].of_replica(row).spread)


def test_kernels_in_float64_hold_options() -> None:
    reference = lambda x, b: {"y": (1 - b) * x}  # noqa: E731
    double = make_precision("libm", "float64")
    y = evaluate(reference, {"x": X.double(), "b": 0.999}, double, members=20)["y"]
    assert float((y.spread / y.value.abs()).max()) < 1e-15
