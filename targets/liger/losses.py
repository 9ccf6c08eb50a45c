"""Losses of liger-kernel. Interesting: vocabularies beside a block, every reduction with cotangents of its own."""

import torch
from _liger import applied, liger

from fuzz import indices, option, size, tensor

N, V = size("N", 1, 256), size("V", 1, 40000)
REDUCTIONS = option("mean", "sum", "none")


def reduced(losses, reduction, count):
    """The losses under the output's name for this reduction: ``losses`` for none, else ``loss``."""
    if reduction == "none":
        return dict(losses=losses)
    total = losses.sum()
    return dict(loss=total / count if reduction == "mean" else total)


def moderate(weight):
    """Class weights from 1/4 to 4, by no arithmetic that rounds."""
    return weight.detach().abs().clamp(0.25, 4.0)


def cross_entropy_reference(
    logits, labels, class_weight, weighted, reduction, label_smoothing, lse_square_scale, softcap
):  # fmt: skip
    kept = labels != -100
    capped = softcap * torch.tanh(logits / softcap) if softcap else logits
    # The result does not depend on it, and its own gradient is 0.
    top = capped.amax(-1).detach()
    shifted = capped - top.unsqueeze(-1)
    log_sum = shifted.exp().sum(-1).log()
    chosen = torch.where(kept, labels, 0).long()
    weight = moderate(class_weight) if weighted else torch.ones_like(logits[0]).detach()
    surprise = log_sum.unsqueeze(-1) - shifted
    hit = surprise.gather(1, chosen.unsqueeze(1)).squeeze(1) * weight[chosen]
    losses = (1 - label_smoothing) * hit
    if label_smoothing:
        losses = losses + label_smoothing / logits.shape[-1] * (surprise * weight).sum(-1)
    if reduction == "mean":
        losses = losses / torch.where(kept, weight[chosen], 0.0).sum()
    if lse_square_scale:
        penalty = lse_square_scale * (log_sum + top).square()
        losses = losses + (penalty / kept.sum() if reduction == "mean" else penalty)
    return reduced(torch.where(kept, losses, 0.0), reduction, 1)


CROSS_ENTROPY = dict(
    logits=tensor(N, V),
    labels=indices(N, below=V, sentinel=-100, dtypes=("int64",)),
    class_weight=tensor(V, dtypes=("float32",)),
    weighted=option(False, True),
    reduction=REDUCTIONS,
    label_smoothing=option(0.0, 0.1),
    lse_square_scale=option(0.0, 1e-4, 0.1),
    softcap=option(0.0, 30.0, 2.0),
    reference=cross_entropy_reference,
    differentiable=dict(loss=tensor(), losses=tensor(N)),
)


def cross_entropy(logits, labels, class_weight, weighted, reduction, label_smoothing, lse_square_scale, softcap):
    if not bool((labels != -100).any()):
        raise ValueError("every label is ignored: the mean is of nothing")
    value = applied(
        "cross_entropy:LigerCrossEntropyFunction",
        _input=logits, target=labels, weight=moderate(class_weight) if weighted else None,
        reduction=reduction, label_smoothing=label_smoothing, lse_square_scale=lse_square_scale,
        softcap=softcap or None,
    )  # fmt: skip
    value = value[0] if isinstance(value, tuple) else value
    return dict(losses=value) if reduction == "none" else dict(loss=value)


@liger(in_place=("logits",), accumulate="inputs", rows=dict(losses=N), **CROSS_ENTROPY)
def liger_cross_entropy(
    logits, labels, class_weight, weighted, reduction, label_smoothing, lse_square_scale, softcap
):  # fmt: skip
    """Cross entropy, which may put the gradient in the logits' place."""
    return cross_entropy(
        logits, labels, class_weight, weighted, reduction, label_smoothing, lse_square_scale, softcap
    )


@liger(accumulate="inputs", rows=dict(losses=N), **CROSS_ENTROPY)
def liger_cross_entropy_kept(
    logits, labels, class_weight, weighted, reduction, label_smoothing, lse_square_scale, softcap
):  # fmt: skip
    """Cross entropy of logits that the caller needs afterwards."""
    return cross_entropy(
        logits, labels, class_weight, weighted, reduction, label_smoothing, lse_square_scale, softcap
    )
