"""Distances of distributions of liger-kernel. Interesting: ties, zeros, more columns than a block, every reduction."""

import torch
from _liger import applied, beyond, layer, liger, one_dtype

from fuzz import indices, option, size, tensor

N, V, H = size("N", 1, 256), size("V", 1, 40000), size("H", 1, 512)
LEAST = 1e-10
"""Below it kl_div takes a probability as this one in its logarithm."""
UNREDUCED = dict(loss=tensor(), losses=tensor(N, V))


def counted(labels, losses):
    """Which rows of losses count: those whose label is not ignored."""
    return losses.new_ones(len(losses), dtype=torch.bool) if labels is None else labels != -100


def reduced(losses, reduction, count):
    """Losses under the name of their reduction's output; `count` is what batchmean divides by."""
    if reduction == "none":
        return dict(losses=losses)
    total = losses.sum()
    return dict(loss=total if reduction == "sum" else total / (losses.numel() if reduction == "mean" else count))


def named(value, reduction):
    return dict(losses=value) if reduction == "none" else dict(loss=value)


def kl_div_reference(prediction, truth, reduction, log_target, eps, module):
    if log_target:
        logs = -truth.detach().abs()
        losses = logs.exp() * (logs - prediction)
    else:
        true = truth.detach().abs()
        losses = true * (true.clamp(min=eps).log() - prediction)
    return reduced(losses, reduction, len(prediction))


@liger(
    prediction=tensor(N, V),
    truth=tensor(N, V),
    reduction=option("batchmean", "mean", "sum", "none"),
    log_target=option(False, True),
    eps=option(LEAST, 1e-3),
    module=option(False, True),
    accumulate="inputs",
    reference=kl_div_reference,
    differentiable=UNREDUCED,
)
def liger_kl_div(prediction, truth, reduction, log_target, eps, module):
    """Kullback-Leibler divergence; the truth's magnitudes are probabilities, or minus their logarithms."""
    one_dtype(prediction, truth)
    truth = truth.detach().abs()
    truth = -truth if log_target else truth
    settings = dict(reduction=reduction, log_target=log_target, eps=eps)
    if module:
        return named(layer("kl_div:LigerKLDIVLoss", {}, prediction, truth, **settings), reduction)
    if eps == LEAST:
        del settings["eps"]
    value = applied("kl_div:LigerKLDivLossFunction", y_pred=prediction, y_true=truth, **settings)
    return named(value, reduction)


class Half(torch.autograd.Function):
    """Half the distance of two tensors, whose gradient is 0 where they are equal; autograd's is that of abs, too."""

    @staticmethod
    def forward(ctx, p, q):
        ctx.save_for_backward((p - q).sign())
        return 0.5 * (p - q).abs()

    @staticmethod
    def backward(ctx, grad):
        return 0.5 * grad * ctx.saved_tensors[0], None


def tvd_reference(p, q, labels, reduction, module):
    kept = counted(labels, p)
    losses = torch.where(kept.unsqueeze(-1), Half.apply(p, q.detach()), 0.0)
    if reduction == "mean":
        return dict(loss=losses.sum() / (kept.sum() * p.shape[-1]))
    return reduced(losses, reduction, kept.sum())


@liger(
    p=tensor(N, V),
    q=tensor(N, V),
    labels=indices(N, below=V, sentinel=-100, dtypes=("int64",)) | None,
    reduction=option("batchmean", "mean", "sum", "none"),
    module=option(False, True),
    accumulate="inputs",
    reference=tvd_reference,
    differentiable=UNREDUCED,
)
def liger_tvd(p, q, labels, reduction, module):
    """Total variation distance; rows whose label is ignored do not count."""
    one_dtype(p, q)
    if labels is not None and not bool((labels != -100).any()):
        raise ValueError("every label is ignored: the mean is of nothing")
    if module:
        return named(layer("tvd:LigerTVDLoss", {}, p, q.detach(), labels, reduction=reduction), reduction)
    value = applied(
        "tvd:LigerTVDLossFunction",
        p=p, q=q.detach(), shift_labels=labels, reduction=reduction, ignore_index=-100,
    )  # fmt: skip
    return named(value, reduction)


def divergence(student, teacher, beta):
    """Generalised Jensen-Shannon divergence of log-probabilities, element by element; forward and reverse KL at its ends."""
    p, q = teacher, student
    if beta == 0.0:
        return p.exp() * (p - q)
    if beta == 1.0:
        return q.exp() * (q - p)
    top = torch.maximum(p, q).detach()
    mixed = top + (beta * (p - top).exp() + (1 - beta) * (q - top).exp()).log()
    return beta * p.exp() * (p - mixed) + (1 - beta) * q.exp() * (q - mixed)


def kept_mean(losses, labels):
    kept = counted(labels, losses)
    return dict(loss=torch.where(kept.unsqueeze(-1), losses, 0.0).sum() / kept.sum())


def jsd_reference(student, teacher, labels, beta, module):
    return kept_mean(divergence(-student.abs(), -teacher.detach().abs(), beta), labels)


