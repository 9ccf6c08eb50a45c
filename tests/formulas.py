"""References made of ordinary torch operations, on positive x: (4, 6) and w: (6,)."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

IDS = torch.tensor([3, 0, 3, 1])
COLUMNS = torch.tensor([[0, 2, 1], [5, 5, 0], [3, 1, 4], [0, 0, 0]])
MASK = torch.tensor([True, False, True, True])

Formula = Callable[[Tensor, Tensor], Tensor]

# x: (4, 6), w: (6,), all entries positive below 2 or of both signs where the name says so.
FORWARD: dict[str, Formula] = {
    "layer_norm": lambda x, w: F.layer_norm(x, (6,), w, w),
    "layer_norm_2d": lambda x, w: F.layer_norm(x.view(2, 2, 6), (2, 6)),
    "rms_norm": lambda x, w: F.rms_norm(x, (6,), w, 1e-6),
    "group_norm": lambda x, w: F.group_norm(x.view(2, 4, 3), 2, w[:4], w[:4]),
    "batch_norm": lambda x, w: F.batch_norm(x, None, None, w, w, training=True),
    "batch_norm_no_stats": lambda x, w: torch._native_batch_norm_legit(x, w, w, True, 0.1, 1e-5)[0],
    "softmax": lambda x, w: torch.softmax(x * w, -1),
    "log_softmax": lambda x, w: torch.log_softmax(x * w, 0),
    "cross_entropy": lambda x, w: F.cross_entropy(x, IDS, w.detach(), ignore_index=1, label_smoothing=0.1),
    "cross_entropy_sum": lambda x, w: F.cross_entropy(x * w, IDS, reduction="sum"),
    "nll": lambda x, w: F.nll_loss(F.log_softmax(x * w, 1), IDS, reduction="none"),
    "gelu": lambda x, w: F.gelu(x - w),
    "gelu_tanh": lambda x, w: F.gelu(x - w, approximate="tanh"),
    "silu": lambda x, w: F.silu(x - w),
    "mish": lambda x, w: F.mish(x - w),
    "softplus": lambda x, w: F.softplus(x - w, beta=2),
    "logsigmoid": lambda x, w: F.logsigmoid(x - w),
    "elu": lambda x, w: F.elu(x - w) + F.selu(x - w) + F.celu(x - w, 0.5),
    "leaky": lambda x, w: F.leaky_relu(x - w) + F.relu6(x),
    "hard": lambda x, w: F.hardswish(x) * F.hardsigmoid(w),
    "glu": lambda x, w: F.glu(x * w, -1),
    "sigmoid_tanh": lambda x, w: torch.sigmoid(x) * torch.tanh(w),
    "matmul": lambda x, w: x @ x.T @ (x * w),
    "batched": lambda x, w: torch.matmul(x.view(2, 2, 6), (x * w).view(2, 6, 2)),
    "einsum": lambda x, w: torch.einsum("ij,kj,j->ik", x, x, w),
    "linear": lambda x, w: F.linear(x, x * w, w[:4]),
    "linear_3d": lambda x, w: F.linear(x.view(2, 2, 6), x * w, w[:4]),
    "mv_dot": lambda x, w: (x @ w).dot(w[:4]) + torch.outer(w, w).sum(),
    "addmm": lambda x, w: torch.addmm(w[:4], x, x.T, beta=0.5, alpha=2.0),
    "baddbmm": lambda x, w: torch.baddbmm(x.view(2, 2, 6)[:, :, :2], x.view(2, 2, 6), (x * w).view(2, 6, 2)),
    "addbmm": lambda x, w: torch.addbmm(w[:2], x.view(2, 2, 6), (x * w).view(2, 6, 2), beta=0.5, alpha=2.0),
    "attention": lambda x, w: F.scaled_dot_product_attention(*[(x * w).view(1, 2, 2, 6)] * 3, is_causal=True),
    "bilinear": lambda x, w: F.bilinear(x, x[:, :4], (x * w).view(1, 4, 6).mT.repeat(2, 1, 1), w[:2]),
    "copies": lambda x, w: torch.block_diag(torch.t_copy(x * w), torch.transpose_copy(torch.alias_copy(x), 0, 1)),
    "copied_parts": lambda x, w: torch.unfold_copy(torch.squeeze_copy(torch.unsqueeze_copy(x * w, 1)), 0, 2, 1),
    "gather": lambda x, w: torch.gather(x * w, 1, COLUMNS),
    "scatter_add": lambda x, w: torch.zeros(4, 6, dtype=x.dtype).scatter_add(1, COLUMNS, (x * w)[:, :3]),
    "scatter": lambda x, w: (x * w).scatter(1, COLUMNS[:, :1], (x + w)[:, :1]),
    "index_add": lambda x, w: torch.zeros(5, 6, dtype=x.dtype).index_add(0, IDS, x * w, alpha=2),
    "index_put": lambda x, w: (x * w).index_put((IDS,), x, accumulate=True),
    "index": lambda x, w: (x * w)[IDS] + (x * w)[IDS][:, [0, 1, 2, 3, 4, 5]],
    "index_far": lambda x, w: (x * w).view(2, 2, 3, 2)[[0, 1, 1], :, [0, 1, 2]],
    "mask": lambda x, w: (x * w)[MASK],
    "mask_data": lambda x, w: (x * w)[(x * w) > 0.5],
    "embedding": lambda x, w: F.embedding(IDS, x * w),
    "masked_fill": lambda x, w: (x * w).masked_fill(MASK[:, None], -1.0),
    "cumsum": lambda x, w: torch.cumsum(x * w, 1) + torch.cumsum(x, 0),
    "cumprod": lambda x, w: torch.cumprod(x * w, 1),
    "logcumsumexp": lambda x, w: torch.logcumsumexp(x * w, 1),
    "prod": lambda x, w: (x * w).prod(1) + (x * w).prod(),
    "where_clamp": lambda x, w: torch.where(x > w, x * w, w).clamp(0.1, 1.5).clamp_min(0.2),
    "shapes": lambda x, w: torch.cat([x * w, torch.stack([w, w])], 0).view(2, 3, 6).permute(2, 0, 1).flip(0, -1),
    "parts": lambda x, w: torch.cat([t * 2 for t in (x * w).split(2, -1)] + list((x * w).chunk(3, 1)), 1),
    "unbind": lambda x, w: sum(t * w for t in x.unbind(0)),  # type: ignore[arg-type,misc,return-value]
    "roll": lambda x, w: torch.roll(x * w, 1, 0) + torch.roll(x, 2) + (x * w).tril() + x.triu(1),
    "rotate": lambda x, w: torch.cat([-(x * w)[:, 3:], (x * w)[:, :3]], -1),
    "unfold": lambda x, w: (x * w).unfold(1, 3, 2),
    "diagonal": lambda x, w: (x * w).diagonal() + torch.diag_embed(w)[0, :4],
    "repeat": lambda x, w: (w * w).repeat(2, 2) + w.repeat_interleave(2),
    "pad": lambda x, w: F.pad(x * w, (1, 2)) + F.pad((x * w).unsqueeze(0), (1, 2), mode="reflect").squeeze(0),
    "squeeze": lambda x, w: (x * w)[:1].squeeze() + (x * w).unsqueeze(-1).squeeze(-1)[0] + (w * w)[None].squeeze(0, -1),
    "expand": lambda x, w: (w * w).expand(4, 6) + w[:, None].expand(-1, 4).T,
    "stable sort": lambda x, w: torch.sort(x * w, stable=True, dim=0, descending=True)[0] * x,
    "tolist": lambda x, w: x * w * len((x * w).tolist()) + (x > 0).sum(-1, keepdim=True).tolist()[0][0],
    "sort": lambda x, w: torch.sort(x * w, -1).values + torch.topk(x * w, 6).values,
    "sort_index": lambda x, w: (x * w).gather(1, torch.argsort(x, 1)),
    "extrema": lambda x, w: (x * w).amax(1) + x.amin(-1) * x.max() + (x * w).max(1).values + x.min(1)[0],
    "argmax": lambda x, w: torch.gather(x * w, 1, (x * w).argmax(1, keepdim=True)),
    "var": lambda x, w: x.var(1) + x.std(0)[:4] + x.var() + torch.var_mean(x, 1, unbiased=False)[1],
    "norm": lambda x, w: (
        x.norm() + x.norm(dim=1) + torch.linalg.vector_norm(x, 3, 1) + x.norm(p=1) + F.normalize(x)[:, 0]
    ),
    "logsumexp": lambda x, w: torch.logsumexp(x * w, 1) + torch.logaddexp(x, w)[:, 0],
    "powers": lambda x, w: x**2 + x**0.5 + x**-1 + x**3.3 + 2.0**x + x**w + x.rsqrt() + x.square(),
    "elementary": lambda x, w: (
        x.exp() + x.log() + x.sin() * x.cos() + x.expm1() + x.log1p() + x.exp2() + x.log2() + x.atan()
    ),
    "errors": lambda x, w: x.erf() + x.erfc() + x.lgamma() + (x / 3).erfinv(),
    "divisions": lambda x, w: x / w + 1 / x + x.remainder(0.7) + x.fmod(0.3) + torch.div(x, w, rounding_mode="trunc"),
    "floor": lambda x, w: x * w // 0.3 + x,
    "lerp": lambda x, w: (
        torch.lerp(x, w.expand(4, 6), 0.3) + torch.addcmul(x, w, w, value=0.5) + torch.addcdiv(x, w, x)
    ),
    "mse": lambda x, w: (
        F.mse_loss(x, w.expand(4, 6)) + F.smooth_l1_loss(x, w.expand(4, 6)) + F.huber_loss(x, w.expand(4, 6))
    ),
    "bce": lambda x, w: F.binary_cross_entropy_with_logits(x, w.sigmoid().expand(4, 6)) + F.l1_loss(x, w.expand(4, 6)),
    "bce_plain": lambda x, w: F.binary_cross_entropy(x.sigmoid(), w.sigmoid().expand(4, 6)),
    "kl": lambda x, w: F.kl_div(F.log_softmax(x, 1), F.softmax(x * w, 1), reduction="batchmean"),
    "conv1d": lambda x, w: F.conv1d(x[None], (x * w)[:, :3].view(2, 2, 3)[:, :, :2].repeat(1, 2, 1), w[:2]),
    "mean_pooling": lambda x, w: F.avg_pool2d((x * w)[None], 3, 2, 1, True, False),
    "padded_means": lambda x, w: F.avg_pool1d(x * w, 3, 2, 1, True),
    "divided_windows": lambda x, w: F.avg_pool2d((x * w)[None], (1, 2), divisor_override=3),
    "pooling": lambda x, w: F.avg_pool1d((x * w)[None], 2) + F.max_pool1d((x * w)[None], 2),
    "grid_sample": lambda x, w: F.grid_sample(
        (x * w)[None, None], (x[:, :4].reshape(1, 2, 4, 2) - 1), align_corners=False
    ),
    "interpolate": lambda x, w: F.interpolate((x * w)[None], scale_factor=2, mode="linear"),
    "casts": lambda x, w: (x * w).to(torch.float32).double() + (x > w).to(x.dtype) + (x > w).sum(),
    "factories": lambda x, w: (
        x * torch.arange(6) + torch.linspace(0, 1, 6) + torch.eye(6, dtype=x.dtype)[:4] + x.new_ones(6)
    ),
    "constants": lambda x, w: x * torch.tensor(0.1, dtype=torch.float64) + torch.full((6,), 0.3, dtype=torch.float64),
    "dropout_off": lambda x, w: F.dropout(x * w, 0.5, training=False),
    "cdist": lambda x, w: (x[:, None] - (x * w)[None]).pow(2).sum(-1).clamp_min(1e-12).sqrt(),
    "cosine": lambda x, w: F.cosine_similarity(x, w.expand(4, 6), dim=1),
    "meshgrid": lambda x, w: torch.meshgrid(w, w * w, indexing="ij")[0] * 1.1,
    "complex_free_rope": lambda x, w: x * torch.cos(torch.outer(torch.arange(4), 10000 ** (-torch.arange(6) / 6))),
    "logit": lambda x, w: torch.logit(x.sigmoid()) + torch.xlogy(x, w),
}

NOT_DIFFERENTIABLE = {"floor", "hard"}
"""No derivative in torch, or one whose float64 kernel computes with float32 constants (hardswish)."""


def inputs(seed: int = 0) -> dict[str, Tensor]:
    """Positive x: (4, 6) and w: (6,) in float32."""
    g = torch.Generator().manual_seed(seed)
    return {
        "x": torch.rand(4, 6, generator=g, dtype=torch.float32) * 1.8 + 0.1,
        "w": torch.rand(6, generator=g, dtype=torch.float32) + 0.3,
    }
