"""Convolutions and their gradients are measured as the sums that they are: usual algorithms are inside their bounds."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product as combinations
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fuzz.reference.envelope import Expected, evaluate_backward, make_precision
from fuzz.reference.envelope.unfolding import Convolution, UnfoldedProduct

CPU = make_precision("libm")
CONVOLVE: list[Callable[..., Tensor]] = [F.conv1d, F.conv2d, F.conv3d]
TRANSPOSED: list[Callable[..., Tensor]] = [F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d]


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def multiplied(product: UnfoldedProduct) -> Tensor:
    return product.arrange(torch.matmul(product.left, product.right))[0]


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_products_of_unfolded_operands_are_the_convolution_and_its_gradients(rank: int) -> None:
    sizes, kernel = (7, 6, 5)[:rank], (3, 2, 2)[:rank]
    x = normal(2, 4, *sizes).double().requires_grad_()
    for stride, padding, dilation, groups, extra in combinations((1, 3), (0, 2), (1, 2), (1, 2), (0, 1)):
        options = dict(stride=stride, padding=padding, dilation=dilation, groups=groups)
        layout = Convolution(*((n,) * rank for n in (stride, padding, dilation)), groups)
        w = normal(6, 4 // groups, *kernel).double().requires_grad_()
        y = CONVOLVE[rank - 1](x, w, **options)
        g = torch.randn_like(y)
        wanted = y, *torch.autograd.grad(y, (x, w), g)
        with torch.no_grad():
            found = layout.product(x[None], w[None], y.shape[2:]), layout.transposed(g[None], w[None], sizes)
            found += (layout.of_weight(g[None], x[None], kernel),)
            assert all(torch.allclose(multiplied(one), by_torch) for one, by_torch in zip(found, wanted, strict=True))
        if extra >= max(stride, dilation):
            continue
        w = normal(4, 6 // groups, *kernel).double().requires_grad_()
        y = TRANSPOSED[rank - 1](x, w, output_padding=extra, **options)
        g = torch.randn_like(y)
        wanted = y, *torch.autograd.grad(y, (x, w), g)
        with torch.no_grad():
            found = layout.transposed(x[None], w[None], y.shape[2:]), layout.product(g[None], w[None], sizes)
            found += (layout.of_weight(x[None], g[None], kernel),)
            assert all(torch.allclose(multiplied(one), by_torch) for one, by_torch in zip(found, wanted, strict=True))


def expected(x: Tensor, w: Tensor, b: Tensor, g: Tensor, **options: Any) -> dict[str, Expected]:
    def reference(x: Tensor, w: Tensor, b: Tensor) -> dict[str, Tensor]:
        return {"y": F.conv2d(x, w, b, **options)}

    return evaluate_backward(reference, dict(x=x, w=w, b=b), {"y": g}, ["x", "w", "b"], CPU, members=80)


def in_sequence(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Products added to the bias one after another."""
    y = b.view(1, -1, 1, 1).expand(len(x), len(b), x.shape[2] - 2, x.shape[3] - 2).clone()
    for channel, i, j in combinations(range(x.shape[1]), range(3), range(3)):
        part = x[:, channel : channel + 1, i : i + y.shape[2], j : j + y.shape[3]]
        y = torch.addcmul(y, part, w[:, channel, i, j].view(1, -1, 1, 1))
    return y


