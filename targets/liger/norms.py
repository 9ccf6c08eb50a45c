"""Norms of liger-kernel. Interesting: widths beside a power of two, mean >> std, half precision weights."""

import torch
from _liger import UNREACHED, applied, found, layer, liger, one_dtype, same_bits, takes

from fuzz import option, size, sizes, tensor

M, S, N = size("M", 1, 512), sizes("S", 0, 1, high=4), size("N", 1, 8192)
ROWS = tensor(M, S, N)


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


def layer_norm_reference(x, weight, bias, eps, module):
    return dict(y=Standard.apply(x, eps) * weight + bias)


@liger(
    x=ROWS, weight=tensor(N), bias=tensor(N), eps=option(1e-6, 1e-5, 1e-1), module=option(False, True), batch=M,
    deterministic=same_bits("layer_norm.py"), reference=layer_norm_reference, differentiable=dict(y=ROWS),
)  # fmt: skip
def liger_layer_norm(x, weight, bias, eps, module):
    """Layer norm; the module chooses an implementation for the device."""
    one_dtype(x, weight, bias)
    if module:
        parameters = dict(weight=weight, bias=bias)
        return dict(y=layer("layer_norm:LigerLayerNorm", parameters, x, hidden_size=x.shape[-1], eps=eps, bias=True))
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


def scaled(x, weight, eps, offset):
    """Rows over their root mean square, times a weight where there is one."""
    y = RootMeanSquare.apply(x, eps)
    return y if weight is None else y * (weight + offset)


RMS = dict(
    eps=option(1e-6, 1e-5, 1e-1), offset=option(0.0, 1.0), mode=option("llama", "gemma", "none"),
    inplace=option(False, True), module=option(False, True), accumulate="inputs", in_place={"grad y": "inplace"},
    differentiable=dict(y=ROWS),
)  # fmt: skip


def rms_norm_reference(x, weight, eps, offset, mode, inplace, by_row, module):
    return dict(y=scaled(x, weight, eps, offset))


BLOCKS = dict.fromkeys(
    ("*_block_rms_norm*", "*n_rows < 4096 * 8 or row_mode` is never false"), "liger_rms_norm_short has as many rows"
)  # fmt: skip


@liger(
    x=ROWS, weight=tensor(N) | None, by_row=option(None, True), reference=rms_norm_reference,
    unreached={**UNREACHED, **BLOCKS}, **RMS,
)  # fmt: skip
def liger_rms_norm(x, weight, eps, offset, mode, inplace, by_row, module):
    """Root-mean-square norm; in place the gradient takes that of its output's memory."""
    one_dtype(x, weight)
    if weight is None:
        takes(found("rms_norm:LigerRMSNorm", "transformers"), "elementwise_affine")
    options = dict(eps=eps, offset=offset, casting_mode=mode, in_place=inplace, row_mode=by_row)
    if not module:
        return dict(y=applied("rms_norm:LigerRMSNormFunction", X=x, W=weight, **options))
    more = dict(hidden_size=x.shape[-1], elementwise_affine=weight is not None, **options)
    return dict(y=layer("rms_norm:LigerRMSNorm", dict(weight=weight), x, **more))


MANY, FEW = size("MANY", 32768, 33000), size("FEW", 1, 40)


@liger(
    x=tensor(MANY, FEW), weight=tensor(FEW) | None, by_row=option(None, True), reference=rms_norm_reference,
    **{**RMS, "differentiable": dict(y=tensor(MANY, FEW))},
)  # fmt: skip
def liger_rms_norm_short(**arguments):
    """The same of so many short rows that a program takes 16 of them."""
    return liger_rms_norm(**arguments)


def add_rms_norm_reference(x, residual, weight, eps, offset, mode, inplace, module):
    total = x + residual
    return dict(y=scaled(total, weight, eps, offset), total=total)


@liger(
    x=ROWS, residual=ROWS, weight=tensor(N), reference=add_rms_norm_reference,
    **{**RMS, "differentiable": dict(y=ROWS, total=ROWS)},
)  # fmt: skip
def liger_fused_add_rms_norm(x, residual, weight, eps, offset, mode, inplace, module):
    """A residual added, and the root-mean-square norm of the sum."""
    one_dtype(x, residual, weight)
    options = dict(eps=eps, offset=offset, casting_mode=mode, in_place=inplace)
    if module:
        place = "fused_add_rms_norm:LigerFusedAddRMSNorm"
        y, total = layer(place, dict(weight=weight), x, residual, hidden_size=x.shape[-1], **options)
    else:
        y, total = applied("fused_add_rms_norm:LigerFusedAddRMSNormFunction", X=x, R=residual, W=weight, **options)
    return dict(y=y, total=total)


