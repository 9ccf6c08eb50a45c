"""Unstable computations exceed the envelope widely, on inputs that show them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fuzz.reference.envelope import evaluate, make_precision

CPU = make_precision("libm")


def variance(x: Tensor) -> dict[str, Tensor]:
    """Two-pass variance of rows."""
    d = x - x.mean(1, keepdim=True)
    return {"y": (d * d).mean(1)}


def cdf(x: Tensor) -> dict[str, Tensor]:
    """The normal distribution function."""
    return {"y": 0.5 * torch.erfc(x * -math.sqrt(0.5))}


def total(x: Tensor) -> dict[str, Tensor]:
    """Column sums."""
    return {"y": x.sum(0)}


def test_one_pass_variance(draw: Any, ratio: Any) -> None:
    """E[x^2] - E[x]^2 where mean >> std."""
    x = draw("normal", (4, 256), 0) + 300
    got = (x * x).mean(1) - x.mean(1) ** 2
    assert ratio(got, evaluate(variance, {"x": x}, CPU)["y"]) > 20


def test_one_plus_erf(ratio: Any) -> None:
    """1 + erf(x) for deep negatives."""
    x = torch.linspace(-9, -4, 100)
    got = 0.5 * (1 + torch.erf(x * math.sqrt(0.5)))
    assert ratio(got, evaluate(cdf, {"x": x}, CPU)["y"]) > 1000


def test_bfloat16_accumulation(draw: Any, ratio: Any) -> None:
    """Column sums in bfloat16; the precision that says so allows it."""
    x = draw("normal", (64, 32), 1)
    got = torch.zeros(32, dtype=torch.bfloat16)
    for row in x:
        got = got + row.to(torch.bfloat16)
    assert ratio(got.float(), evaluate(total, {"x": x}, CPU)["y"]) > 1000
    assert ratio(got.float(), evaluate(total, {"x": x}, make_precision("libm", "bfloat16"))["y"]) <= 1.0


def test_wrong_sign_and_divisor(draw: Any, ratio: Any) -> None:
    """Plain mistakes: n - 1 for n, a flipped sign."""
    x = draw("normal", (4, 1000), 2)
    expected = evaluate(variance, {"x": x}, CPU)["y"]
    assert ratio(x.var(1), expected) > 5
    assert ratio(-x.var(1, unbiased=False), expected) > 1000


@pytest.mark.parametrize(
    ("multiply", "shapes"), [(torch.matmul, ((8, 64), (64, 8))), (torch.conv2d, ((2, 4, 6, 6), (3, 4, 3, 3)))]
)
def test_tf32_operands(multiply: Callable[..., Tensor], shapes: Any, draw: Any, ratio: Any) -> None:
    """Operands rounded to 10 bits are outside ieee's envelope and inside tf32's."""
    a, b = draw("normal", shapes[0], 3), draw("normal", shapes[1], 4)

    def product(a: Tensor, b: Tensor) -> dict[str, Tensor]:
        return {"y": multiply(a, b)}

    def cut(t: Tensor) -> Tensor:
        return torch.from_numpy((t.numpy().view(np.int32) & ~0x1FFF).view(np.float32))

    got = multiply(cut(a), cut(b))
    assert ratio(got, evaluate(product, {"a": a, "b": b}, CPU)["y"]) > 10
    assert ratio(got, evaluate(product, {"a": a, "b": b}, make_precision("libdevice", dot="tf32"))["y"]) <= 1.0


def test_tensor_cores_align_subnormal_operands_by_their_stored_exponents(ratio: Any) -> None:
    """-2^-9 - 17.25 * 2^-24, of which an H100 keeps -2^-9 - 16 * 2^-24: 25 bits below 2^15 * 2^-14, not below 2^-9."""
    a = torch.tensor([[-32768.0, 1.5, -0.25]])
    b = torch.tensor([[1.0], [-11.0], [3.0]]) * 2.0**-24

    def product(a: Tensor, b: Tensor) -> dict[str, Tensor]:
        return {"y": a @ b}

    got = torch.tensor([[-(2.0**-9) - 2.0**-20]])
    assert ratio(got, evaluate(product, {"a": a, "b": b}, CPU)["y"]) > 1.0
    assert ratio(got, evaluate(product, {"a": a, "b": b}, make_precision("libdevice"))["y"]) <= 1.0
    assert ratio(got * 2.0**20, evaluate(product, {"a": a, "b": b * 2.0**20}, make_precision("libdevice"))["y"]) > 1.0


def test_float16_operands_of_deep_products(draw: Any, ratio: Any) -> None:
    """An operand rounded to 10 bits is outside the bound of 2048 terms; terms added up in sequence are inside."""
    a, b = draw("normal", (4, 2048), 5), draw("normal", (2048, 8), 6)

    def product(a: Tensor, b: Tensor) -> dict[str, Tensor]:
        return {"y": a @ b}

    expected = evaluate(product, {"a": a, "b": b}, CPU, members=80)["y"]
    assert ratio((a.half().double() @ b.double()).float(), expected) > 4
    terms = a.numpy()[:, :, None] * b.numpy()
    assert ratio(torch.from_numpy(np.add.accumulate(terms, axis=1, dtype=np.float32)[:, -1]), expected) <= 1.0
