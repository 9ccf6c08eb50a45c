"""Operations of liger-kernel, called as its own modules call them. References follow the papers' formulas."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from liger_kernel import ops
from liger_kernel.ops import swiglu as swiglu_module
from liger_kernel.ops.mhc import mhc_sinkhorn_bwd
from liger_kernel.ops.swiglu import LigerFusedGateUpSiLUMulFunction
from liger_kernel.ops.tiled_mlp import apply_tiled_mlp

from benchmarks.libraries.operations import Check, Draw, Registry, check

operation = Registry()
EPS = 1e-6
ROUNDS = 5
Tensors = tuple[torch.Tensor, ...]
# The library keeps its first answer; here each operation may have another.
swiglu_module.infer_device_arch = swiglu_module.infer_device_arch.__wrapped__
Tensors = tuple[torch.Tensor, ...]


def rows(draw: Draw) -> tuple[int, int]:
    return draw.pick((3, 48), (5, 200))


def rms(x: torch.Tensor, eps: float = EPS) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


@operation
def rms_norm(draw: Draw) -> Check:
    m, n = rows(draw)
    run = lambda x, w: ops.LigerRMSNormFunction.apply(x, w, EPS)  # noqa: E731
    return check(run, lambda x, w: rms(x) * w, draw.leaf(m, n), draw.leaf(n))


@operation
def rms_norm_gemma(draw: Draw) -> Check:
    m, n = rows(draw)
    return check(
        lambda x, w: ops.LigerRMSNormFunction.apply(x, w, EPS, 1.0, "gemma", False),
        lambda x, w: rms(x) * (1 + w),
        draw.leaf(m, n), draw.leaf(n),
    )  # fmt: skip


@operation
def rms_norm_many_rows(draw: Draw) -> Check:
    """Many short rows take another kernel, with several rows in a program."""
    run = lambda x, w: ops.LigerRMSNormFunction.apply(x, w, EPS)  # noqa: E731
    return check(run, lambda x, w: rms(x) * w, draw.leaf(32768, draw.pick(4, 6)), draw.leaf(draw.pick(4, 6)))


@operation
def fused_add_rms_norm(draw: Draw) -> Check:
    m, n = rows(draw)
    return check(
        lambda x, r, w: ops.LigerFusedAddRMSNormFunction.apply(x, r, w, EPS),
        lambda x, r, w: (rms(x + r) * w, x + r),
        draw.leaf(m, n), draw.leaf(m, n), draw.leaf(n),
    )  # fmt: skip


@operation
def modulated_rms_norm(draw: Draw) -> Check:
    m, n = rows(draw)
    return check(
        lambda *inputs: ops.LigerModulatedRMSNormFunction.apply(*inputs, EPS, 0.0, "llama", False),
        lambda x, w, scale, shift: rms(x) * w * (1 + scale) + shift,
        draw.leaf(2, m, n), draw.leaf(n), draw.leaf(2, m, n), draw.leaf(2, m, n),
    )  # fmt: skip


@operation
def layer_norm(draw: Draw) -> Check:
    m, n = rows(draw)
    return check(
        lambda x, w, b: ops.LigerLayerNormFunction.apply(x, w, b, EPS),
        lambda x, w, b: F.layer_norm(x, (n,), w, b, EPS),
        draw.leaf(m, n), draw.leaf(n), draw.leaf(n),
    )  # fmt: skip


@operation
def group_norm(draw: Draw) -> Check:
    batch, hidden = draw.pick((2, 12), (3, 40))
    return check(
        lambda x, w, b: ops.LigerGroupNormFunction.apply(x, w, b, 6, 3, EPS),
        lambda x, w, b: F.group_norm(x, 3, w, b, EPS),
        draw.leaf(batch, 6, hidden), draw.leaf(6), draw.leaf(6),
    )  # fmt: skip


@operation
def poly_norm(draw: Draw) -> Check:
    m, n = rows(draw)
    return check(
        lambda x, w, b: ops.LigerPolyNormFunction.apply(x, w, b, EPS, False),
        lambda x, w, b: w[0] * rms(x**3) + w[1] * rms(x**2) + w[2] * rms(x) + b,
        draw.leaf(m, n), draw.leaf(3), draw.leaf(),
    )  # fmt: skip


@operation
def dyt(draw: Draw) -> Check:
    m, n = rows(draw)
    return check(
        ops.LigerDyTFunction.apply,
        lambda x, alpha, gamma, beta: gamma * torch.tanh(alpha * x) + beta,
        draw.leaf(2, m, n), draw.leaf(1), draw.leaf(n), draw.leaf(n),
    )  # fmt: skip


@operation
def softmax(draw: Draw) -> Check:
    return check(ops.LigerSoftmaxFunction.apply, lambda x: x.softmax(-1), draw.leaf(*rows(draw)))


def sparsemax_of(x: torch.Tensor) -> torch.Tensor:
    """Projection onto the simplex (Martins and Astudillo, 2016)."""
    ordered = x.sort(-1, descending=True).values
    ranks = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
    sums = ordered.cumsum(-1)
    support = (1 + ranks * ordered > sums).sum(-1, keepdim=True)
    return (x - (sums.gather(-1, support - 1) - 1) / support).clamp(min=0)


@operation
def sparsemax(draw: Draw) -> Check:
    return check(lambda x: ops.LigerSparsemaxFunction.apply(x, -1), sparsemax_of, draw.leaf(*rows(draw)))


@operation
def geglu(draw: Draw) -> Check:
    return check(
        ops.LigerGELUMulFunction.apply,
        lambda a, b: F.gelu(a, approximate="tanh") * b,
        draw.leaf(*rows(draw)), draw.leaf(*rows(draw)),
    )  # fmt: skip


@operation
def swiglu(draw: Draw) -> Check:
    return check(
        ops.LigerSiLUMulFunction.apply, lambda a, b: F.silu(a) * b, draw.leaf(*rows(draw)), draw.leaf(*rows(draw))
    )


@operation(capability=(10, 0))
def swiglu_tiled(draw: Draw) -> Check:
    """Wide rows, on a Blackwell."""
    shape = draw.pick((2, 8200), (1, 9000))
    return check(ops.LigerSiLUMulFunction.apply, lambda a, b: F.silu(a) * b, draw.leaf(*shape), draw.leaf(*shape))


@operation
def swiglu_fused_gate_up(draw: Draw) -> Check:
    m, n = rows(draw)
    run = LigerFusedGateUpSiLUMulFunction.apply
    return check(run, lambda y: F.silu(y[..., :n]) * y[..., n:], draw.leaf(m, 2 * n))


@operation
def relu_squared(draw: Draw) -> Check:
    return check(ops.LigerReLUSquaredFunction.apply, lambda x: x.relu().square(), draw.leaf(*rows(draw)))


@operation
def tiled_mlp(draw: Draw) -> Check:
    m, n = rows(draw)
    module = torch.nn.Identity()
    return check(
        lambda x: apply_tiled_mlp(lambda _, part: ops.LigerSoftmaxFunction.apply(part), module, x, 2),
        lambda x: x.softmax(-1),
        draw.leaf(2 * m, n),
    )


@operation
def mlp(draw: Draw) -> Check:
    return gated_mlp(draw, draw.leaf)


@operation(backward=False)
def mlp_inference(draw: Draw) -> Check:
    return gated_mlp(draw, draw.fixed)


def gated_mlp(draw: Draw, make: Callable[..., torch.Tensor]) -> Check:
    m, n = draw.pick((16, 32), (24, 64))
    return check(
        ops.LigerMLPFunction.apply,
        lambda x, gate, up, down: (F.silu(x @ gate.T) * (x @ up.T)) @ down.T,
        make(1, m, n), make(2 * n, n, scale=0.2), make(2 * n, n, scale=0.2), make(n, 2 * n, scale=0.2),
    )  # fmt: skip


@operation
def fused_moe(draw: Draw) -> Check:
    tokens, hidden, inner, experts, top = draw.pick((6, 32, 32, 4, 2), (10, 64, 32, 3, 1))
    chosen = torch.stack([torch.randperm(experts, generator=draw.generator)[:top] for _ in range(tokens)]).int()

    def reference(x: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        both = torch.einsum("th,tkfh->tkf", x, gate_up[chosen.long()])
        inside = F.silu(both[..., :inner]) * both[..., inner:]
        return torch.einsum("tkf,tkhf,tk->th", inside, down[chosen.long()], weights)

    return check(
        lambda x, gate_up, down, weights: ops.LigerFusedMoEFunction.apply(x, gate_up, down, chosen, weights),
        reference,
        draw.leaf(tokens, hidden), draw.leaf(experts, 2 * inner, hidden, scale=0.2),
        draw.leaf(experts, hidden, inner, scale=0.2), draw.leaf_of(torch.rand(tokens, top, generator=draw.generator)),
    )  # fmt: skip


@operation
def embedding(draw: Draw) -> Check:
    indices = draw.index(9, 3, 4)
    return check(
        lambda table: ops.LigerEmbeddingFunction.apply(table, indices),
        lambda table: F.embedding(indices, table),
        draw.leaf(9, rows(draw)[1]),
    )


def angles(draw: Draw, *shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines for halves of a head that turn alike."""
    angle = draw.fixed(*shape, dtype=torch.float32)
    angle = torch.cat([angle, angle], -1)
    return angle.cos().to(draw.dtype), angle.sin().to(draw.dtype)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """`x` as (batch, heads, sequence, head); cosines and sines as (batch, sequence, head)."""
    left, right = x.chunk(2, -1)
    return x * cos.double().unsqueeze(1) + torch.cat([-right, left], -1) * sin.double().unsqueeze(1)


