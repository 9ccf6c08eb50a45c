"""Attention and residual streams of liger-kernel. Interesting: more blocks than a kernel has places for."""

from _liger import applied, liger, one_dtype

from fuzz import size, tensor

BLOCKS, T, D = size("BLOCKS", 1, 40), size("T", 1, 64), size("D", 1, 256)
SUMS = "the gradients of the weights are sums by atomic additions"


def attn_res_reference(values, query, norm):
    keys = values / (values.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    scores = (keys * (norm * query)).sum(-1)
    weights = (scores - scores.amax(0).detach()).exp()
    return dict(h=((weights / weights.sum(0)).unsqueeze(-1) * values).sum(0))


@liger(
    values=tensor(BLOCKS, T, D),
    query=tensor(D),
    norm=tensor(D),
    deterministic=SUMS,
    timeout=300.0,
    accumulate="inputs",
    reference=attn_res_reference,
    differentiable=dict(h=tensor(T, D)),
)
def liger_attn_res(values, query, norm):
    """Attention over the residuals of earlier blocks."""
    one_dtype(values, query, norm)
    place = "attn_res:LigerAttnResFunction"
    return dict(h=applied(place, V_stacked=values, w_query=query, w_norm=norm, eps=1e-6))
