"""Losses of fla-core. Interesting: vocabularies beside a block, ignored labels, every reduction."""

import torch
from _fla import flash, found, one_dtype

from fuzz import indices, option, size, tensor

M, V, W = size("M", 1, 100), size("V", 1, 10000), size("W", 1, 200)
LABELS = indices(M, below=V, sentinel=-100, dtypes=("int64",))


def log_sums(x):
    """The logarithm of the sum of exponentials of each row below its largest, the rows below that, and the largest."""
    top = x.amax(-1).detach()
    shifted = x - top.unsqueeze(-1)
    return shifted.exp().sum(-1).log(), shifted, top


def row_losses(logits, labels, smoothing, scale, square, cap):
    kept = labels != -100
    x = logits * scale
    x = cap * torch.tanh(x / cap) if cap else x
    log_sum, shifted, _ = log_sums(x)
    surprise = log_sum.unsqueeze(-1) - shifted
    chosen = torch.where(kept, labels, 0).long().unsqueeze(1)
    losses = (1 - smoothing) * surprise.gather(1, chosen).squeeze(1)
    losses = losses + smoothing * surprise.mean(-1) if smoothing else losses
    penalty = torch.zeros_like(losses)
    if square:
        # By sums of its own: added to the gradients of the other sums, which cancel, its small gradient would be lost.
        log_sum, _, top = log_sums(x)
        penalty = square * (log_sum + top).square()
    return torch.where(kept, losses + penalty, 0.0), torch.where(kept, penalty, 0.0).detach()


def cross_entropy_reference(logits, labels, inplace, **options):
    losses, penalty = row_losses(logits, labels, **options)
    return dict(losses=losses, penalty=penalty)


def wide_reference(logits, labels, **options):
    return cross_entropy_reference(logits, labels, False, **options)


SPLIT = "fla_cross_entropy_wide has rows that several programs share"
MANY = {"*process_group*": "vocabularies spread over devices are not drawn", "*world_size*": "devices are not drawn"}
ONE = {
    **MANY, **dict.fromkeys(("*cross_entropy_reduce*", "*`split`*", "*SPLIT*", "*V > BV*"), SPLIT),
    "*dw is not None*": "a linear layer has a weight",
}  # fmt: skip
OPTIONS = dict(smoothing=option(0.0, 0.1), scale=option(1.0, 0.5), cap=option(None, 30.0, 2.0), timeout=120.0)


@flash(
    logits=tensor(M, V), labels=LABELS, square=option(0.0, 1e-4, 0.1), inplace=option(False, True), in_place={"logits": "inplace"},
    accumulate="inputs", rows=dict(losses=M), reference=cross_entropy_reference,
    differentiable=dict(losses=tensor(M)), unreached=ONE, **OPTIONS,
)  # fmt: skip
def fla_cross_entropy(logits, labels, smoothing, scale, square, cap, inplace):
    """Cross entropy of rows, whose gradient may take the logits' memory."""
    function = found("modules.fused_cross_entropy.ops:cross_entropy_loss")
    losses, penalty = function(logits, labels, smoothing, scale, square, cap, inplace_backward=inplace)
    return dict(losses=losses, penalty=penalty)


WIDE, FEW = size("WIDE", 65537, 70000), size("FEW", 1, 3)


@flash(
    logits=tensor(FEW, WIDE), labels=indices(FEW, below=WIDE, sentinel=-100, dtypes=("int64",)),
    square=option(0.0, 1e-4, 0.1), accumulate="inputs", reference=wide_reference, unreached=MANY,
    differentiable=dict(losses=tensor(FEW)), **OPTIONS,
)  # fmt: skip
def fla_cross_entropy_wide(logits, labels, **given):
    """Cross entropy of rows so wide that several programs share one."""
    return fla_cross_entropy(logits, labels, inplace=False, **given)


def linear_reference(x, weight, bias, labels, chunks, reduction, warp, in_float32, **options):
    logits = x @ weight.T
    logits = logits if bias is None else logits + bias
    losses, _ = row_losses(logits, labels, square=0.0, **options)
    loss = losses.sum() if reduction == "sum" else losses.sum() / (labels != -100).sum().clamp(min=1)
    return dict(loss=Warped.apply(loss, logits) if warp else loss)


class Warped(torch.autograd.Function):
    """A loss, with 1e-4 times the largest logit of each row over their number as a gradient beside its own."""

    @staticmethod
    def forward(ctx, loss, logits):
        top, place = logits.max(-1, keepdim=True)
        ctx.save_for_backward(torch.zeros_like(logits).scatter(-1, place, top * (1e-4 / len(logits))))
        return loss.clone()

    @staticmethod
    def backward(ctx, dloss):
        (penalty,) = ctx.saved_tensors
        return dloss, penalty * dloss


@flash(
    x=tensor(M, W), weight=tensor(V, W), bias=tensor(V) | None, labels=LABELS, chunks=option(8, 1, 3),
    reduction=option("mean", "sum"), warp=option(False, True), in_float32=option(True, False), accumulate="inputs",
    reference=linear_reference, unreached=ONE, differentiable=dict(loss=tensor()), **OPTIONS,
)  # fmt: skip
def fla_fused_linear_cross_entropy(x, weight, bias, labels, smoothing, scale, cap, chunks, reduction, warp, in_float32):
    """A linear layer and cross entropy, whose gradients are made in the forward."""
    one_dtype(x, weight, bias)
    function = found("modules.fused_linear_cross_entropy.ops:fused_linear_cross_entropy_loss")
    loss = function(
        x, labels, weight, bias, label_smoothing=smoothing, logit_scale=scale, logit_softcapping=cap, num_chunks=chunks,
        reduction=reduction, use_l2warp=warp, accumulate_grad_in_fp32=in_float32,
    )  # fmt: skip
    return dict(loss=loss)


def log_probabilities(logits):
    log_sum, shifted, _ = log_sums(logits)
    return shifted - log_sum.unsqueeze(-1)


def kl_reference(x, other, weight, matrix, in_float32):
    mine, its = log_probabilities(x @ weight.T), log_probabilities(other.detach() @ matrix.detach().T)
    return dict(loss=(its.exp() * (its - mine)).sum() / len(x))


@flash(
    x=tensor(M, W), other=tensor(M, W), weight=tensor(V, W), matrix=tensor(V, W), in_float32=option(True, False),
    accumulate="inputs", reference=kl_reference, differentiable=dict(loss=tensor()), timeout=120.0,
)  # fmt: skip
def fla_fused_kl_div(x, other, weight, matrix, in_float32):
    """Two linear layers, and the Kullback-Leibler divergence of their softmaxes."""
    one_dtype(x, other, weight, matrix)
    function = found("modules.fused_kl_div.ops:fused_kl_div_loss")
    return dict(loss=function(x, other.detach(), weight, matrix.detach(), accumulate_grad_in_fp32=in_float32))


B, L = size("B", 1, 4), size("L", 1, 16)


def warp_reference(logits):
    return dict(loss=Warped.apply(logits.flatten(0, 1).sum() * 0.0, logits.flatten(0, 1)))


@flash(
    logits=tensor(B, L, V), accumulate="inputs", reference=warp_reference, differentiable=dict(loss=tensor()),
    imports=("fla.modules.l2warp",),
)  # fmt: skip
def fla_l2_warp(logits):
    """A loss with a gradient beside its own, that of the largest logits."""
    return dict(loss=found("modules.l2warp:l2_warp")(logits.detach().new_zeros(()), logits, 1e-4))
