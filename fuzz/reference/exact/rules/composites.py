"""Defines rules of composite operations: the envelope's formulas, except those whose constants no double holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fuzz.reference.envelope.rules import composites, grid_sample, norms_and_losses
from fuzz.reference.exact.tensor import RULES

__all__ = ["attention", "register"]


def root(square: float) -> Tensor:
    """An exact square root."""
    return torch.full((), square).sqrt()


def pi() -> Tensor:
    """An exact pi."""
    return torch.full((), 1.0).atan() * 4


def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    """x*Phi(x), or the tanh form; 0.044715 is the double, which a user means."""
    if approximate == "none":
        return 0.5 * x * torch.erfc(-x * root(0.5))
    return 0.5 * x * (1 + torch.tanh((2 / pi()).sqrt() * (x + 0.044715 * (x * x * x))))


def gelu_backward(g: Tensor, x: Tensor, *, approximate: str = "none") -> Tensor:
    """g*(Phi(x) + x*phi(x)), or the derivative of the tanh form."""
    if approximate == "none":
        return g * (0.5 * torch.erfc(-x * root(0.5)) + x * torch.exp(-0.5 * x * x) / (2 * pi()).sqrt())
    k = (2 / pi()).sqrt()
    t = torch.tanh(k * (x + 0.044715 * (x * x * x)))
    return g * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * (k * (1 + torch.full((), 0.044715) * 3 * (x * x))))


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """scaled_dot_product_attention by its formula, with an exact 1/sqrt(E) where torch rounds its root to a double."""
    if enable_gqa:
        key, value = (t.repeat_interleave(query.shape[-3] // t.shape[-3], -3) for t in (key, value))
    factor: Any = root(query.shape[-1]).reciprocal() if scale is None else scale
    scores = query @ key.transpose(-2, -1) * factor
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        scores = scores.masked_fill(~attn_mask, float("-inf"))
    elif attn_mask is not None:
        scores = scores + attn_mask
    if dropout_p:
        return torch.dropout(torch.softmax(scores, -1) @ value, dropout_p, True)
    weights = torch.softmax(scores, -1)
    empty = (scores == float("-inf")).all(-1, keepdim=True)
    return weights.masked_fill(empty, 0.0) @ value


def windows(size: int, kernel: int, stride: int, padding: int, ceil: bool) -> tuple[Tensor, Tensor]:
    """Which places of a dim each window of a pooling holds, and its size with the padding that it covers."""
    count = (size + 2 * padding - kernel + (stride - 1 if ceil else 0)) // stride + 1
    count -= ceil and (count - 1) * stride >= size + padding
    begin = torch.arange(count) * stride - padding
    end = (begin + kernel).clamp(max=size + padding)
    places = torch.arange(size)
    return (places >= begin.unsqueeze(1)) & (places < end.unsqueeze(1)), end - begin


def sum_windows(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """The sums of the elements of the last two dims that windows of rows and of columns hold."""
    for inside in (rows, columns):
        x = torch.where(inside, x.transpose(-1, -2).unsqueeze(-2), torch.zeros((), dtype=x.dtype)).sum(-1)
    return x


def pooling_windows(
    shape: torch.Size,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    ceil: bool,
    padded: bool,
    by: int | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The windows of rows and of columns of an average pooling, and what each sum is divided by."""
    kernel, stride, padding = (given * (2 // len(given)) for given in (kernel, stride or kernel, padding))
    (rows, high), (columns, wide) = (windows(shape[d], kernel[d], stride[d], padding[d], ceil) for d in (-2, -1))
    if not padded:
        high, wide = rows.sum(1), columns.sum(1)
    counts = high.unsqueeze(1) * wide
    return rows, columns, torch.full_like(counts, by) if by else counts


def avg_pool2d(
    x: Tensor, kernel: list[int], stride: Any = (), padding: Any = (0,), ceil: bool = False, padded: bool = True,
    by: int | None = None,
) -> Tensor:  # fmt: skip
    """Means of windows."""
    rows, columns, counts = pooling_windows(x.shape, list(kernel), list(stride), list(padding), ceil, padded, by)
    return sum_windows(x, rows, columns) / counts


def avg_pool2d_backward(
    g: Tensor, x: Tensor, kernel: list[int], stride: list[int], padding: list[int], ceil: bool, padded: bool,
    by: int | None,
) -> Tensor:  # fmt: skip
    """To each element a share of the gradients of the windows that hold it."""
    rows, columns, counts = pooling_windows(x.shape, list(kernel), list(stride), list(padding), ceil, padded, by)
    return sum_windows(g / counts, rows.T, columns.T)


OWN: dict[str, Callable[..., Any]] = {
    "gelu": gelu, "gelu_backward": gelu_backward, "avg_pool2d": avg_pool2d, "avg_pool2d_backward": avg_pool2d_backward,
}  # fmt: skip


def register() -> None:
    """State the rules of this module."""
    shared = {**composites.FORMULAS, **norms_and_losses.FORMULAS, **grid_sample.FORMULAS}
    RULES.register_formulas({**shared, **OWN})
    RULES.register_decompositions(*composites.FROM_TORCH.split())
