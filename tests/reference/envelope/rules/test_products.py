"""Products of many factors err as a walk, and as far as these very factors do where their roundings share a sign."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fuzz.reference.envelope import evaluate, make_precision
from fuzz.reference.envelope.summation import error_magnitudes, product_errors, signed_errors

CPU = make_precision("libm")
COUNT = 4000


def normal() -> Tensor:
    return torch.randn(COUNT, generator=torch.Generator().manual_seed(5))


FACTORS = {
    "near 1": 1 + 0.001 * normal(),
    "wide": torch.exp(0.2 * normal()),
    "signs": (1 + 0.01 * normal()) * torch.sign(normal()),
    "equal": torch.full((COUNT,), 0.999),
    "equal and rounded down": torch.full((COUNT,), 1 + 32 * 2.0**-23),
    "of two sizes": torch.where(torch.arange(COUNT) % 2 == 0, 1 + 45 * 2.0**-23, 1 - 20 * 2.0**-24),
}


def in_sequence(x: Tensor) -> Tensor:
    return torch.from_numpy(np.multiply.accumulate(x.numpy()))


def in_tree(x: Tensor) -> Tensor:
    while len(x) > 1:
        half = len(x) // 2
        x = torch.cat([x[:half] * x[half : 2 * half], x[2 * half :]])
    return x[0]


@pytest.mark.parametrize("kind", FACTORS)
def test_any_order_of_factors_is_inside(kind: str, ratio: Any) -> None:
    x = FACTORS[kind]
    y = evaluate(lambda x: {"y": x.prod(), "scan": x.cumprod(0)}, {"x": x}, CPU, members=80)
    generator = torch.Generator().manual_seed(6)
    orders = [x, x.flip(0), *(x[torch.randperm(COUNT, generator=generator)] for _ in range(4))]
    for given in orders:
        assert ratio(in_sequence(given)[-1], y["y"]) < 0.5 and ratio(in_tree(given), y["y"]) < 0.5
        blocks = torch.stack([in_tree(block) for block in given.split(64)])
        assert ratio(in_sequence(blocks)[-1], y["y"]) < 0.5
    assert ratio(in_sequence(x), y["scan"]) < 0.5
    parts = [in_sequence(block) for block in x.split(64)]
    carries = torch.cat([torch.ones(1), in_sequence(torch.stack([part[-1] for part in parts]))[:-1]])
    assert ratio(torch.cat([part * carry for part, carry in zip(parts, carries, strict=True)]), y["scan"]) < 0.5


def test_a_product_that_is_off_is_outside(ratio: Any) -> None:
    x = FACTORS["near 1"]
    y = evaluate(lambda x: {"y": x.prod(), "scan": x.cumprod(0)}, {"x": x}, CPU, members=80)
    right = in_sequence(x)
    assert ratio(right[-1] * (1 + 3e-4), y["y"]) > 1 and ratio(right * (1 + 3e-4), y["scan"]) > 1


def test_what_is_lost_is_relative_to_the_product() -> None:
    x = FACTORS["near 1"][:7].double().view(1, 7)
    exact = x.prod(1, keepdim=True)
    lost = product_errors(x, [1], signed_errors)[0]
    assert torch.allclose(lost, in_sequence(x[0].float())[-1].double() / exact - 1, rtol=1e-4)
    for factors in (torch.zeros(3, 2), torch.full((3, 2), 1e30), torch.ones(1, 2), torch.full((3, 2), 1e-30)):
        assert bool(torch.isfinite(product_errors(factors.double(), [0], error_magnitudes)).all())