def modulated_reference(x, weight, scale, shift, eps, offset, mode, inplace, module):
    y = scaled(x, weight, eps, offset) * (1 + scale.unsqueeze(1))
    return dict(y=y if shift is None else y + shift.unsqueeze(1))


B, T = size("B", 1, 64), size("T", 1, 16)


@liger(
    x=tensor(B, T, N), weight=tensor(N) | None, scale=tensor(B | 1, N), shift=tensor(B | 1, N) | None,
    deterministic=same_bits("modulated_rms_norm.py"),
    reference=modulated_reference, **{**RMS, "differentiable": dict(y=tensor(B, T, N))},
)  # fmt: skip
def liger_modulated_rms_norm(x, weight, scale, shift, eps, offset, mode, inplace, module):
    """Root-mean-square norm, scaled and shifted sequence by sequence, or all together."""
    one_dtype(x, weight, scale, shift)
    if shift is not None and shift.shape != scale.shape:
        raise ValueError("shift is broadcast as scale is")
    options = dict(eps=eps, offset=offset, casting_mode=mode, in_place=inplace)
    if not module:
        place = "modulated_rms_norm:LigerModulatedRMSNormFunction"
        return dict(y=applied(place, X=x, W=weight, scale=scale, shift=shift, **options))
    more = dict(hidden_size=x.shape[-1], elementwise_affine=weight is not None, **options)
    return dict(y=layer("modulated_rms_norm:LigerModulatedRMSNorm", dict(weight=weight), x, scale, shift, **more))


G, C, L = size("groups", 1, 8), size("C", 1, 8), sizes("L", 1, 2, high=32)
CHANNELS = tensor(B, G * C, L)


def group_norm_reference(x, weight, bias, eps, groups, module):
    y = Standard.apply(x.reshape(len(x), groups, -1), eps).reshape(len(x), len(weight), -1)
    return dict(y=(y * weight.unsqueeze(-1) + bias.unsqueeze(-1)).reshape(x.shape))


@liger(
    x=CHANNELS, weight=tensor(G * C), bias=tensor(G * C), eps=option(1e-6, 1e-5, 1e-1), groups=G,
    module=option(False, True), dims=(C,), reference=group_norm_reference, differentiable=dict(y=CHANNELS),
    deterministic=same_bits("group_norm.py"),
)  # fmt: skip
def liger_group_norm(x, weight, bias, eps, groups, module):
    """Group norm."""
    one_dtype(x, weight, bias)
    options = dict(num_channels=x.shape[1], num_groups=groups, eps=eps)
    if module:
        place = "group_norm:LigerGroupNorm"
        return dict(y=layer(place, dict(weight=weight, bias=bias), x, bias=True, **options))
    place = "group_norm:LigerGroupNormFunction"
    return dict(y=applied(place, X=x, affine_scaling_weight=weight, affine_shifting_bias=bias, **options))


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
    most = min(2.0**20, torch.finfo(x.dtype).max)
    return x.clamp(-most, most)


def poly_norm_reference(x, weight, bias, eps, inplace, module):
    x = tame(x)
    return dict(y=sum(Term.apply(x**power, weight[3 - power], eps) for power in (3, 2, 1)) + bias)


@liger(
    x=ROWS, weight=tensor(3), bias=tensor(), eps=option(1e-6, 1e-5, 1e-1), inplace=option(False, True),
    module=option(False, True), accumulate="inputs", in_place={"grad y": "inplace"}, reference=poly_norm_reference,
    differentiable=dict(y=ROWS),
)  # fmt: skip
def liger_poly_norm(x, weight, bias, eps, inplace, module):
    """A weighted sum of the normed third, second and first powers."""
    one_dtype(x, weight, bias)
    if module:
        place, parameters = "poly_norm:LigerPolyNorm", dict(weight=weight, bias=bias)
        return dict(y=layer(place, parameters, tame(x), eps=eps, in_place=inplace))
    return dict(y=applied("poly_norm:LigerPolyNormFunction", X=tame(x), W=weight, B=bias, eps=eps, in_place=inplace))
