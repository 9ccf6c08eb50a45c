"""Operations that docs/tolerance.md lists have gradients too, also of nothing, and complex numbers are refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fuzz.reference.dispatch import NoRule
from fuzz.reference.envelope import evaluate, evaluate_backward, make_precision

CPU = make_precision("libm")
GENERATOR = torch.Generator().manual_seed(2)
X, W = (torch.randn(4, 5, generator=GENERATOR) for _ in range(2))
TARGET = torch.tensor([0, 2, 1, 4])
MASK = W > 0.3
FORMULAS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "masked_scatter": lambda x, w: x.masked_scatter(MASK, w * w),
    "mask of a row": lambda x, w: x.masked_scatter(MASK[0], w),
    "margin": lambda x, w: F.multi_margin_loss(x * w, TARGET),
    "margins": lambda x, w: F.multi_margin_loss(x, TARGET, p=2, margin=0.7, reduction="none") * w[:, 0],
    "weighted margin": lambda x, w: F.multi_margin_loss(x, TARGET, weight=W[0].to(x.dtype), reduction="sum") * w,
    "margin of a row": lambda x, w: F.multi_margin_loss(x[0], TARGET[1]) * w,
    "no columns": lambda x, w: F.embedding(TARGET, torch.cat([x, w])[:, :0]).sum() + x * w,
}


@pytest.mark.parametrize("name", FORMULAS)
def test_gradients_are_torchs(name: str) -> None:
    formula = FORMULAS[name]
    leaves = [t.double().requires_grad_() for t in (X, W)]
    y = formula(*leaves)
    g = torch.randn(y.shape, generator=GENERATOR)
    wanted = torch.autograd.grad(y, leaves, g.double())
    found = evaluate_backward(
        lambda x, w: {"y": formula(x, w)}, {"x": X, "w": W}, {"y": g}, ["x", "w"], CPU, members=20
    )
    for name, gradient in zip(("dx", "dw"), wanted, strict=True):
        assert torch.allclose(found[name].value, gradient, rtol=1e-14, atol=1e-15)
        assert float(found[name].spread.max()) < 1e-5


def test_complex_numbers_have_no_rule() -> None:
    with pytest.raises(NoRule, match="no rule says how this operation rounds"):
        evaluate(lambda x, w: {"y": torch.complex(x, w).abs()}, {"x": X, "w": W}, CPU)
