"""Norms of liger-kernel. Interesting: widths beside a power of two, mean >> std, half precision weights."""

import torch
from _liger import applied, liger, one_dtype

from fuzz import option, size, tensor

M, N = size("M", 1, 512), size("N", 1, 8192)


class Standard(torch.autograd.Function):
    """Rows minus their mean over their deviation, with the textbook gradient, in which an error of the mean stays."""

    @staticmethod
    def forward(ctx, x, eps):
        d = x - x.mean(-1, keepdim=True)
        rstd = 1 / (d.square().mean(-1, keepdim=True) + eps).sqrt()
        ctx.save_for_backward(d * rstd, rstd)
        return d * rstd

    @staticmethod
    def backward(ctx, dy):
        y, rstd = ctx.saved_tensors
        return rstd * (dy - (y * (y * dy).mean(-1, keepdim=True) + dy.mean(-1, keepdim=True))), None


def layer_norm_reference(x, weight, bias, eps):
    return dict(y=Standard.apply(x, eps) * weight + bias)


@liger(
    x=tensor(M, N),
    weight=tensor(N),
    bias=tensor(N),
    eps=option(1e-6, 1e-5, 1e-1),
    batch=M,
    reference=layer_norm_reference,
    differentiable=dict(y=tensor(M, N)),
)
def liger_layer_norm(x, weight, bias, eps):
    """Layer norm."""
    one_dtype(x, weight, bias)
    return dict(y=applied("layer_norm:LigerLayerNormFunction", X=x, W=weight, B=bias, eps=eps))
