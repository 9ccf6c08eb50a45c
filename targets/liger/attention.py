"""Attention and residual streams of liger-kernel. Interesting: more blocks than a kernel has places for."""

import torch
from _formulas import Softmax, sparsemax
from _liger import UNREACHED, applied, layer, liger, one_dtype

from fuzz import by_option, option, size, sizes, tensor

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


B, C, L, R = size("B", 1, 3), size("C", 1, 3), size("L", 1, 80), size("R", 0, 2)
MASKED = -1e9
"""What the library takes for a score that does not count."""


def multi_token_reference(scores, weight, bias, reach, stride, sparse, dilation, groups, module):
    future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
    masked = torch.where(future, MASKED, scores)
    likely = sparsemax(masked) if sparse else Softmax.apply(masked)
    edge = reach * dilation
    padded = torch.nn.functional.pad(likely, (edge, edge, edge, edge))
    length, total = scores.shape[-1], 0.0 if bias is None else bias.reshape(-1, 1, 1)
    each, made = weight.shape[1], len(weight) // groups
    for down in range(2 * reach + 1):
        for along in range(2 * reach + 1):
            part = padded[..., down * dilation :, along * dilation :][..., :length, :length][..., ::stride, ::stride]
            parts = [
                (part[:, g * each : (g + 1) * each].unsqueeze(1) * taken.unsqueeze(-1).unsqueeze(-1)).sum(2)
                for g, taken in enumerate(weight[:, :, down, along].split(made))
            ]
            total = total + torch.cat(parts, 1)
    return dict(y=torch.where(future[: total.shape[-2], : total.shape[-1]], 0.0, total))


