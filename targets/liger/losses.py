"""Losses of liger-kernel. Interesting: vocabularies beside a block, every reduction with cotangents of its own."""

import torch
from _liger import CHOICE, DEVICE, UNREACHED, applied, layer, liger, one_dtype, permits

from fuzz import indices, option, size, tensor

N, V, H = size("N", 1, 256), size("V", 1, 40000), size("H", 1, 1024)
REDUCTIONS = option("mean", "sum", "none")


def moderate(weight):
    """Class weights from 1/4 to 4, by no arithmetic that rounds."""
    return None if weight is None else weight.detach().abs().clamp(0.25, 4.0)


def log_sums(logits):
    """The logarithm of the sum of exponentials of each row below its largest, the rows below that, and the largest."""
    # The result does not depend on it, and its own gradient is 0.
    top = logits.amax(-1).detach()
    shifted = logits - top.unsqueeze(-1)
    return shifted.exp().sum(-1).log(), shifted, top


def capped(logits, softcap):
    """Logits below a softcap, or themselves where it is 0."""
    return softcap * torch.tanh(logits / softcap) if softcap else logits


def row_losses(logits, labels, class_weight, ignored, reduction, label_smoothing, lse_square_scale, softcap):
    """Cross entropy of each row, divided by the count or the weights where the reduction is a mean, and its z-loss."""
    kept = labels != ignored
    logits = capped(logits, softcap)
    log_sum, shifted, _ = log_sums(logits)
    chosen = torch.where(kept, labels, 0).long()
    weight = torch.ones_like(logits[0]).detach() if class_weight is None else moderate(class_weight)
    surprise = log_sum.unsqueeze(-1) - shifted
    hit = surprise.gather(1, chosen.unsqueeze(1)).squeeze(1) * weight[chosen]
    losses = (1 - label_smoothing) * hit
    if label_smoothing:
        losses = losses + label_smoothing / logits.shape[-1] * (surprise * weight).sum(-1)
    if reduction == "mean":
        losses = losses / torch.where(kept, weight[chosen], 0.0).sum()
    # By sums of its own: added to the gradients of the other sums, which cancel, its small gradient would be lost.
    log_sum, _, top = log_sums(logits)
    penalty = lse_square_scale * (log_sum + top).square()
    penalty = penalty / kept.sum() if reduction == "mean" else penalty
    losses = losses + penalty if lse_square_scale else losses
    return torch.where(kept, losses, 0.0), torch.where(kept, penalty, 0.0).detach()


def named(losses, reduction, **extras):
    """Losses and other values of rows by name: themselves, or the sums of those of floating point."""
    if reduction == "none":
        return dict(losses=losses, **{f"row_{name}": value for name, value in extras.items()})
    return dict(loss=losses.sum(), **{name: value.sum() for name, value in extras.items()})


def cross_entropy_reference(logits, labels, ignored, reduction, softcap, extras, **options):
    losses, penalty = row_losses(logits, labels, ignored=ignored, reduction=reduction, softcap=softcap, **options)
    if not extras:
        return named(losses, reduction)
    best = torch.where(labels != ignored, capped(logits.detach().amax(-1), softcap), 0.0)
    return named(losses, reduction, penalty=penalty) | dict(best=best)


LOSSES_UNREACHED = UNREACHED | {
    "*weight.stride(-1) != 1*": "class weights are bounded first, which copies them",
    "*accuracy == *": "it is right in all releases",
    **dict.fromkeys(
        ("*_requires_grad*", "*grad_weight is not None*"), "the oracle `autograd` does, which is not run here"
    ),
    **dict.fromkeys(("*logits_storage*", "*use_mm_out*"), DEVICE),
    **dict.fromkeys(("*ce_impl*", "*ce_mode*"), CHOICE),
    "*isinstance(chunk_mem_const, bool)*": "no such numbers are drawn",
}
OPTIONS = dict(
    labels=indices(N, below=V, sentinel="ignored", dtypes=("int64",)), ignored=option(-100, 0, -1),
    class_weight=tensor(V, dtypes=("float32", "bfloat16", "float16")) | None, reduction=REDUCTIONS,
    label_smoothing=option(0.0, 0.1), lse_square_scale=option(0.0, 1e-4, 0.1), softcap=option(0.0, 30.0, 2.0),
    extras=option(False, True), accumulate="inputs", rows=dict(losses=N), timeout=120.0,
    differentiable=dict(loss=tensor(), losses=tensor(N)), unreached=LOSSES_UNREACHED,
)  # fmt: skip