def by_winograd(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """F(2x2, 3x3), for even sizes."""
    into = torch.tensor([[1.0, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]])
    of_weight = torch.tensor([[1.0, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
    back = torch.tensor([[1.0, 1, 1, 0], [0, 1, -1, -1]])
    tiles = into @ x.unfold(2, 4, 2).unfold(3, 4, 2) @ into.T
    y = back @ torch.einsum("ncijab,ocab->noijab", tiles, of_weight @ w @ of_weight.T) @ back.T
    return y.permute(0, 1, 2, 4, 3, 5).reshape(len(x), len(w), x.shape[2] - 2, x.shape[3] - 2) + b.view(-1, 1, 1)


def weight_in_sequence(x: Tensor, g: Tensor) -> Tensor:
    """Positions added one after another, the last first."""
    dw = torch.zeros(g.shape[1], x.shape[1], 3, 3)
    for n, i, j in list(combinations(range(len(x)), range(g.shape[2]), range(g.shape[3])))[::-1]:
        dw = torch.addcmul(dw, g[n, :, i, j].view(-1, 1, 1, 1), x[n : n + 1, :, i : i + 3, j : j + 3])
    return dw


KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "normal": lambda t: t,
    "positive": torch.abs,
    "equal": lambda t: torch.full_like(t, 0.1),
    "cancelling": lambda t: torch.where(torch.arange(t.shape[-1]) % 2 == 0, 1e3, -1e3) + t,
}


@pytest.mark.parametrize("kind", KINDS)
def test_usual_algorithms_are_inside(kind: str, ratio: Any) -> None:
    make = KINDS[kind]
    x, w, b, g = make(normal(2, 32, 10, 10)), make(normal(4, 32, 3, 3)), make(normal(4)), make(normal(2, 4, 8, 8))
    found = expected(x, w, b, g)
    given = [t.clone().requires_grad_() for t in (x, w, b)]
    y = F.conv2d(*given)
    dx, dw, db = torch.autograd.grad(y, given, g)
    for out, name in [(y.detach(), "y"), (dx, "dx"), (dw, "dw"), (db, "db")]:
        assert ratio(out, found[name]) < 0.5, name
    for by in (in_sequence, by_winograd):
        assert ratio(by(x, w, b), found["y"]) < 0.7
    assert ratio(weight_in_sequence(x, g), found["dw"]) < 0.5
    order = torch.randperm(128, generator=torch.Generator().manual_seed(1))
    bias = torch.zeros(4)
    for terms in g.permute(0, 2, 3, 1).reshape(128, 4)[order]:
        bias = bias + terms
    assert ratio(bias, found["db"]) < 0.5


def test_a_bias_that_products_are_added_to_is_inside(ratio: Any) -> None:
    x, w, b = 0.1 * normal(1, 16, 8, 8), 0.1 * normal(2, 16, 3, 3), torch.full((2,), 1000.3)
    assert ratio(in_sequence(x, w, b), expected(x, w, b, torch.ones(1, 2, 6, 6))["y"]) < 0.5


def test_gradients_that_are_off_and_operands_in_bfloat16_are_outside(ratio: Any) -> None:
    x, w, b, g = normal(4, 4, 34, 34), normal(2, 4, 3, 3), normal(2), normal(4, 2, 32, 32)
    found = expected(x, w, b, g)
    dw = torch.autograd.grad(F.conv2d(x, w.requires_grad_()), w, g)[0]
    assert ratio(dw, found["dw"]) < 0.5 and ratio(dw * 1.003, found["dw"]) > 1
    coarse = torch.autograd.grad(F.conv2d(x.bfloat16().float(), w), w, g.bfloat16().float())[0]
    assert ratio(coarse, found["dw"]) > 1
    assert ratio(g.sum((0, 2, 3)) * 1.0005, found["db"]) > 1


def test_a_deep_kernel_has_the_bound_of_a_product_of_matrices() -> None:
    x, w = normal(2, 256, 6, 6), normal(4, 256, 3, 3)
    y = expected(x, w, torch.zeros(4), torch.ones(2, 4, 4, 4))["y"]
    assert float((4 * y.spread / y.value.abs()).median()) < 2e-4


@pytest.mark.parametrize("shape", [(0, 4, 5, 5), (1, 1, 1, 1)])
def test_nothing_and_single_products_are_no_sums(shape: tuple[int, ...]) -> None:
    batch, channels, *sizes = shape
    x, w = normal(*shape), normal(1, channels, *(min(size, 3) for size in sizes))
    outputs = [size - min(size, 3) + 1 for size in sizes]
    found = expected(x, w, torch.zeros(1), torch.ones(batch, 1, *outputs))
    assert all(float(one.spread.abs().sum()) < 1e-5 for one in found.values())
