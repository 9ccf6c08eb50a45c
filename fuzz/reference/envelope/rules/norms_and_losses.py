"""Formulas of normalisations and losses: layer, group and rms norm, cross entropy, squared and absolute errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fuzz.reference.envelope.ensemble import RULES

__all__ = ["FORMULAS", "register"]

MEAN, SUM = 1, 2
"""torch's codes of a loss's reduction; 0 is none."""


def reduced(loss: Tensor, reduction: int) -> Tensor:
    """The loss reduced."""
    return loss.mean() if reduction == MEAN else loss.sum() if reduction == SUM else loss


def scaled(g: Tensor, like: Tensor, reduction: int) -> Tensor:
    """The gradient of each term of a reduced loss."""
    return g / like.numel() if reduction == MEAN else g


def layer_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """(y, mean, rstd): two-pass statistics over the last dims."""
    dims = list(range(x.dim() - len(shape), x.dim()))
    mean = x.mean(dims, True)
    d = x - mean
    rstd = torch.rsqrt((d * d).mean(dims, True) + eps)
    y = d * rstd
    y = y if weight is None else y * weight
    return (y if bias is None else y + bias), mean, rstd


def layer_norm_backward(
    g: Tensor, x: Tensor, shape: Sequence[int], mean: Tensor, rstd: Tensor, weight: Tensor | None, bias: Tensor | None,
    mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """dx = rstd*(gw - mean(gw) - xhat*mean(gw*xhat)), dweight = sum(g*xhat), dbias = sum(g)."""
    inner = list(range(x.dim() - len(shape), x.dim()))
    outer = list(range(x.dim() - len(shape)))
    xhat = (x - mean) * rstd
    dx = None
    if mask[0]:
        gw = g if weight is None else g * weight
        dx = rstd * (gw - gw.mean(inner, True) - xhat * (gw * xhat).mean(inner, True))
    dweight = _summed(g * xhat, outer) if mask[1] and weight is not None else None
    return dx, dweight, _summed(g, outer) if mask[2] and bias is not None else None


def _summed(t: Tensor, dims: list[int]) -> Tensor:
    """Sum over dims; over none of them, the tensor."""
    return t.sum(dims) if dims else t


def rms_norm(x: Tensor, shape: Sequence[int], weight: Tensor | None, eps: float | None) -> tuple[Tensor, Tensor]:
    """(y, rstd) of rms norm over the last dims."""
    dims = list(range(x.dim() - len(shape), x.dim()))
    rstd = torch.rsqrt((x * x).mean(dims, True) + (torch.finfo(x.dtype).eps if eps is None else eps))
    y = x * rstd
    return (y if weight is None else y * weight), rstd


def rms_norm_backward(
    g: Tensor, x: Tensor, shape: Sequence[int], rstd: Tensor, weight: Tensor | None, mask: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    """dx = rstd*(gw - xhat*mean(gw*xhat)), dweight = sum(g*xhat)."""
    inner = list(range(x.dim() - len(shape), x.dim()))
    xhat = x * rstd
    dx = None
    if mask[0]:
        gw = g if weight is None else g * weight
        dx = rstd * (gw - xhat * (gw * xhat).mean(inner, True))
    outer = list(range(x.dim() - len(shape)))
    return dx, _summed(g * xhat, outer) if mask[1] and weight is not None else None


def _per_channel(w: Tensor, rank: int) -> Tensor:
    """A (C,) parameter that broadcasts over (N, C, *)."""
    return w.view(1, -1, *(1,) * (rank - 2))


def group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, n: int, c: int, hxw: int, group: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """(y, mean, rstd) of group norm; statistics have shape (N, groups)."""
    grouped = x.reshape(n, group, -1)
    mean = grouped.mean(2, True)
    d = grouped - mean
    rstd = torch.rsqrt((d * d).mean(2, True) + eps)
    y = (d * rstd).reshape(x.shape)
    y = y if weight is None else y * _per_channel(weight, x.dim())
    return (y if bias is None else y + _per_channel(bias, x.dim())), mean.squeeze(2), rstd.squeeze(2)


def group_norm_backward(
    g: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None, n: int, c: int, hxw: int, group: int,
    mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """As layer norm's, over each group; parameters are summed over all but their channel."""
    xhat = (x.reshape(n, group, -1) - mean.unsqueeze(2)) * rstd.unsqueeze(2)
    dx = None
    if mask[0]:
        gw = (g if weight is None else g * _per_channel(weight, g.dim())).reshape(n, group, -1)
        dx = (rstd.unsqueeze(2) * (gw - gw.mean(2, True) - xhat * (gw * xhat).mean(2, True))).reshape(x.shape)
    flat = g.reshape(n, c, -1)
    dweight = (flat * xhat.reshape(n, c, -1)).sum([0, 2]) if mask[1] else None
    return dx, dweight, flat.sum([0, 2]) if mask[2] else None


