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


class RootMeanSquare(torch.autograd.Function):
    """Rows over their root mean square, with the textbook gradient by the rows themselves."""

    @staticmethod
    def forward(ctx, x, eps):
        rstd = 1 / (x.square().mean(-1, keepdim=True) + eps).sqrt()
        ctx.save_for_backward(x, rstd)
        return x * rstd

    @staticmethod
    def backward(ctx, dy):
        x, rstd = ctx.saved_tensors
        return rstd * dy + rstd * (-1 / x.shape[-1] * rstd * rstd * (dy * x).sum(-1, keepdim=True) * x), None


def rms_norm_reference(x, weight, eps, offset, mode, inplace):
    return dict(y=RootMeanSquare.apply(x, eps) * (weight + offset))


RMS = dict(
    eps=option(1e-6, 1e-5, 1e-1),
    offset=option(0.0, 1.0),
    mode=option("llama", "gemma", "none"),
    inplace=option(False, True),
    accumulate="inputs",
    in_place=("grad y",),
    differentiable=dict(y=tensor(M, N)),
)


@liger(x=tensor(M, N), weight=tensor(N), reference=rms_norm_reference, **RMS)
def liger_rms_norm(x, weight, eps, offset, mode, inplace):
    """Root-mean-square norm; in place the gradient takes that of its output's memory."""
    one_dtype(x, weight)
    place = "rms_norm:LigerRMSNormFunction"
    return dict(y=applied(place, X=x, W=weight, eps=eps, offset=offset, casting_mode=mode, in_place=inplace))


def add_rms_norm_reference(x, residual, weight, eps, offset, mode, inplace):
    total = x + residual
    return dict(y=RootMeanSquare.apply(total, eps) * (weight + offset), total=total)


@liger(
    x=tensor(M, N),
    residual=tensor(M, N),
    weight=tensor(N),
    reference=add_rms_norm_reference,
    **{**RMS, "differentiable": dict(y=tensor(M, N), total=tensor(M, N))},
)
def liger_fused_add_rms_norm(x, residual, weight, eps, offset, mode, inplace):
    """A residual added, and the root-mean-square norm of the sum."""
    one_dtype(x, residual, weight)
    place = "fused_add_rms_norm:LigerFusedAddRMSNormFunction"
    y, total = applied(
        place, X=x, R=residual, W=weight, eps=eps, offset=offset, casting_mode=mode, in_place=inplace
    )  # fmt: skip
    return dict(y=y, total=total)


def modulated_reference(x, weight, scale, shift, eps, offset, mode, inplace):
    return dict(y=RootMeanSquare.apply(x, eps) * (weight + offset) * (1 + scale) + shift)


@liger(
    x=tensor(M, N),
    weight=tensor(N),
    scale=tensor(M, N),
    shift=tensor(M, N),
    reference=modulated_reference,
    **RMS,
)
def liger_modulated_rms_norm(x, weight, scale, shift, eps, offset, mode, inplace):
    """Root-mean-square norm, scaled and shifted row by row."""
    one_dtype(x, weight, scale, shift)
    y = applied(
        "modulated_rms_norm:LigerModulatedRMSNormFunction",
        X=x, W=weight, scale=scale, shift=shift, eps=eps, offset=offset, casting_mode=mode, in_place=inplace,
    )  # fmt: skip
    return dict(y=y)


B, G, C, L = size("B", 1, 16), size("groups", 1, 8), size("C", 1, 8), size("L", 1, 512)


def group_norm_reference(x, weight, bias, eps, groups):
    y = Standard.apply(x.reshape(len(x), groups, -1), eps).reshape(x.shape)
    return dict(y=y * weight.unsqueeze(-1) + bias.unsqueeze(-1))


@liger(
    x=tensor(B, G * C, L),
    weight=tensor(G * C),
    bias=tensor(G * C),
    eps=option(1e-6, 1e-5, 1e-1),
    groups=G,
    dims=(C,),
    deterministic="the gradients of weight and bias are sums by atomic additions",
    reference=group_norm_reference,
    differentiable=dict(y=tensor(B, G * C, L)),
)
def liger_group_norm(x, weight, bias, eps, groups):
    """Group norm."""
    one_dtype(x, weight, bias)
    y = applied(
        "group_norm:LigerGroupNormFunction",
        X=x, affine_scaling_weight=weight, affine_shifting_bias=bias, num_channels=x.shape[1], num_groups=groups,
        eps=eps,
    )  # fmt: skip
    return dict(y=y)


class Term(torch.autograd.Function):
    """Rows over their root mean square times one weight, which the gradient is multiplied by last."""

    @staticmethod
    def forward(ctx, x, weight, eps):
        rstd = 1 / (x.square().mean(-1, keepdim=True) + eps).sqrt()
        ctx.save_for_backward(x, weight, rstd)
        return weight * (x * rstd)

    @staticmethod
    def backward(ctx, dy):
        x, weight, rstd = ctx.saved_tensors
        along = (dy * x).sum(-1, keepdim=True)
        dx = weight * (rstd * dy - 1 / x.shape[-1] * x * (rstd * rstd * rstd) * along)
        return dx, (rstd * along).sum(), None


def tame(x):
    """Values whose cubes have squares."""
    return x.clamp(-(2.0**20), 2.0**20)


def poly_norm_reference(x, weight, bias, eps, inplace):
    x = tame(x)
    return dict(y=sum(Term.apply(x**power, weight[3 - power], eps) for power in (3, 2, 1)) + bias)


@liger(
    x=tensor(M, N),
    weight=tensor(3),
    bias=tensor(),
    eps=option(1e-6, 1e-5, 1e-1),
    inplace=option(False, True),
    accumulate="inputs",
    in_place=("grad y",),
    reference=poly_norm_reference,
    differentiable=dict(y=tensor(M, N)),
)
def liger_poly_norm(x, weight, bias, eps, inplace):
    """A weighted sum of the normed third, second and first powers."""
    one_dtype(x, weight, bias)
    return dict(y=applied("poly_norm:LigerPolyNormFunction", X=tame(x), W=weight, B=bias, eps=eps, in_place=inplace))
