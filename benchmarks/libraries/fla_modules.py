"""Norms, activations, convolutions, rotary embeddings, sums and losses of fla-core."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from fla.modules import activations, causal_conv1d, fused_cross_entropy, fused_kl_div, fused_linear_cross_entropy
from fla.modules.norm import fused_norm_gate, l2norm, layernorm, layernorm_gated
from fla.modules.rotary.ops import rotary_embedding
from fla.modules.token_shift import token_shift
from fla.ops.utils import chunk_global_cumsum, chunk_local_cumsum, mean_pooling, softmax_fwd

from benchmarks.libraries.operations import Check, Draw, Registry, check

operation = Registry()
EPS = 1e-5


def rows(draw: Draw) -> tuple[int, int]:
    return draw.pick((3, 48), (5, 200))


def rms(x: torch.Tensor, eps: float = EPS) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


@operation
def layer_norm(draw: Draw) -> Check:
    m, n = rows(draw)
    return check(
        lambda x, w, b: layernorm.layer_norm(x, w, b, eps=EPS),
        lambda x, w, b: F.layer_norm(x, (n,), w, b, EPS),
        draw.leaf(2, m, n), draw.leaf(n), draw.leaf(n),
    )  # fmt: skip


@operation
def rms_norm_residual(draw: Draw) -> Check:
    m, n = rows(draw)
    return check(
        lambda x, w, r: layernorm.rms_norm(x, w, None, residual=r, eps=EPS, prenorm=True),
        lambda x, w, r: (rms(x + r) * w, x + r),
        draw.leaf(2, m, n), draw.leaf(n), draw.leaf(2, m, n),
    )  # fmt: skip


@operation
def group_norm(draw: Draw) -> Check:
    m, n = rows(draw)
    return check(
        lambda x, w, b: layernorm.group_norm(x, w, b, eps=EPS, num_groups=4),
        lambda x, w, b: F.group_norm(x.flatten(0, 1), 4, w, b, EPS).view_as(x),
        draw.leaf(2, m, n), draw.leaf(n), draw.leaf(n),
    )  # fmt: skip


@operation
def rms_norm_linear(draw: Draw) -> Check:
    m, n = rows(draw)
    return check(
        lambda x, w, linear: layernorm.rms_norm_linear(x, w, None, linear, None, eps=EPS),
        lambda x, w, linear: (rms(x) * w) @ linear.T,
        draw.leaf(2, m, n), draw.leaf(n), draw.leaf(16, n, scale=0.2),
    )  # fmt: skip


@operation
def l2_norm(draw: Draw) -> Check:
    reference = lambda x: x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)  # noqa: E731
    return check(l2norm.l2norm, reference, draw.leaf(2, *rows(draw)))


@operation
def rms_norm_gated(draw: Draw) -> Check:
    m, n = rows(draw)
    return check(
        lambda x, g, w: fused_norm_gate.rms_norm_gated(x, g, w, None, eps=EPS),
        lambda x, g, w: rms(x) * w * F.silu(g),
        draw.leaf(2, m, n), draw.leaf(2, m, n), draw.leaf(n),
    )  # fmt: skip


@operation
def layer_norm_gated(draw: Draw) -> Check:
    m, n = rows(draw)
    return check(
        lambda x, g, w, b: fused_norm_gate.layer_norm_gated(x, g, w, b, activation="sigmoid", eps=EPS),
        lambda x, g, w, b: F.layer_norm(x, (n,), w, b, EPS) * g.sigmoid(),
        draw.leaf(2, m, n), draw.leaf(2, m, n), draw.leaf(n), draw.leaf(n),
    )  # fmt: skip


@operation
def mamba_norm_gated(draw: Draw) -> Check:
    m, n = rows(draw)
    return check(
        lambda x, w, z: layernorm_gated.rmsnorm_fn(x, w, None, z, EPS, None, False),
        lambda x, w, z: rms(x * F.silu(z)) * w,
        draw.leaf(2, m, n), draw.leaf(n), draw.leaf(2, m, n),
    )  # fmt: skip


@operation
def sigmoid(draw: Draw) -> Check:
    return check(activations.sigmoid, torch.sigmoid, draw.leaf(*rows(draw)))


@operation
def logsigmoid(draw: Draw) -> Check:
    return check(lambda x: activations.logsigmoid(x, 2.0), lambda x: F.logsigmoid(x) / 2, draw.leaf(*rows(draw)))


@operation
def swish(draw: Draw) -> Check:
    return check(activations.swish, F.silu, draw.leaf(*rows(draw)))


@operation
def swiglu(draw: Draw) -> Check:
    x, y = draw.leaf(*rows(draw)), draw.leaf(*rows(draw))
    return check(activations.swiglu, lambda x, y: F.silu(x) * y, x, y)


@operation
def swiglu_linear(draw: Draw) -> Check:
    m, n = rows(draw)
    return check(
        lambda x, y, w: activations.swiglu_linear(x, y, w, None),
        lambda x, y, w: (F.silu(x) * y) @ w.T,
        draw.leaf(m, n), draw.leaf(m, n), draw.leaf(16, n, scale=0.2),
    )  # fmt: skip


@operation
def sigmoidglu(draw: Draw) -> Check:
    x, y = draw.leaf(*rows(draw)), draw.leaf(*rows(draw))
    return check(activations.sigmoidglu, lambda x, y: x.sigmoid() * y, x, y)


@operation
def causal_convolution(draw: Draw) -> Check:
    length, width = draw.pick((9, 24), (40, 64))

    def reference(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        padded = F.pad(x.transpose(1, 2), (3, 0))
        return F.silu(F.conv1d(padded, w.unsqueeze(1), b, groups=width)).transpose(1, 2)

    return check(
        lambda x, w, b: causal_conv1d.causal_conv1d(x, w, b, activation="silu")[0],
        reference,
        draw.leaf(2, length, width), draw.leaf(width, 4), draw.leaf(width),
    )  # fmt: skip


@operation
def rotary(draw: Draw) -> Check:
    length, head = draw.pick((5, 16), (9, 64))
    angle = draw.fixed(length, head // 2, dtype=torch.float32)
    cos, sin = angle.cos().to(draw.dtype), angle.sin().to(draw.dtype)

    def reference(x: torch.Tensor) -> torch.Tensor:
        left, right = x.chunk(2, -1)
        c, s = (turn.double().unsqueeze(1) for turn in (cos, sin))
        return torch.cat([left * c - right * s, right * c + left * s], -1)

    return check(lambda x: rotary_embedding(x, cos, sin), reference, draw.leaf(2, length, 3, head))


@operation
def shift(draw: Draw) -> Check:
    return check(token_shift, lambda x: F.pad(x, (0, 0, 1, 0))[:, :-1] - x, draw.leaf(2, *draw.pick((9, 24), (40, 64))))


def gates(draw: Draw, *shape: int) -> torch.Tensor:
    return draw.fixed(*shape)


@operation(backward=False)
def local_cumsum(draw: Draw) -> Check:
    length = draw.pick(32, 96)
    reference = lambda g: g.unflatten(1, (-1, 16)).cumsum(2).flatten(1, 2)  # noqa: E731
    return check(lambda g: chunk_local_cumsum(g, 16), reference, gates(draw, 2, length, 3))


@operation(backward=False)
def local_cumsum_of_vectors(draw: Draw) -> Check:
    length = draw.pick(32, 96)
    reference = lambda g: g.unflatten(1, (-1, 16)).flip(2).cumsum(2).flip(2).flatten(1, 2)  # noqa: E731
    return check(lambda g: chunk_local_cumsum(g, 16, reverse=True), reference, gates(draw, 2, length, 3, 24))


@operation(backward=False)
def global_cumsum(draw: Draw) -> Check:
    return check(chunk_global_cumsum, lambda g: g.cumsum(1), gates(draw, 2, draw.pick(20, 90), 3))


@operation(backward=False)
def global_cumsum_of_vectors(draw: Draw) -> Check:
    return check(chunk_global_cumsum, lambda g: g.cumsum(1), gates(draw, 2, draw.pick(20, 90), 3, 24))


@operation
def pooling(draw: Draw) -> Check:
    length = draw.pick(32, 96)
    reference = lambda x: x.unflatten(1, (-1, 16)).mean(2)  # noqa: E731
    return check(lambda x: mean_pooling(x, 16), reference, draw.leaf(2, length, 3, 24))


@operation(backward=False)
def softmax(draw: Draw) -> Check:
    return check(softmax_fwd, lambda x: x.softmax(-1), draw.fixed(*rows(draw)))


@operation
def cross_entropy(draw: Draw) -> Check:
    m, n = rows(draw)
    target = draw.index(n, m)
    return check(
        lambda x: fused_cross_entropy.cross_entropy_loss(x, target, label_smoothing=0.1)[0],
        lambda x: F.cross_entropy(x, target, reduction="none", label_smoothing=0.1),
        draw.leaf(m, n),
    )


@operation
def linear_cross_entropy(draw: Draw) -> Check:
    m, n = rows(draw)
    target = draw.index(n, m)
    return check(
        lambda x, w, b: fused_linear_cross_entropy.fused_linear_cross_entropy_loss(x, target, w, b),
        lambda x, w, b: F.cross_entropy(x @ w.T + b, target),
        draw.leaf(m, 32), draw.leaf(n, 32, scale=0.3), draw.leaf(n),
    )  # fmt: skip


@operation
def kl_divergence(draw: Draw) -> Check:
    m, n = rows(draw)
    teacher, teacher_weight = draw.fixed(m, 16), draw.fixed(n, 16, scale=0.3)
    target = (teacher.double() @ teacher_weight.double().T).log_softmax(-1)
    return check(
        lambda x, w: fused_kl_div.fused_kl_div_loss(x, teacher, w, teacher_weight),
        lambda x, w: F.kl_div((x @ w.T).log_softmax(-1), target, reduction="batchmean", log_target=True),
        draw.leaf(m, 32), draw.leaf(n, 32, scale=0.3),
    )  # fmt: skip