@operation
def rope(draw: Draw) -> Check:
    batch, length, head = draw.pick((1, 5, 16), (2, 7, 64))
    cos, sin = angles(draw, 1, length, head // 2)
    return check(
        lambda q, k: ops.LigerRopeFunction.apply(q, k, cos, sin),
        lambda q, k: (rotate(q, cos, sin), rotate(k, cos, sin)),
        draw.leaf(batch, 4, length, head), draw.leaf(batch, 2, length, head),
    )  # fmt: skip


@operation
def qwen2vl_mrope(draw: Draw) -> Check:
    batch, length, head = draw.pick((1, 5, 16), (2, 7, 64))
    parts = [head // 8, head // 8, head // 4]
    cos, sin = angles(draw, 3, batch, length, head // 2)

    def mixed(turns: torch.Tensor) -> torch.Tensor:
        pieces = turns.split(parts * 2, -1)
        return torch.cat([piece[number % 3] for number, piece in enumerate(pieces)], -1)

    return check(
        lambda q, k: ops.LigerQwen2VLMRopeFunction.apply(q, k, cos, sin, parts),
        lambda q, k: (rotate(q, mixed(cos), mixed(sin)), rotate(k, mixed(cos), mixed(sin))),
        draw.leaf(batch, 4, length, head), draw.leaf(batch, 2, length, head),
    )  # fmt: skip


@operation
def llama4_rope(draw: Draw) -> Check:
    batch, length, head = draw.pick((1, 5, 16), (2, 7, 64))
    turn = torch.polar(torch.ones(length, head // 2), draw.fixed(length, head // 2, dtype=torch.float32))

    def reference(*both: torch.Tensor) -> tuple[torch.Tensor, ...]:
        pairs = [torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) for x in both]
        return tuple(torch.view_as_real(pair * turn.to(pair.dtype)[:, None]).flatten(-2) for pair in pairs)

    return check(
        lambda q, k: ops.LigerLlama4RopeFunction.apply(q, k, turn),
        reference,
        draw.leaf(batch, length, 4, head), draw.leaf(batch, length, 2, head),
    )  # fmt: skip


@operation
def attn_res(draw: Draw) -> Check:
    blocks, n = draw.pick((3, 48), (5, 200))

    def reference(v: torch.Tensor, query: torch.Tensor, norm: torch.Tensor) -> torch.Tensor:
        scores = (rms(v) * norm) @ query
        return (scores.softmax(0).unsqueeze(-1) * v).sum(0)

    return check(
        lambda v, query, norm: ops.LigerAttnResFunction.apply(v, query, norm, EPS),
        reference,
        draw.leaf(blocks, 2, 3, n), draw.leaf(n, scale=0.3), draw.leaf(n),
    )  # fmt: skip


@operation
def multi_token_attention(draw: Draw) -> Check:
    return convolved_attention(draw, sparse=False)


@operation(dtypes=(torch.float32,))
def multi_token_attention_sparse(draw: Draw) -> Check:
    return convolved_attention(draw, sparse=True)


def convolved_attention(draw: Draw, sparse: bool) -> Check:
    length = draw.pick(8, 16)
    future = torch.ones(length, length, dtype=torch.bool).triu(1)

    def reference(scores: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        masked = scores.masked_fill(future, -1e9)
        weights = sparsemax_of(masked) if sparse else masked.softmax(-1)
        return F.conv2d(weights, weight, bias, padding=1).masked_fill(future, 0)

    return check(
        lambda scores, weight, bias: ops.LigerMultiTokenAttentionFunction.apply(
            scores, weight, bias, 1, 1, 1, 1, sparse
        ),
        reference,
        draw.leaf(2, 2, length, length), draw.leaf(2, 2, 3, 3, scale=0.3), draw.leaf(2),
    )  # fmt: skip


@operation
def fused_neighborhood_attention(draw: Draw) -> Check:
    length, head = draw.pick((12, 16), (20, 32))
    near = (torch.arange(length)[:, None] - torch.arange(length)).abs() <= 3

    def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = (q @ k.transpose(-1, -2) / math.sqrt(head)).masked_fill(~near, float("-inf"))
        return scores.softmax(-1) @ v

    shape = (1, 2, length, head)
    run = lambda q, k, v: ops.LigerFusedNeighborhoodAttentionFunction.apply(q, k, v, 7, 1, None)  # noqa: E731
    return check(run, reference, draw.leaf(*shape), draw.leaf(*shape), draw.leaf(*shape))


@operation
def mhc_pre(draw: Draw) -> Check:
    n = rows(draw)[1]
    return check(
        ops.LigerMHCPreFunction.apply,
        lambda x, h: torch.einsum("bthc,bth->btc", x, h),
        draw.leaf(2, 3, 4, n), draw.leaf(2, 3, 4, dtype=torch.float32),
    )  # fmt: skip


@operation
def mhc_post_res(draw: Draw) -> Check:
    n = rows(draw)[1]
    return check(
        ops.LigerMHCPostResFunction.apply,
        lambda x, f, post, res: torch.einsum("btoi,btic->btoc", res, x) + post.unsqueeze(-1) * f.unsqueeze(-2),
        draw.leaf(2, 3, 4, n), draw.leaf(2, 3, n),
        draw.leaf(2, 3, 4, dtype=torch.float32), draw.leaf(2, 3, 4, 4, dtype=torch.float32),
    )  # fmt: skip


def doubly_stochastic(logits: torch.Tensor) -> torch.Tensor:
    """Exponentials brought near a doubly stochastic matrix (Sinkhorn and Knopp, 1967)."""
    mixed = logits.softmax(-1) + EPS
    mixed = mixed / (mixed.sum(-2, keepdim=True) + EPS)
    for _ in range(ROUNDS - 1):
        mixed = mixed / (mixed.sum(-1, keepdim=True) + EPS)
        mixed = mixed / (mixed.sum(-2, keepdim=True) + EPS)
    return mixed


@operation(dtypes=(torch.float32,), backward=False)
def mhc_sinkhorn_backward(draw: Draw) -> Check:
    """The gradient of the logits where the forward kept no history."""
    count, alpha = draw.pick(6, 20), torch.tensor(0.9)

    def reference(mix: torch.Tensor, b: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
        logits = (mix[:, 8:] * alpha.double() + b[8:]).unflatten(-1, (4, 4)).requires_grad_()
        return torch.autograd.grad(doubly_stochastic(logits), logits, grad)[0].flatten(-2)

    return check(
        lambda mix, b, grad: mhc_sinkhorn_bwd(mix, b, alpha, grad, tmax=ROUNDS, sinkhorn_eps=EPS),
        reference,
        draw.fixed(count, 24), draw.fixed(24), draw.fixed(count, 4, 4),
    )  # fmt: skip


@operation
def mhc_coeffs(draw: Draw) -> Check:
    n, streams, count = draw.pick(16, 64), 4, 4 * 6
    double = 2.0

    def reference(x: torch.Tensor, phi: torch.Tensor, b: torch.Tensor, *scales: torch.Tensor) -> Tensors:
        logits = rms(x.flatten(-2)) @ phi
        pre, post, res = (
            part * scale + shift
            for part, scale, shift in zip(logits.split([4, 4, 16], -1), scales, b.split([4, 4, 16]), strict=True)
        )
        return pre.sigmoid(), double * post.sigmoid(), doubly_stochastic(res.unflatten(-1, (streams, streams)))

    run = lambda *inputs: ops.LigerMHCCoeffsFunction.apply(*inputs, True, ROUNDS, EPS, 0.0, EPS, double)  # noqa: E731
    single = torch.float32
    scales = [torch.tensor(value, requires_grad=True) for value in (0.5, 0.7, 0.9)]
    phi, shift = draw.leaf(streams * n, count, scale=0.1), draw.leaf(count, dtype=single)
    return check(run, reference, draw.leaf(2, 3, streams, n), phi, shift, *scales)
