"""Operations that a reference may have, as eager PyTorch computes them in float32; what is 1 % off is outside."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fuzz.reference.envelope import evaluate, make_precision

PLACES = torch.tensor([0, 3, 7, 7, 29])
CLASSES = torch.tensor([0, 1, 2, 3, 4, 0])
Formula = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def gradient(of: Formula) -> Formula:
    """The gradient of a formula's first argument."""

    def backward(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(of(x, y).sum(), x)[0]

    return backward


def cell(of: Callable[..., Any], gates: int, state: Callable[[torch.Tensor], Any]) -> Formula:
    """A recurrent cell with weights of all inputs."""

    def run(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        weights = (torch.full((gates * 5, 5), value, dtype=x.dtype) for value in (0.1, 0.2))
        result = of(x, state(y), *weights)
        return result if isinstance(result, torch.Tensor) else torch.cat(result)

    return run


OPERATIONS: dict[str, Formula] = {
    "unsafe_split": lambda x, y: torch.unsafe_split(x, 2, 1)[0] + 1,
    "gru_cell": cell(torch.gru_cell, 3, lambda y: y),
    "lstm_cell": cell(torch.lstm_cell, 4, lambda y: (y, 2 * y)),
    "logaddexp2": torch.logaddexp2,
    "xlog1py": lambda x, y: torch.special.xlog1py(x, y.abs()),
    "put": lambda x, y: torch.put(x, PLACES, y.reshape(-1)[:5], accumulate=True),
    "take": gradient(lambda x, y: x.take(PLACES) * y.reshape(-1)[:5]),
    "cdist": torch.cdist,
    "cdist of the largest": lambda x, y: torch.cdist(x, y, p=math.inf) + torch.cdist(x[:, :0], y[:, :0], p=math.inf),
    "cdist of absolute differences": lambda x, y: torch.cdist(x, y, p=1.0),
    "multi_margin_loss": lambda x, y: F.multi_margin_loss(x, CLASSES, reduction="none"),
    "i1e": lambda x, y: torch.special.i1e(30 * x),
    "i0e": gradient(lambda x, y: torch.special.i0e(x)),
    "sgn": gradient(lambda x, y: torch.sgn(x) * y + x * y),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_eager_results_are_inside(name: str, ratio: Any) -> None:
    drawn = torch.Generator().manual_seed(1)
    x, y = (torch.randn(6, 5, generator=drawn) for _ in range(2))
    formula = OPERATIONS[name]
    expected = evaluate(lambda x, y: {"y": formula(x, y)}, {"x": x, "y": y}, make_precision("libm"), members=40)["y"]
    assert ratio(formula(x, y), expected) <= 1 < ratio(formula(x, y) * 1.01, expected)
