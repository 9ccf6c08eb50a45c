"""Log-linear attention of fla-core. Interesting: lengths around powers of two, more heads of values than of keys."""

import torch
from _fla import flash, found, one_dtype
from _states import RAGGED, H, N, gates, sequences

from fuzz import option, size

LEVELS = 9
"""One more than there are binary digits in a place: enough for sequences of up to 256."""
G, K, V = size("G", 1, 2), size("K", 64, 128, multiple_of=64), size("V", 16, 32, multiple_of=16)


def weights(g, scales):
    """What place i takes of place j, (B, H, T, T): the gates between, and the scale of the level where they part.

    The level of two places is the number of binary digits up to the highest in which they differ.
    """
    places = torch.arange(g.shape[1], device=g.device)
    level = sum((places.unsqueeze(1) >> digit != places >> digit).long() for digit in range(LEVELS - 1))
    total = g.cumsum(1).transpose(1, 2)
    later = places.unsqueeze(1) >= places
    between = torch.where(later, total.unsqueeze(-1) - total.unsqueeze(-2), -torch.inf)
    index = level.expand(*between.shape)
    return between.exp() * scales.transpose(1, 2).gather(-1, index)


def log_linear_reference(q, k, v, g, scales, ragged, ends, keep, scale):
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    edges = ends.tolist() if ragged else [0, q.shape[1]]
    parts = []
    for first, last in zip(edges, edges[1:], strict=False):
        one_q, one_k, one_v, one_g, one_scales = (x[:, first:last] for x in (q, k, v, g, scales))
        one_q, one_k = (x.repeat_interleave(v.shape[2] // q.shape[2], 2).transpose(1, 2) for x in (one_q, one_k))
        scores = one_q @ one_k.transpose(-1, -2) * weights(gates(one_g), one_scales)
        parts.append((scores @ one_v.transpose(1, 2)).transpose(1, 2) * factor)
    return dict(y=torch.cat(parts, 1))


@flash(
    q=sequences(G, K), k=sequences(G, K), v=sequences(G * H, V), g=sequences(G * H), scales=sequences(G * H, LEVELS),
    **{**RAGGED, "dims": (H, N)}, keep=option(False, True), scale=option(1.0, None), differentiable=dict(y=sequences(G * H, V)),
    timeout=300.0, accumulate="inputs", dot="tf32", reference=log_linear_reference,
)  # fmt: skip
def fla_chunk_log_linear_attn(q, k, v, g, scales, ragged, ends, keep, scale):
    """Attention whose gated sums have a scale for each level of a binary tree of places, in chunks."""
    one_dtype(q, k, v, g, scales)
    function = found("ops.log_linear_attn:chunk_log_linear_attn")
    ends = ends if ragged else None
    y, _ = function(q, k, v, gates(g), scales, output_final_state=keep, cu_seqlens=ends, scale=scale)
    return dict(y=y)
