"""Attention of fla-core that is not linear. Interesting: windows beside a block, groups of heads, empty sequences."""

import torch
from _fla import flash, found, one_dtype
from _scores import LogSigmoid, alone, near, scored, weighed
from _states import RAGGED, B, H, K, N, T, V, gates, sequences
from torch.nn.functional import pad

from fuzz import option, size, tensor

GROUPS = size("GROUPS", 1, 3)
QUERIES = dict(q=sequences(H * GROUPS, K), k=sequences(H, K), v=sequences(H, V))
PARALLEL = dict(
    **{**RAGGED, "dims": (N, GROUPS)}, scale=option(None, 0.5), timeout=300.0, accumulate="inputs", dot="tf32",
    differentiable=dict(y=sequences(H * GROUPS, V)),
)  # fmt: skip


def attention_reference(q, k, v, gate, sink, ragged, ends, scale, window):
    def attended(q, k, v, *forgets):
        scores = scored(q, k, scale)
        for forget in forgets:
            sums = forget.cumsum(1).transpose(1, 2)
            scores = scores + (sums.unsqueeze(-1) - sums.unsqueeze(-2))
        scores = torch.where(near(q.shape[1], window, q.device), scores, float("-inf"))
        if sink is None:
            return weighed(torch.softmax(scores, -1), v)
        more = sink.reshape(1, -1, 1, 1).expand(*scores.shape[:3], 1)
        return weighed(torch.softmax(torch.cat([scores, more], -1), -1)[..., :-1], v)

    return dict(y=alone(attended, ends if ragged else None, q, k, v, *([] if gate is None else [gates(gate)])))


@flash(
    **QUERIES, gate=sequences(H * GROUPS) | None, sink=tensor(H * GROUPS) | None, window=option(None, 1, 5, 64),
    reference=attention_reference, **PARALLEL,
)  # fmt: skip
def fla_parallel_attn(q, k, v, gate, sink, ragged, ends, scale, window):
    """Attention with gates, a sliding window and a sink."""
    one_dtype(q, k, v)
    more = dict(scale=scale, window_size=window, cu_seqlens=ends if ragged else None)
    return dict(y=found("ops.attn:parallel_attn")(q, k, v, gates(gate), sink_bias=sink, **more))


@flash(
    **QUERIES, gate=sequences(H * GROUPS), window=option(None, 1, 5, 64),
    reference=lambda **given: attention_reference(sink=None, **given), **PARALLEL,
)  # fmt: skip
def fla_forgetting_attn(q, k, v, gate, ragged, ends, scale, window):
    """Attention that forgets by gates."""
    one_dtype(q, k, v)
    function = found("ops.forgetting_attn:parallel_forgetting_attn")
    ends = ends if ragged else None
    return dict(y=function(q, k, v, gates(gate), scale=scale, window_size=window, cu_seqlens=ends))


def taylor_reference(q, k, v, scale, normed, rebased):
    q, k = (q, k) if rebased else (q.clamp(-4.0, 4.0), k.clamp(-4.0, 4.0))
    scores = scored(q, k, scale)
    weights = scores.square() if rebased else 0.5 * (1 + (1 + scores).square())
    weights = torch.where(torch.ones_like(weights, dtype=torch.bool).tril(), weights, 0.0)
    y = weighed(weights, v)
    return dict(y=y / (weights.sum(-1).transpose(1, 2).unsqueeze(-1) + (1e-5 if rebased else 1e-6)) if normed else y)


TAYLOR = dict(
    q=tensor(B, T, H, K), k=tensor(B, T, H, K), v=tensor(B, T, H, V), normed=option(True, False), timeout=300.0,
    accumulate="inputs", dot="tf32", differentiable=dict(y=tensor(B, T, H, V)),
)  # fmt: skip


@flash(
    **TAYLOR, scale=option(None, 0.5), fused=option(False, True),
    reference=lambda q, k, v, scale, normed, fused: taylor_reference(q, k, v, scale, normed, False),
)  # fmt: skip
def fla_based(q, k, v, scale, normed, fused):
    """Attention by the first terms of the exponential, as attention or in chunks, which keys up to 16 wide allow."""
    one_dtype(q, k, v)
    if fused and k.shape[-1] > 16:
        raise NotImplementedError("the chunked form takes keys of up to 16")
    function = found(f"ops.based:{'fused_chunk' if fused else 'parallel'}_based")
    return dict(y=function(q.clamp(-4.0, 4.0), k.clamp(-4.0, 4.0), v, scale=scale, use_norm=normed))


@flash(
    **TAYLOR, scaled=option(True, False),
    reference=lambda q, k, v, scaled, normed: taylor_reference(q, k, v, None if scaled else 1.0, normed, True),
    imports=("fla.ops.rebased",),
)  # fmt: skip
def fla_rebased(q, k, v, scaled, normed):
    """Attention by squares of scores."""
    one_dtype(q, k, v)
    function = found("ops.rebased:parallel_rebased")
    return dict(y=function(q, k, v, use_scale=scaled, use_normalize=normed))


def stick_reference(q, k, v, ragged, ends, scale, current):
    def broken(q, k, v):
        scores = scored(q, k, scale)
        seen = torch.ones_like(scores, dtype=torch.bool).tril(0 if current else -1)
        kept = torch.where(seen, LogSigmoid.apply(-scores), 0.0)
        # Of those behind each key: a sum of all less its own would cancel.
        after = pad(kept[..., 1:], (0, 1)).flip(-1).cumsum(-1).flip(-1)
        return weighed(torch.where(seen, (LogSigmoid.apply(scores) + after).exp(), 0.0), v)

    return dict(y=alone(broken, ends if ragged else None, q, k, v))


@flash(**QUERIES, current=option(False, True), reference=stick_reference, **PARALLEL)
def fla_stickbreaking_attn(q, k, v, ragged, ends, scale, current):
    """Attention that breaks a stick, from the nearest key on."""
    one_dtype(q, k, v)
    function = found("ops.stickbreaking_attn:parallel_stickbreaking_attn")
    ends = ends if ragged else None
    return dict(y=function(q, k, v, scale=scale, attend_current=current, cu_seqlens=ends)[0])


L, D = size("L", 1, 12), size("D", 1, 200)


def residuals_reference(query, residuals, weight, after, scale, level):
    def normed(x, weight):
        return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight

    weights = torch.softmax((normed(residuals, weight) * (query * scale)).sum(-1).T, -1)
    y = (weights.T.unsqueeze(-1) * residuals).sum(0)
    return dict(y=y if after is None else normed(y, after), weights=weights.T)


@flash(
    query=tensor(D), residuals=tensor(L, T, D), weight=tensor(D), after=tensor(D) | None, scale=option(1.0, 0.5),
    level=option(1, 0), timeout=300.0, accumulate="inputs", reference=residuals_reference,
    differentiable=dict(y=tensor(T, D)),
)  # fmt: skip
def fla_attnres(query, residuals, weight, after, scale, level):
    """Attention over the residuals of earlier layers, and a norm after it."""
    one_dtype(query, residuals, weight, after)
    function = found("ops.attnres:fused_attnres")
    y, weights = function(
        query, list(residuals.unbind(0)), weight, after, scale=scale, return_weights=True, checkpoint_level=level
    )  # fmt: skip
    return dict(y=y, weights=weights)
