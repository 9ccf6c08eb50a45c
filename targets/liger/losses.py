"""Losses of liger-kernel. Interesting: vocabularies beside a block, every reduction with cotangents of its own."""

import torch
from _liger import applied, liger, one_dtype

from fuzz import indices, option, size, tensor

N, V, H = size("N", 1, 256), size("V", 1, 40000), size("H", 1, 1024)
REDUCTIONS = option("mean", "sum", "none")


def moderate(weight):
    """Class weights from 1/4 to 4, by no arithmetic that rounds."""
    return weight.detach().abs().clamp(0.25, 4.0)


def log_sums(logits):
    """The logarithm of the sum of exponentials of each row below its largest, the rows below that, and the largest."""
    # The result does not depend on it, and its own gradient is 0.
    top = logits.amax(-1).detach()
    shifted = logits - top.unsqueeze(-1)
    return shifted.exp().sum(-1).log(), shifted, top


def row_losses(logits, labels, class_weight, weighted, reduction, label_smoothing, lse_square_scale, softcap):
    """Cross entropy of each row, divided by the count or the weights where the reduction is a mean."""
    kept = labels != -100
    capped = softcap * torch.tanh(logits / softcap) if softcap else logits
    log_sum, shifted, _ = log_sums(capped)
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
        # By sums of its own: added to the gradients of the other sums, which cancel, its small gradient would be lost.
        log_sum, _, top = log_sums(capped)
        penalty = lse_square_scale * (log_sum + top).square()
        losses = losses + (penalty / kept.sum() if reduction == "mean" else penalty)
    return torch.where(kept, losses, 0.0)


def cross_entropy_reference(logits, reduction, **options):
    losses = row_losses(logits, reduction=reduction, **options)
    return dict(losses=losses) if reduction == "none" else dict(loss=losses.sum())


OPTIONS = dict(
    labels=indices(N, below=V, sentinel=-100, dtypes=("int64",)),
    class_weight=tensor(V, dtypes=("float32",)),
    weighted=option(False, True),
    reduction=REDUCTIONS,
    label_smoothing=option(0.0, 0.1),
    lse_square_scale=option(0.0, 1e-4, 0.1),
    softcap=option(0.0, 30.0, 2.0),
    accumulate="inputs",
    rows=dict(losses=N),
    timeout=120.0,
    differentiable=dict(loss=tensor(), losses=tensor(N)),
)


def cross_entropy(place, labels, class_weight, weighted, reduction, softcap, **given):
    """The first value of an autograd function of cross entropy, under the name of its reduction's output."""
    if not bool((labels != -100).any()):
        raise ValueError("every label is ignored: the mean is of nothing")
    weight = moderate(class_weight) if weighted else None
    key = "ce_weight" if "linear" in place else "weight"
    value = applied(place, target=labels, reduction=reduction, softcap=softcap or None, **{key: weight}, **given)
    value = value[0] if isinstance(value, tuple) else value
    return dict(losses=value) if reduction == "none" else dict(loss=value)


@liger(logits=tensor(N, V), in_place=("logits",), reference=cross_entropy_reference, **OPTIONS)
def liger_cross_entropy(logits, **options):
    """Cross entropy, which may put the gradient in the logits' place."""
    return cross_entropy("cross_entropy:LigerCrossEntropyFunction", _input=logits, **options)


@liger(logits=tensor(N, V), reference=cross_entropy_reference, **OPTIONS)
def liger_cross_entropy_kept(logits, **options):
    """Cross entropy of logits that the caller needs afterwards."""
    return cross_entropy("cross_entropy:LigerCrossEntropyFunction", _input=logits, **options)


def linear_cross_entropy_reference(x, weight, bias, biased, **options):
    return cross_entropy_reference(x @ weight.T + bias if biased else x @ weight.T, **options)


@liger(
    x=tensor(N, H),
    weight=tensor(V, H),
    bias=tensor(V),
    biased=option(False, True),
    reference=linear_cross_entropy_reference,
    **OPTIONS,
)
def liger_fused_linear_cross_entropy(x, weight, bias, biased, **options):
    """A linear layer and cross entropy, whose gradients are made in the forward."""
    one_dtype(x, weight, bias)
    place = "fused_linear_cross_entropy:LigerFusedLinearCrossEntropyFunction"
    return cross_entropy(place, _input=x, bias=bias if biased else None, **{"weight": weight, **options})


S, B = size("S", 1, 16), size("B", 1, 16)


def parallel_reference(logits, labels, label_smoothing, formula):
    vocabulary, kept = logits.shape[-1], labels != -100
    shifted = logits - logits.amax(-1, keepdim=True).detach()
    surprise = shifted.exp().sum(-1, keepdim=True).log() - shifted
    losses = surprise.gather(-1, torch.where(kept, labels, 0).long().unsqueeze(-1)).squeeze(-1)
    if label_smoothing:
        part = label_smoothing * (vocabulary / (vocabulary - 1) if formula == "megatron" else 1.0)
        losses = (1 - part) * losses + part * surprise.mean(-1)
    return dict(losses=torch.where(kept, losses, 0.0))


@liger(
    logits=tensor(S, B, V),
    labels=indices(S, B, below=V, sentinel=-100, dtypes=("int64",)),
    label_smoothing=option(0.0, 0.1),
    formula=option("pytorch", "megatron"),
    timeout=120.0,
    reference=parallel_reference,
    differentiable=dict(losses=tensor(S, B)),
)
def liger_vocab_parallel_cross_entropy(logits, labels, label_smoothing, formula):
    """Cross entropy of a vocabulary that may be split among processes, here of one process."""
    if formula == "megatron" and label_smoothing and logits.shape[-1] == 1:
        raise ValueError("a vocabulary of one has no others to smooth over")
    losses = applied(
        "vocab_parallel_cross_entropy:LigerVocabParallelCEFunction",
        vocab_parallel_logits=logits, target=labels, tp_group=None, ignore_index=-100, label_smoothing=label_smoothing,
        label_smoothing_formula=formula, label_smoothing_mode="global",
    )  # fmt: skip
    return dict(losses=losses)
