"""Losses of liger-kernel."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from liger_kernel.ops.grpo_loss import GrpoLossFunction

from benchmarks.libraries.liger import operation, ops
from benchmarks.libraries.operations import Check, Draw, check


def tokens(draw: Draw) -> tuple[int, int]:
    return draw.pick((5, 48), (9, 200))


@operation
def cross_entropy(draw: Draw) -> Check:
    m, n = tokens(draw)
    target = draw.index(n, m)
    target[1] = -100
    return check(
        lambda x: ops.LigerCrossEntropyFunction.apply(x, target, None)[0],
        lambda x: F.cross_entropy(x, target),
        draw.leaf(m, n),
    )


@operation
def cross_entropy_smoothed(draw: Draw) -> Check:
    """Weights, label smoothing, a softcap and no reduction."""
    m, n = tokens(draw)
    target, weight = draw.index(n, m), draw.fixed(n, dtype=torch.float32).abs()
    options = {"reduction": "none", "label_smoothing": 0.1}
    return check(
        lambda x: ops.LigerCrossEntropyFunction.apply(x, target, weight, -100, 0.0, 0.1, "none", 20.0)[0],
        lambda x: F.cross_entropy(20 * torch.tanh(x / 20), target, weight.double(), **options),
        draw.leaf(m, n),
    )


@operation
def vocab_parallel_cross_entropy(draw: Draw) -> Check:
    m, n = tokens(draw)
    target = draw.index(n, m, 2)
    return check(
        lambda x: ops.LigerVocabParallelCEFunction.apply(x, target, None, -100, 0.1, "pytorch", "global"),
        lambda x: F.cross_entropy(x.movedim(-1, 1), target, reduction="none", label_smoothing=0.1),
        draw.leaf(m, 2, n),
    )


@operation
def fused_linear_cross_entropy(draw: Draw) -> Check:
    """Twice the loss, so that the backward has something to multiply by."""
    m, n = tokens(draw)
    target = draw.index(n, m)
    return check(
        lambda x, w, b: 2 * ops.LigerFusedLinearCrossEntropyFunction.apply(x, w, target, b)[0],
        lambda x, w, b: 2 * F.cross_entropy(F.linear(x, w, b), target),
        draw.leaf(m, 32), draw.leaf(n, 32, scale=0.3), draw.leaf(n),
    )  # fmt: skip


def divergence(student: torch.Tensor, teacher: torch.Tensor, beta: float) -> torch.Tensor:
    """Generalised Jensen-Shannon divergence of log-probabilities, the mean over rows."""
    mixed = (beta * teacher.exp() + (1 - beta) * student.exp()).log()
    parts = [share * (logs.exp() * (logs - mixed)).sum() for share, logs in ((beta, teacher), (1 - beta, student))]
    return sum(parts) / student.shape[0]


@operation
def jsd(draw: Draw) -> Check:
    m, n = tokens(draw)
    teacher = draw.fixed(m, n).float().log_softmax(-1).to(draw.dtype)
    return check(
        lambda x: ops.LigerJSDFunction.apply(x, teacher, None, 0.3),
        lambda x: divergence(x, teacher.double(), 0.3),
        draw.leaf_of(draw.fixed(m, n).float().log_softmax(-1)),
    )


@operation
def fused_linear_jsd(draw: Draw) -> Check:
    m, n = tokens(draw)
    teacher, teacher_weight = draw.fixed(m, 16), draw.fixed(n, 16, scale=0.3)
    log_teacher = (teacher.double() @ teacher_weight.double().T).log_softmax(-1)
    return check(
        lambda x, w: ops.LigerFusedLinearJSDFunction.apply(x, w, teacher, teacher_weight),
        lambda x, w: divergence((x @ w.T).log_softmax(-1), log_teacher, 0.5),
        draw.leaf(m, 32), draw.leaf(n, 32, scale=0.3),
    )  # fmt: skip


@operation
def kl_div(draw: Draw) -> Check:
    m, n = tokens(draw)
    target = draw.fixed(m, n).float().softmax(-1).to(draw.dtype)
    return check(
        lambda x: ops.LigerKLDivLossFunction.apply(x, target),
        lambda x: F.kl_div(x, target.double(), reduction="batchmean"),
        draw.leaf_of(draw.fixed(m, n).float().log_softmax(-1)),
    )


@operation
def fused_linear_kl_div(draw: Draw) -> Check:
    m, n = tokens(draw)
    target = draw.fixed(m, n).float().softmax(-1).to(draw.dtype)
    return check(
        lambda x, w: ops.LigerFusedLinearKLDivFunction.apply(x, w, target),
        lambda x, w: F.kl_div((x @ w.T).log_softmax(-1), target.double(), reduction="batchmean"),
        draw.leaf(m, 32), draw.leaf(n, 32, scale=0.3),
    )  # fmt: skip


@operation
def tvd(draw: Draw) -> Check:
    m, n = tokens(draw)
    other = draw.fixed(m, n).float().softmax(-1).to(draw.dtype)
    return check(
        lambda p: ops.LigerTVDLossFunction.apply(p, other),
        lambda p: 0.5 * (p - other.double()).abs().sum() / m,
        draw.leaf_of(draw.fixed(m, n).float().softmax(-1)),
    )


@operation
def fused_ce_tvd(draw: Draw) -> Check:
    m, n = tokens(draw)
    teacher, target = draw.fixed(m, n), draw.index(n, m)

    def reference(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        distance = 0.5 * (x.softmax(-1) - teacher.double().softmax(-1)).abs().sum(-1)
        return F.cross_entropy(x, target, reduction="none"), distance

    return check(lambda x: ops.LigerFusedCETVDFunction.apply(x, teacher, target), reference, draw.leaf(m, n))


@operation
def grpo_loss(draw: Draw) -> Check:
    return policy_loss(draw, "token")


@operation
def grpo_loss_sequence(draw: Draw) -> Check:
    return policy_loss(draw, "sequence")


def policy_loss(draw: Draw, level: str) -> Check:
    """Clipped policy gradient with a KL penalty, one loss a token (Shao et al., 2024)."""
    length, n = tokens(draw)
    ids, advantages = draw.index(n, 2, length), draw.fixed(2, dtype=torch.float32)
    old, ref = (draw.fixed(2, length, scale=0.1, dtype=torch.float32) - 4 for _ in range(2))
    temperature, beta, low, high = 0.9, 0.04, 0.2, 0.4

    def reference(logits: torch.Tensor) -> torch.Tensor:
        logs = (logits[:, :-1] / temperature).log_softmax(-1).gather(-1, ids.unsqueeze(-1)).squeeze(-1)
        ratio = logs - old.double()
        ratio = (ratio.mean(-1, keepdim=True).expand_as(ratio) if level == "sequence" else ratio).exp()
        gain = advantages.double().unsqueeze(-1)
        clipped = torch.minimum(ratio * gain, ratio.clamp(1 - low, 1 + high) * gain)
        gap = ref.double() - logs
        return -clipped + beta * (gap.exp() - gap - 1)

    fixed = (old, ref, ids, advantages, None, temperature, beta, low, high, False, "grpo", None, False, level)
    run = lambda logits: GrpoLossFunction.apply(logits, *fixed)[0]  # noqa: E731
    return check(run, reference, draw.leaf(2, length + 1, n))