def _weights(x: Tensor, target: Tensor, weight: Tensor | None, ignore: int) -> tuple[Tensor, Tensor]:
    """(targets with ignored ones replaced by 0, weight of each target) of a negative log likelihood."""
    kept = target != ignore
    safe = torch.where(kept, target, torch.zeros_like(target))
    w = kept.to(x.dtype) if weight is None else torch.where(kept, weight[safe], torch.zeros((), dtype=x.dtype))
    return safe, w


def nll_loss(x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore: int) -> tuple[Tensor, Tensor]:
    """(loss, total weight): -w*x at the targets; the mean divides by the sum of weights. x: (N, C, *) or (C,)."""
    channel = 1 if x.dim() > 1 else 0
    safe, w = _weights(x, target, weight, ignore)
    loss = -(torch.gather(x, channel, safe.unsqueeze(channel)).squeeze(channel))
    loss = torch.where(w != 0, loss * w, torch.zeros_like(loss))
    total = w.sum()
    return (loss.sum() / total if reduction == MEAN else reduced(loss, reduction)), total


def nll_loss_backward(
    g: Tensor, x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore: int, total: Tensor
) -> Tensor:
    """-w*g at the targets, zero elsewhere."""
    channel = 1 if x.dim() > 1 else 0
    safe, w = _weights(x, target, weight, ignore)
    part = -(g / total if reduction == MEAN else g) * w
    part = torch.where(w != 0, part, torch.zeros_like(part))
    return torch.zeros_like(x).scatter(channel, safe.unsqueeze(channel), part.unsqueeze(channel))


def mse_loss(x: Tensor, y: Tensor, reduction: int = MEAN) -> Tensor:
    """(x - y)^2."""
    d = x - y
    return reduced(d * d, reduction)


def mse_loss_backward(g: Tensor, x: Tensor, y: Tensor, reduction: int) -> Tensor:
    """2*(x - y)*g."""
    return 2.0 * (x - y) * scaled(g, x, reduction)


def huber_loss(x: Tensor, y: Tensor, reduction: int = MEAN, delta: float = 1.0) -> Tensor:
    """d^2/2 up to delta, delta*(|d| - delta/2) beyond."""
    d = (x - y).abs()
    return reduced(torch.where(d <= delta, 0.5 * d * d, delta * (d - 0.5 * delta)), reduction)


def huber_loss_backward(g: Tensor, x: Tensor, y: Tensor, reduction: int, delta: float) -> Tensor:
    """clamp(x - y, -delta, delta)*g."""
    return torch.clamp(x - y, -delta, delta) * scaled(g, x, reduction)


def smooth_l1_loss(x: Tensor, y: Tensor, reduction: int = MEAN, beta: float = 1.0) -> Tensor:
    """d^2/(2 beta) up to beta, |d| - beta/2 beyond."""
    d = (x - y).abs()
    return reduced(torch.where(d < beta, 0.5 * d * d / beta, d - 0.5 * beta) if beta else d, reduction)


def smooth_l1_loss_backward(g: Tensor, x: Tensor, y: Tensor, reduction: int, beta: float) -> Tensor:
    """clamp(d/beta, -1, 1)*g."""
    d = x - y
    return (torch.where(d.abs() < beta, d / beta, torch.sign(d)) if beta else torch.sign(d)) * scaled(g, x, reduction)