def some_counted(labels, ignored):
    """ValueError where the mean is of nothing."""
    if not bool((labels != ignored).any()):
        raise ValueError("every label is ignored: the mean is of nothing")


MORE = ("return_z_loss", "return_token_accuracy", "return_predicted_tokens")


def best_logits(logits, labels, ignored, reduction, softcap, accuracy, predicted):
    """The logits of the predicted tokens below the softcap, at which many are equal: such ties may go any way.

    RuntimeError where the tokens have another accuracy.
    """
    kept = labels != ignored
    hits = (predicted == labels) & kept
    right = hits if reduction == "none" else hits.sum() / kept.sum()
    # A division by a number of the host is a product with its reciprocal on a GPU, so that three roundings meet.
    if not bool(((accuracy.double() - right.double()).abs() <= 3 * 2.0**-24 * right.double()).all()):
        raise RuntimeError(f"the accuracy is {accuracy}, that of the predicted tokens {hits}")
    best = logits.gather(1, torch.where(kept, predicted, 0).unsqueeze(1)).squeeze(1)
    return torch.where(kept, capped(best, softcap), 0.0)


def cross_entropy(logits, labels, class_weight, ignored, reduction, softcap, extras, **given):
    """The autograd function. Of the predicted token the logit is compared."""
    some_counted(labels, ignored)
    before = logits.detach().clone()
    value = applied(
        "cross_entropy:LigerCrossEntropyFunction", _input=logits, target=labels, weight=moderate(class_weight),
        reduction=reduction, softcap=softcap or None, ignore_index=ignored, **dict.fromkeys(MORE, extras), **given,
    )  # fmt: skip
    if not extras:
        return named(value[0] if isinstance(value, tuple) else value, reduction)
    losses, penalty, *tokens = value
    best = best_logits(before, labels, ignored, reduction, softcap, *tokens)
    return named(losses, reduction, penalty=penalty) | dict(best=best)


@liger(logits=tensor(N, V, overlapping=True), in_place=("logits",), reference=cross_entropy_reference, **OPTIONS)
def liger_cross_entropy(logits, **options):
    """Cross entropy, which may put the gradient in the logits' place."""
    return cross_entropy(logits, **options)


@liger(logits=tensor(N, V), reference=cross_entropy_reference, **OPTIONS)
def liger_cross_entropy_kept(logits, **options):
    """Cross entropy of logits that the caller needs afterwards."""
    return cross_entropy(logits, **options)


@liger(
    logits=tensor(N, V, overlapping=True), in_place=("logits",), reference=cross_entropy_reference,
    **OPTIONS,
)  # fmt: skip
def liger_cross_entropy_module(logits, labels, class_weight, ignored, reduction, softcap, extras, **settings):
    """The module of cross entropy, whose implementation is chosen for the device."""
    some_counted(labels, ignored)
    before, more = logits.detach().clone(), dict.fromkeys(MORE, True) if extras else {}
    value = layer(
        "cross_entropy:LigerCrossEntropyLoss", {}, logits, labels, weight=moderate(class_weight), ignore_index=ignored,
        reduction=reduction, softcap=softcap or None, **more, **settings,
    )  # fmt: skip
    if not extras:
        return named(value, reduction)
    tokens = value.token_accuracy, value.predicted_tokens
    best = best_logits(before, labels, ignored, reduction, softcap, *tokens)
    return named(value.loss, reduction, penalty=value.z_loss) | dict(best=best)


