"""Policy losses of liger-kernel. Interesting: masks and ids with strides of their own, pairs of options."""

import torch
from _liger import applied, found, liger

from fuzz import indices, option, size, tensor

B, L, V = size("B", 1, 8), size("L", 1, 16), size("V", 1, 6000)
MORE, OVER = size("MORE", 0, 3), size("OVER", 0, 3)


def log_probabilities(logits, ids, temperature):
    """Of each id under the logits before it, (B, L)."""
    scaled = logits[:, :-1] / temperature
    top = scaled.amax(-1, keepdim=True).detach()
    shifted = scaled - top
    return shifted.gather(-1, ids.long().unsqueeze(-1)).squeeze(-1) - shifted.exp().sum(-1).log()


def selective_reference(logits, ids, mask, temperature):
    length = logits.shape[1] - 1
    logs = log_probabilities(logits, ids[:, -length:], temperature)
    return dict(logs=logs if mask is None else torch.where(mask[:, -length:] != 0, logs, 0.0))


@liger(
    logits=tensor(B, L + 1, V),
    ids=indices(B, L + MORE, below=V, dtypes=("int64",)),
    mask=indices(B, L + OVER, below=2, dtypes=("int64",)) | None,
    temperature=option(1.0, 0.9),
    batch=B,
    dims=(L, MORE, OVER),
    reference=selective_reference,
)
def liger_selective_log_softmax(logits, ids, mask, temperature):
    """Log-probabilities of the last ids; the logits must be contiguous."""
    function = found("grpo_loss:fused_selective_log_softmax")
    return dict(logs=function(logits.contiguous(), ids, temperature, mask))


FAR = 300.0
"""A difference of log-probabilities whose exponential is infinite in float32, and far from that in float64."""


def gain(ratio, advantages, kind, low, high, delta, slopes):
    """What one token gains, by the ratio of policies."""
    if kind == "cispo":
        return torch.minimum(ratio, torch.full_like(ratio, high)).detach() * advantages
    if kind == "sapo":
        slope = torch.where(advantages > 0, slopes[0], slopes[1])
        return (slope * (ratio - 1)).sigmoid() * 4.0 / slope * advantages
    bounded = torch.minimum(ratio, torch.full_like(ratio, delta)) if delta else ratio
    return torch.minimum(bounded * advantages, ratio.clamp(1 - low, 1 + high) * advantages)


def normed(advantages):
    """Advantages from -1024 to 1024, by no arithmetic that rounds: they are rewards over their group's deviation."""
    return advantages.detach().clamp(-1024.0, 1024.0)


def grpo_reference(
    logits, old, ref, ids, advantages, mask, importance, phi, kind, level, beta, delta, slope, slope_below, bias_corrected,
    temperature, inplace, reduce, longest, items,
):  # fmt: skip
    logs = log_probabilities(logits, ids, temperature)
    kept = torch.ones_like(logs).detach() if mask is None else mask.to(logits.dtype)
    # What is masked must not overflow on its way: the gradient of a selection is 0 times what comes after it.
    logs = torch.where(kept != 0, logs, 0.0)
    count = kept.sum(-1).clamp(min=1.0)
    before = logs.detach() if old is None else bounded(old)
    ratio = logs - before
    if level == "sequence":
        ratio = (torch.where(kept != 0, ratio, 0.0).sum(-1) / count).unsqueeze(-1).expand_as(logs)
    ratio = ratio.exp()
    weights = normed(advantages).unsqueeze(-1)
    if kind == "vespo":
        losses = -weighed(phi).reshape(-1, 1) * weights * logs
    else:
        gained = gain(ratio, weights, kind, 0.2, 0.4, delta, (slope, slope_below))
        losses = -gained * logs if kind == "cispo" else -gained
    if importance is not None and kind != "vespo":
        losses = losses * weighed(importance).reshape(len(logs), -1)
    if beta:
        gap = bounded(ref) - logs
        # From 709 on float64 has no exponential; far below, float32 has none.
        near = gap - (gap - FAR).clamp(min=0.0).detach()
        distance = near.expm1() - near
        if bias_corrected:
            distance = distance * ratio
            if level == "token":
                far = (bounded(ref) - before).exp() - (1 + gap) * ratio
                distance = torch.where(gap > FAR, far, distance)
        losses = losses + beta * distance
    losses = torch.where(kept != 0, losses, 0.0)
    if not reduce:
        return dict(losses=losses)
    if kind in ("grpo", "sapo"):
        return dict(loss=(losses.sum(-1) / count).mean())
    if kind == "luspo":
        return dict(loss=(losses * kept.sum(-1, keepdim=True)).mean())
    if kind == "dr_grpo":
        return dict(loss=losses.sum() / (len(losses) * (longest or losses.shape[1])))
    return dict(loss=losses.sum() / (items if items and kind != "bnpo" else kept.sum().clamp(min=1.0)))


def weighed(importance):
    """Ratios of importance from 1/4 to 4, by no arithmetic that rounds."""
    return importance.detach().abs().clamp(0.25, 4.0)


def bounded(logs):
    """Log-probabilities from -8 to 0, by no arithmetic that rounds."""
    return -logs.detach().abs().clamp(max=8.0)


@liger(
    logits=tensor(B, L + 1, V), old=tensor(B, L, dtypes=("float32",)) | None, ref=tensor(B, L, dtypes=("float32",)),
    ids=indices(B, L, below=V, dtypes=("int64",)), advantages=tensor(B, dtypes=("float32",)),
    mask=indices(B, L, below=2, dtypes=("int64",)) | None,
    importance=tensor(B, L | 1, dtypes=("float32",)) | tensor(B, dtypes=("float32",)) | None,
    phi=tensor(B, 1, dtypes=("float32",)) | tensor(B, dtypes=("float32",)) | None,
    kind=option("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo"),
    level=option("token", "sequence"), beta=option(0.0, 0.04, 0.5), delta=option(0.0, 1.5), slope=option(1.0, 2.0),
    slope_below=option(1.05, 0.5), bias_corrected=option(False, True), temperature=option(1.0, 0.9),
    inplace=option(False, True), reduce=option(True, False), longest=option(None, 32), items=option(None, 7),
    in_place={"logits": "inplace"}, accumulate="inputs", reference=grpo_reference, differentiable=dict(loss=tensor(), losses=tensor(B, L)),
)  # fmt: skip
def liger_grpo_loss(
    logits, old, ref, ids, advantages, mask, importance, phi, kind, level, beta, delta, slope, slope_below, bias_corrected,
    temperature, inplace, reduce, longest, items,
):  # fmt: skip
    """Clipped policy loss with its penalty; its tensors must be contiguous."""
    value = applied(
        "grpo_loss:GrpoLossFunction",
        logits=logits.contiguous(), old_logp=None if old is None else bounded(old).contiguous(),
        ref_logp=bounded(ref).contiguous(), completion_ids=ids.contiguous(),
        advantages=normed(advantages).contiguous(), completion_mask=None if mask is None else mask.contiguous(),
        temperature=temperature, beta=beta, eps_low=0.2, eps_high=0.4, inplace=inplace, loss_type=kind, reduce=reduce,
        max_completion_length=longest, importance_sampling_level=level, delta=delta or None,
        vllm_is_ratio=None if importance is None else weighed(importance), use_bias_correction_kl=bias_corrected,
        num_items_in_batch=items, sapo_temperature_pos=slope, sapo_temperature_neg=slope_below,
        **(dict(phi_seq=None if phi is None else weighed(phi)) if kind == "vespo" else {}),
    )[0]  # fmt: skip
    return dict(loss=value) if reduce else dict(losses=value)
