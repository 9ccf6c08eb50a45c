"""A mode under which PyTorch's operations are computed by other, equal ones: another honest float32 solution.

benchmarks/referee.py appends this file to a problem of KernelBench, whose own module then is the solution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode


def softmax(x: Tensor, dim: int, *_: Any, **__: Any) -> Tensor:
    """Exponentials over their sum."""
    weights = torch.exp(x - x.amax(dim, keepdim=True))
    return weights / weights.sum(dim, keepdim=True)


def log_softmax(x: Tensor, dim: int, *_: Any, **__: Any) -> Tensor:
    """x - logsumexp(x)."""
    return x - torch.logsumexp(x, dim, keepdim=True)


def relu(x: Tensor, inplace: bool = False) -> Tensor:
    """What is not below 0."""
    return torch.clamp(x, min=0)


def sigmoid(x: Tensor) -> Tensor:
    """1 over 1 + exp(-x)."""
    return 1 / (1 + torch.exp(-x))


def silu(x: Tensor, inplace: bool = False) -> Tensor:
    """x times its sigmoid."""
    return x / (1 + torch.exp(-x))


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """By the complementary error function, or the tanh form."""
    if approximate == "none":
        return 0.5 * x * torch.erfc(-x / math.sqrt(2))
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def product(a: Tensor, b: Tensor) -> Tensor:
    """The transpose of the product of the transposes."""
    return torch.matmul(b.mT, a.mT).mT if a.dim() > 1 and b.dim() > 1 else torch.matmul(a, b)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """A product and a sum."""
    y = torch.matmul(x, weight.t())
    return y if bias is None else y + bias


def layer_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Two passes."""
    dims = tuple(range(-len(shape), 0))
    centered = x - x.mean(dims, keepdim=True)
    y = centered * torch.rsqrt((centered * centered).mean(dims, keepdim=True) + eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def mean(x: Tensor, dim: Any = None, keepdim: bool = False, **options: Any) -> Tensor:
    """The sum over the number of terms."""
    total = x.sum(dim, keepdim, **options)
    return total / (x.numel() // max(total.numel(), 1))


EQUAL: Mapping[Any, Callable[..., Tensor]] = {
    **dict.fromkeys((torch.softmax, F.softmax, Tensor.softmax), softmax),
    **dict.fromkeys((torch.log_softmax, F.log_softmax), log_softmax),
    **dict.fromkeys((torch.relu, F.relu, Tensor.relu), relu),
    **dict.fromkeys((torch.sigmoid, F.sigmoid, Tensor.sigmoid), sigmoid),
    **dict.fromkeys((torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.mm, torch.bmm), product),
    **dict.fromkeys((torch.mean, Tensor.mean), mean),
    F.silu: silu,
    F.gelu: gelu,
    F.linear: linear,
    F.layer_norm: layer_norm,
}


class EqualOperations(TorchFunctionMode):
    """While active, computes what EQUAL names by other operations."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return EQUAL.get(func, func)(*args, **(kwargs or {}))