def linear_cross_entropy_reference(
    x, weight, bias, labels, ignored, reduction, softcap, scaled, accumulator, chunk, extras, tokens, **options
):  # fmt: skip
    logits = x @ weight.T if bias is None else x @ weight.T + bias
    losses, penalty = row_losses(logits, labels, ignored=ignored, reduction=reduction, softcap=softcap, **options)
    if scaled:
        log_sum, shifted, _ = log_sums(capped(logits.detach(), softcap))
        chosen = torch.where(labels != ignored, labels, 0).long().unsqueeze(1)
        likely = (shifted.gather(1, chosen).squeeze(1) - log_sum).exp()
        losses, penalty = losses * likely, penalty * likely
    named_losses = named(losses, reduction, **(dict(penalty=penalty) if extras else {}))
    best = torch.where(labels != ignored, capped(logits.detach().amax(-1), softcap), 0.0)
    return named_losses | (dict(best=best) if tokens else {})


@liger(
    x=tensor(N, H), weight=tensor(V, H), bias=tensor(V) | None, scaled=option(False, True),
    accumulator=option(None, "float32"), chunk=option(1, 4), tokens=option(False, True),
    reference=linear_cross_entropy_reference, **OPTIONS,
)  # fmt: skip
def liger_fused_linear_cross_entropy(
    x, weight, bias, labels, ignored, class_weight, reduction, softcap, scaled, accumulator, chunk, extras, tokens, **given
):  # fmt: skip
    """A linear layer and cross entropy, whose gradients are made in the forward."""
    one_dtype(x, weight, bias)
    some_counted(labels, ignored)
    permits("fused_linear_cross_entropy:LigerFusedLinearCrossEntropyLoss", reduction=reduction)
    value = applied(
        "fused_linear_cross_entropy:LigerFusedLinearCrossEntropyFunction", _input=x, weight=weight, target=labels,
        bias=bias, ce_weight=moderate(class_weight), ignore_index=ignored, reduction=reduction, softcap=softcap or None,
        return_z_loss=extras, accum_dtype=accumulator and getattr(torch, accumulator), use_token_scaling=scaled,
        chunk_mem_const=chunk, **dict.fromkeys(MORE[1:], tokens), **given,
    )  # fmt: skip
    losses = value[0] if isinstance(value, tuple) else value
    named_losses = named(losses, reduction, **(dict(penalty=value[1]) if extras else {}))
    if not tokens:
        return named_losses
    with torch.no_grad():
        logits = x @ weight.T if bias is None else x @ weight.T + bias
    return named_losses | dict(best=best_logits(logits, labels, ignored, reduction, softcap, *value[2:]))


S, B = size("S", 1, 16), size("B", 1, 16)


def parallel_reference(logits, labels, label_smoothing, formula, scope):
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
    scope=option("global", "partition"),
    timeout=120.0,
    unreached=UNREACHED
    | {
        "*tp_distributed*": "one process",
        "*tp_group*": "one process",
        "*ignore_index is not*": "the kernel takes no None",
    },
    reference=parallel_reference,
    differentiable=dict(losses=tensor(S, B)),
)
def liger_vocab_parallel_cross_entropy(logits, labels, label_smoothing, formula, scope):
    """Cross entropy of a vocabulary that may be split among processes, here of one process."""
    if formula == "megatron" and label_smoothing and logits.shape[-1] == 1:
        raise ValueError("a vocabulary of one has no others to smooth over")
    losses = applied(
        "vocab_parallel_cross_entropy:LigerVocabParallelCEFunction",
        vocab_parallel_logits=logits, target=labels, tp_group=None, ignore_index=-100, label_smoothing=label_smoothing,
        label_smoothing_formula=formula, label_smoothing_mode=scope,
    )  # fmt: skip
    return dict(losses=losses)