@liger(
    student=tensor(N, V),
    teacher=tensor(N, V),
    labels=indices(N, below=V, sentinel=-100, dtypes=("int64",)) | None,
    beta=option(0.5, 0.0, 1.0, 0.1),
    module=option(False, True),
    accumulate="inputs",
    reference=jsd_reference,
    differentiable=dict(loss=tensor()),
)
def liger_jsd(student, teacher, labels, beta, module):
    """Generalised Jensen-Shannon divergence of log-probabilities, which are minus the magnitudes."""
    one_dtype(student, teacher)
    if labels is not None and not bool((labels != -100).any()):
        raise ValueError("every label is ignored: the mean is of nothing")
    if beta in (0.0, 1.0):
        beyond("jsd:LigerJSDFunction", "open interval (0, 1)")
    student, teacher = -student.abs(), -teacher.detach().abs()
    if module:
        return dict(loss=layer("jsd:LigerJSD", {}, student, teacher, labels, beta=beta))
    given = dict(shift_labels=labels, beta=beta, ignore_index=-100)
    return dict(loss=applied("jsd:LigerJSDFunction", _input=student, target=teacher, **given))


def linear_jsd_reference(x, weight, teacher, teacher_weight, labels, beta, temperature, accumulator):
    logits, truth = x @ weight.T / temperature, teacher.detach() @ teacher_weight.detach().T / temperature
    return kept_mean(divergence(logits.log_softmax(-1), truth.log_softmax(-1), beta), labels)


@liger(
    x=tensor(N, H),
    weight=tensor(V, H),
    teacher=tensor(N, H),
    teacher_weight=tensor(V, H),
    labels=indices(N, below=V, sentinel=-100, dtypes=("int64",)) | None,
    beta=option(0.5, 0.0, 1.0, 0.1),
    temperature=option(1.0, 2.0),
    accumulator=option(None, "float32"),
    accumulate="inputs",
    reference=linear_jsd_reference,
    differentiable=dict(loss=tensor()),
)
def liger_fused_linear_jsd(x, weight, teacher, teacher_weight, labels, beta, temperature, accumulator):
    """Linear layers of a student and a teacher, and their Jensen-Shannon divergence."""
    one_dtype(x, weight, teacher, teacher_weight)
    if labels is not None and not bool((labels != -100).any()):
        raise ValueError("every label is ignored: the mean is of nothing")
    if beta in (0.0, 1.0):
        beyond("fused_linear_jsd:LigerFusedLinearJSDFunction", "open interval (0, 1)")
    return dict(
        loss=applied(
            "fused_linear_jsd:LigerFusedLinearJSDFunction",
            student_input=x, student_weight=weight, teacher_input=teacher.detach(),
            teacher_weight=teacher_weight.detach(), shift_labels=labels, jsd_beta=beta,
            ignore_index=-100, temperature=temperature,
            accum_dtype=accumulator and getattr(torch, accumulator),
        )
    )  # fmt: skip


def ce_tvd_reference(student, teacher, labels):
    kept = labels != -100
    logs, chosen = student.log_softmax(-1), torch.where(kept, labels, 0).long()
    distance = Half.apply(logs.exp(), teacher.detach().softmax(-1)).sum(-1)
    hit = -logs.gather(1, chosen.unsqueeze(1)).squeeze(1)
    return dict(ce=torch.where(kept, hit, 0.0), tvd=torch.where(kept, distance, 0.0))


@liger(
    student=tensor(N, V),
    teacher=tensor(N, V),
    labels=indices(N, below=V, sentinel=-100, dtypes=("int64",)),
    batch=N,
    reference=ce_tvd_reference,
    differentiable=dict(ce=tensor(N), tvd=tensor(N)),
)
def liger_fused_ce_tvd(student, teacher, labels):
    """Cross entropy and total variation distance of logits in one pass."""
    one_dtype(student, teacher)
    place = "fused_ce_tvd:LigerFusedCETVDFunction"
    ce, tvd = applied(place, student_logits=student, teacher_logits=teacher.detach(), target=labels, ignore_index=-100)
    return dict(ce=ce, tvd=tvd)


def linear_kl_reference(x, weight, truth, labels, reduction, temperature, accumulator):
    logits = x @ weight.T / temperature
    shifted = logits - logits.amax(-1, keepdim=True).detach()
    true = truth.detach().abs()
    losses = true * (true.clamp(min=LEAST).log() - (shifted - shifted.exp().sum(-1, keepdim=True).log()))
    kept = counted(labels, x)
    total, count = torch.where(kept.unsqueeze(-1), losses, 0.0).sum(), kept.sum().clamp(min=1)
    return dict(
        loss=total if reduction == "sum" else total / (count * losses.shape[-1] if reduction == "mean" else count)
    )


@liger(
    x=tensor(N, H),
    weight=tensor(V, H),
    truth=tensor(N, V),
    labels=indices(N, below=V, sentinel=-100, dtypes=("int64",)) | None,
    reduction=option("batchmean", "mean", "sum"),
    temperature=option(1.0, 2.0),
    accumulator=option(None, "float32"),
    timeout=120.0,
    accumulate="inputs",
    reference=linear_kl_reference,
    differentiable=dict(loss=tensor()),
)
def liger_fused_linear_kl_div(x, weight, truth, labels, reduction, temperature, accumulator):
    """A linear layer, and the Kullback-Leibler divergence from the magnitudes of the truth, which are probabilities."""
    one_dtype(x, weight, truth)
    return dict(
        loss=applied(
            "fused_linear_kl_div:LigerFusedLinearKLDivFunction",
            student_input=x, student_weight=weight, target=truth.detach().abs(),
            shift_labels=labels, reduction=reduction, temperature=temperature,
            accum_dtype=accumulator and getattr(torch, accumulator),
        )
    )  # fmt: skip