GROUPS, MADE = size("groups", 1, 2), size("MADE", 1, 3)
MIXED, HALVED = tensor(B, GROUPS * MADE, L, L), tensor(B, GROUPS * MADE, (L + 1) // 2, (L + 1) // 2)


@liger(
    scores=tensor(B, GROUPS * C, L, L), weight=tensor(GROUPS * MADE, C, 2 * R + 1, 2 * R + 1),
    bias=tensor(GROUPS * MADE) | None, reach=R, stride=option(1, 2), sparse=option(False, True), dilation=option(1, 2),
    groups=GROUPS, module=option(False, True), dims=(MADE,), timeout=120.0, accumulate="inputs",
    reference=multi_token_reference, differentiable=dict(y=by_option("stride", {1: MIXED, 2: HALVED})),
)  # fmt: skip
def liger_multi_token_attention(scores, weight, bias, reach, stride, sparse, dilation, groups, module):
    """Probabilities of the past, mixed by a convolution over neighbouring queries, keys and heads."""
    one_dtype(scores, weight, bias)
    if sparse and scores.dtype != torch.float32:
        raise NotImplementedError("sparse probabilities of float32 alone")
    options = dict(stride=stride, padding=reach * dilation, dilation=dilation, groups=groups, sparse=sparse)
    if module:
        parameters = dict(weight=weight, bias=bias)
        shape = dict(in_channels=scores.shape[1], out_channels=len(weight), kernel_size=weight.shape[-1])
        place = "multi_token_attention:LigerMultiTokenAttention"
        return dict(y=layer(place, parameters, scores, bias=bias is not None, **shape, **options))
    place = "multi_token_attention:LigerMultiTokenAttentionFunction"
    return dict(y=applied(place, scores=scores, weight=weight, bias=bias, **options))


HEADS, WIDTH = size("HEADS", 1, 3), size("WIDTH", 1, 80)


def neighborhood_reference(q, k, v, kernel, dilation, scale):
    length = q.shape[2]
    place = torch.arange(length, device=q.device)
    apart = place.unsqueeze(0) - place.unsqueeze(1)
    near = (apart.abs() <= kernel // 2 * dilation) & (apart % dilation == 0)
    scores = torch.where(near, q @ k.transpose(-1, -2) * (scale or q.shape[-1] ** -0.5), float("-inf"))
    return dict(y=Softmax.apply(scores) @ v)


QUERIES = tensor(B, HEADS, L, WIDTH)


@liger(
    q=QUERIES,
    k=QUERIES,
    v=QUERIES,
    kernel=option(7, 1, 3),
    scale=option(None, 0.5),
    dilation=option(1, 2, 3),
    timeout=120.0,
    accumulate="inputs",
    dot="tf32",
    reference=neighborhood_reference,
    differentiable=dict(y=QUERIES),
)
def liger_neighborhood_attention(q, k, v, kernel, dilation, scale):
    """Attention to what is near, or to every second or third of it."""
    one_dtype(q, k, v)
    place = "fused_neighborhood_attention:LigerFusedNeighborhoodAttentionFunction"
    return dict(y=applied(place, query=q, key=k, value=v, kernel_size=kernel, dilation=dilation, scale=scale))


TOKENS, STREAMS = size("TOKENS", 1, 80), size("STREAMS", 1, 4)


def powers_of_two(streams):
    """ValueError for a number of streams that the kernels are not made for."""
    if streams & (streams - 1):
        raise ValueError("the number of streams is a power of two")


def hyper_reference(x, f, before, after, mixing):
    y = (x * before.unsqueeze(-1)).sum(1)
    return dict(y=y, z=after.unsqueeze(-1) * f.unsqueeze(1) + (mixing.unsqueeze(-1) * x.unsqueeze(1)).sum(2))


@liger(
    x=tensor(TOKENS, STREAMS, D),
    f=tensor(TOKENS, D),
    before=tensor(TOKENS, STREAMS, dtypes=("float32",)),
    after=tensor(TOKENS, STREAMS, dtypes=("float32",)),
    mixing=tensor(TOKENS, STREAMS, STREAMS, dtypes=("float32",)),
    timeout=120.0,
    deterministic=SUMS,
    accumulate="inputs",
    reference=hyper_reference,
    differentiable=dict(y=tensor(TOKENS, D), z=tensor(TOKENS, STREAMS, D)),
)
def liger_mhc(x, f, before, after, mixing):
    """Hyper-connections: the streams summed before a layer, and mixed with what it gave after it."""
    one_dtype(x, f)
    powers_of_two(x.shape[1])
    return dict(
        y=applied("mhc:LigerMHCPreFunction", x=x, h_pre=before),
        z=applied("mhc:LigerMHCPostResFunction", x=x, f_out=f, h_post=after, h_res=mixing),
    )


def coefficients_reference(x, phi, bias, scales, rounds, eps, pre_eps, sinkhorn_eps, most, wide, kept):
    flat, streams = x.flatten(-2), x.shape[-2]
    mixed = flat @ phi / (flat.square().mean(-1, keepdim=True) + eps).sqrt()
    before, after, logits = mixed.split([streams, streams, streams * streams], -1)
    of_before, of_after, of_logits = bias.split([streams, streams, streams * streams])
    matrix = (logits * scales[2] + of_logits).unflatten(-1, (streams, streams))
    matrix = Softmax.apply(matrix) + sinkhorn_eps
    matrix = matrix / (matrix.sum(-2, keepdim=True) + sinkhorn_eps)
    for _ in range(rounds - 1):
        matrix = matrix / (matrix.sum(-1, keepdim=True) + sinkhorn_eps)
        matrix = matrix / (matrix.sum(-2, keepdim=True) + sinkhorn_eps)
    values = dict(
        before=(before * scales[0] + of_before).sigmoid() + pre_eps,
        after=most * (after * scales[1] + of_after).sigmoid(),
        mixing=matrix,
    )
    return values if kept else {name: value.detach() for name, value in values.items()}


COUNT, OUTER = STREAMS * STREAMS + 2 * STREAMS, sizes("OUTER", 0, 1, high=3)
NO_CALLER = "its wrapper allocates them"
COEFFICIENTS = {
    "*mhc_* is None` is never false*": NO_CALLER,
    "*out_* is None` is never false*": NO_CALLER,
    "*_mhc_sinkhorn_bwd_kernel*": "the forward keeps its history wherever a gradient is asked for",
    "*`has_hist` is never false*": "the forward keeps its history wherever a gradient is asked for",
    "*mhc_sinkhorn_bwd: `hist is not None`*": "the forward keeps its history wherever a gradient is asked for",
    "*`need_[pr]*` is never false*": "autograd gives zeros for an output without a gradient",
}


@liger(
    x=tensor(OUTER, TOKENS, STREAMS, D),
    phi=tensor(STREAMS * D, COUNT),
    bias=tensor(COUNT, dtypes=("float32",)),
    scales=tensor(3, dtypes=("float32",)),
    rounds=option(3, 1, 20),
    eps=option(1e-6, 1e-2),
    pre_eps=option(1e-4, 0.0),
    sinkhorn_eps=option(1e-6, 1e-3),
    most=option(2.0, 1.0),
    wide=option(True, False),
    kept=option(True, False),
    deterministic=SUMS,
    timeout=120.0,
    accumulate="inputs",
    dot="tf32",
    reference=coefficients_reference,
    differentiable=dict(
        before=tensor(OUTER, TOKENS, STREAMS),
        after=tensor(OUTER, TOKENS, STREAMS),
        mixing=tensor(OUTER, TOKENS, STREAMS, STREAMS),
    ),
    unreached={**UNREACHED, **COEFFICIENTS},
)  # fmt: skip
def liger_mhc_coefficients(x, phi, bias, scales, rounds, eps, pre_eps, sinkhorn_eps, most, wide, kept):
    """The coefficients of hyper-connections, a normed linear layer and a matrix made nearly doubly stochastic; without
    gradients where nothing is kept for them."""
    one_dtype(x, phi)
    powers_of_two(x.shape[-2])
    if not kept:
        x, phi, bias, scales = (part.detach() for part in (x, phi, bias, scales))
    before, after, mixing = applied(
        "mhc:LigerMHCCoeffsFunction",
        x=x, phi=phi, b=bias, alpha_pre=scales[0], alpha_post=scales[1], alpha_res=scales[2], allow_fp32=wide,
        tmax=rounds, rms_eps=eps, pre_eps=pre_eps, sinkhorn_eps=sinkhorn_eps, post_mult=most,
    )  # fmt: skip
    return dict(before=before, after=after, mixing=mixing)
