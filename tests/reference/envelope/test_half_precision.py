"""Operations on bfloat16 and float16 tensors inside a reference compute in float32 and round their result once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as nn
from torch import Tensor

from fuzz.reference.envelope import evaluate, evaluate_backward, make_precision

CPU = make_precision("libm")
X = torch.from_numpy(2 * np.random.default_rng(5).standard_normal((16, 64)).astype(np.float32))
Formula = Callable[[Tensor], Tensor]
ONCE: dict[str, Formula] = {
    "softmax": lambda x: torch.softmax(x, -1),
    "layer_norm": lambda x: nn.layer_norm(x, (64,)),
    "group_norm": lambda x: nn.group_norm(x, 8),
    "silu": nn.silu,
    "gelu": lambda x: nn.gelu(x, approximate="tanh"),
    "softplus": nn.softplus,
    "mish": nn.mish,
    "glu": nn.glu,
    "hardswish": nn.hardswish,
    "log_softmax": lambda x: torch.log_softmax(x, -1),
    "addcmul": lambda x: torch.addcmul(x, x.flip(0), x.flip(1)),
    "var": lambda x: x.var(-1),
    "exp": torch.exp,
    "linear": lambda x: nn.linear(x, x, x[:, 0]),
}
KINDS = [torch.bfloat16, torch.float16]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ONCE)
def test_composites_round_once(name: str, kind: torch.dtype, ratio: Any) -> None:
    formula = ONCE[name]
    y = evaluate(lambda x: {"y": formula(x.to(kind))}, {"x": X}, CPU, members=20)["y"]
    right = formula(X.to(kind).float()).to(kind)
    assert ratio(right, y) <= 1 < ratio((right.float() * (1 + 2 * torch.finfo(kind).eps)).to(kind), y)


def test_softmax_of_rounded_exponentials_is_wrong(ratio: Any) -> None:
    x = X.bfloat16()
    y = evaluate(lambda x: {"y": torch.softmax(x.bfloat16(), -1)}, {"x": X}, CPU, members=20)["y"]
    e = torch.exp(x - x.amax(-1, keepdim=True))
    assert ratio(e / e.sum(-1, keepdim=True), y) > 1


@pytest.mark.parametrize("name", ["softmax", "silu", "softplus"])
def test_gradients_are_those_of_torch(name: str, ratio: Any) -> None:
    formula, cotangent = ONCE[name], {"y": X.flip(0).bfloat16().float()}
    reference = lambda x: {"y": formula(x.bfloat16())}  # noqa: E731
    dx = evaluate_backward(reference, {"x": X}, cotangent, ["x"], CPU, members=20)["dx"]
    x = X.clone().requires_grad_()
    (right,) = torch.autograd.grad(formula(x.bfloat16()), x, cotangent["y"].bfloat16())
    assert ratio(right, dx) <= 1 < ratio(right * (1 + 2.0**-6), dx)


def test_single_sums_and_products_are_those_of_the_format(ratio: Any) -> None:
    x = X.bfloat16()
    y = evaluate(lambda x: {"y": x.bfloat16() * 1.5 + x.flip(0).bfloat16()}, {"x": X}, CPU, members=20)["y"]
    assert float(y.spread.max()) == 0.0 and ratio(x * 1.5 + x.flip(0), y) == 0.0
    assert ratio((x.float() * 1.5 + x.flip(0).float()).bfloat16(), y) > 1


X16, C16 = X[:, :16], X[:, 16:32]
EACH: dict[str, Formula] = {
    "convolution": lambda x: nn.conv1d(x.view(4, 4, 16), x[:4, :12].reshape(4, 4, 3)).view(4, -1),
    "sigmoid": torch.sigmoid,
    "cross entropy": lambda x: nn.binary_cross_entropy(torch.sigmoid(x), (x > 0).to(x.dtype), reduction="none"),
}


def test_binary_cross_entropy_of_logits_rounds_each_step(ratio: Any) -> None:
    x = torch.linspace(-20, 20, 401)
    for kind in KINDS:
        loss = lambda x, kind=kind: nn.binary_cross_entropy_with_logits(x.to(kind), (x > 0).to(kind))  # noqa: E731
        y = evaluate(lambda x, loss=loss: {"y": loss(x)}, {"x": x}, CPU, members=20)["y"]
        assert ratio(loss(x), y) <= 1 < ratio(loss(x) * (1 + 2 * torch.finfo(kind).eps), y)


@pytest.mark.parametrize("name", EACH)
def test_gradients_of_float16_are_those_of_torch_on_a_cpu(name: str, ratio: Any) -> None:
    formula = EACH[name]
    x = X16.clone().requires_grad_()
    y = formula(x.half())
    cotangent = C16.reshape(-1)[: y.numel()].view(y.shape).half()
    (right,) = torch.autograd.grad(y, x, cotangent)
    arguments = {"x": X16}, {"y": cotangent}, ["x"], CPU
    dx = evaluate_backward(lambda x: {"y": formula(x.half())}, *arguments, members=20)["dx"]
    assert ratio(right, dx) <= 1 < ratio(right * (1 + 2.0**-8), dx)