def binary_cross_entropy(x: Tensor, y: Tensor, weight: Tensor | None = None, reduction: int = MEAN) -> Tensor:
    """-(y*log(x) + (1 - y)*log(1 - x)), logarithms not below -100."""
    loss = (y - 1) * torch.clamp(torch.log1p(-x), min=-100.0) - y * torch.clamp(torch.log(x), min=-100.0)
    return reduced(loss if weight is None else loss * weight, reduction)


def binary_cross_entropy_backward(
    g: Tensor, x: Tensor, y: Tensor, weight: Tensor | None = None, reduction: int = MEAN
) -> Tensor:
    """g*(x - y)/max((1 - x)*x, 1e-12)."""
    out = g * (x - y) / torch.clamp((1 - x) * x, min=1e-12)
    return scaled(out if weight is None else out * weight, x, reduction)


def binary_cross_entropy_with_logits(
    x: Tensor, y: Tensor, weight: Tensor | None = None, positive: Tensor | None = None, reduction: int = MEAN
) -> Tensor:
    """(1 - y)*x + w*(log1p(exp(-|x|)) + max(-x, 0)), w = 1 + (positive - 1)*y."""
    soft = torch.log1p(torch.exp(-x.abs())) + torch.clamp(-x, min=0.0)
    loss = (1 - y) * x + (soft if positive is None else soft * (1 + (positive - 1) * y))
    return reduced(loss if weight is None else loss * weight, reduction)


def multi_margin_loss_backward(
    g: Tensor, x: Tensor, target: Tensor, p: float, margin: float, weight: Tensor | None = None, reduction: int = MEAN
) -> Tensor:
    """Of each class whose z = margin - x_target + x is positive p*z^(p-1)/classes, with the class's weight.

    The target has what all others have together, with the other sign.
    """
    rows, index = x.reshape(-1, x.shape[-1]), target.reshape(-1, 1)
    z = margin - rows.gather(1, index) + rows
    others = (torch.arange(rows.shape[1], device=index.device) != index) & (z > 0)
    part = torch.where(others, 2.0 * z if p == 2 else torch.ones_like(z), torch.zeros_like(z))
    part = part if weight is None else part * weight[index]
    whole = part.scatter(1, index, -part.sum(1, True)) / rows.shape[1]
    heads = g.reshape(-1, 1)
    return (whole * (heads / rows.shape[0] if reduction == MEAN else heads)).reshape(x.shape)


def embedding_dense_backward(g: Tensor, indices: Tensor, rows: int, padding: int, by_frequency: bool) -> Tensor:
    """Sum of the gradients of each row, in any order; the padding row gets none."""
    index = indices.reshape(-1)
    flat = g.reshape(index.numel(), g.shape[-1])
    if by_frequency:
        counts = torch.zeros(rows, dtype=g.dtype).index_add(0, index, torch.ones_like(index, dtype=g.dtype))
        flat = flat / counts[index].unsqueeze(1)
    if padding >= 0:
        flat = torch.where((index == padding).unsqueeze(1), torch.zeros_like(flat), flat)
    return flat.new_zeros((rows, g.shape[-1])).index_add(0, index, flat)


FORMULAS: dict[str, Callable[..., Any]] = {
    "native_layer_norm": layer_norm, "native_layer_norm_backward": layer_norm_backward, "_fused_rms_norm": rms_norm,
    "_fused_rms_norm_backward": rms_norm_backward, "native_group_norm": group_norm,
    "native_group_norm_backward": group_norm_backward, "nll_loss_forward": nll_loss, "nll_loss2d_forward": nll_loss,
    "nll_loss_backward": nll_loss_backward, "nll_loss2d_backward": nll_loss_backward, "mse_loss": mse_loss,
    "mse_loss_backward": mse_loss_backward, "huber_loss": huber_loss, "huber_loss_backward": huber_loss_backward,
    "smooth_l1_loss": smooth_l1_loss, "smooth_l1_loss_backward": smooth_l1_loss_backward,
    "binary_cross_entropy": binary_cross_entropy, "binary_cross_entropy_backward": binary_cross_entropy_backward,
    "binary_cross_entropy_with_logits": binary_cross_entropy_with_logits,
    "embedding_dense_backward": embedding_dense_backward, "multi_margin_loss_backward": multi_margin_loss_backward,
}  # fmt: skip


def register() -> None:
    """State the rules of this module."""
    RULES.register_formulas(FORMULAS)
