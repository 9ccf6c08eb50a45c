"""Norms, gates, rotary embedding, quantization and caches of conch. Interesting: widths beside a power of two."""

import torch
from _conch import found, kernel

from fuzz import indices, option, size, tensor

M, N, D = size("M", 1, 200), size("N", 1, 5000), size("D", 1, 150)
ROWS, EPS = tensor(M, N, contiguous=True), option(1e-6, 1e-1)


def normed(x, eps):
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt()


@kernel(
    x=ROWS, weight=tensor(N, contiguous=True), eps=EPS, batch=M, accumulate="inputs",
    reference=lambda x, weight, eps: dict(y=normed(x, eps) * weight),
    unreached={"*use_residual*": "conch_fused_add_rms_norm adds"},
)  # fmt: skip
def conch_rms_norm(x, weight, eps):
    """Root-mean-square norm."""
    return dict(y=found("normalization.rms_norm:rms_norm")(x, weight, eps))


def add_reference(x, residual, weight, eps):
    total = x + residual
    return dict(y=normed(total, eps) * weight, total=total)


@kernel(
    x=ROWS, residual=ROWS, weight=tensor(N, contiguous=True), eps=EPS, in_place=("x", "residual"), accumulate="inputs",
    reference=add_reference,
)  # fmt: skip
def conch_fused_add_rms_norm(x, residual, weight, eps):
    """A residual added in its place, and the norm of the sum in the input's."""
    y, total = found("normalization.rms_norm:fused_add_rms_norm")(x, residual, weight, eps)
    return dict(y=y.clone(), total=total.clone())


def gemma_reference(x, weight, residual, eps):
    total = x if residual is None else x + residual
    y = normed(total, eps) * (1 + weight)
    return dict(y=y) if residual is None else dict(y=y, total=total)


@kernel(
    x=ROWS, weight=tensor(N, contiguous=True), residual=ROWS | None, eps=EPS, in_place=("x",), accumulate="inputs",
    reference=gemma_reference,
)  # fmt: skip
def conch_gemma_rms_norm(x, weight, residual, eps):
    """Gemma's norm, of a sum where there is a residual."""
    value = found("normalization.gemma_rms_norm:gemma_rms_norm")(x, weight, eps, residual)
    if residual is None:
        return dict(y=value.clone())
    return dict(y=value[0].clone(), total=value[1].clone())


def gated_reference(x, kind):
    a, b = x.chunk(2, -1)
    if kind == "silu":
        return dict(y=a * a.sigmoid() * b)
    return dict(y=0.5 * a * (1 + (0.7978845608028654 * (a + 0.044715 * a**3)).tanh()) * b)


@kernel(
    x=tensor(M, 2 * N, contiguous=True) | tensor(3, M, 2 * N, contiguous=True), kind=option("silu", "gelu_tanh"),
    dims=(N,), accumulate="inputs", reference=gated_reference,
)  # fmt: skip
def conch_gate(x, kind):
    """SiLU or GELU of a row's first half times its second."""
    return dict(y=found(f"activation.{kind}_and_mul:{kind}_and_mul")(x))


HALF, HEADS, GROUPS, REST = size("HALF", 1, 32), size("HEADS", 1, 3), size("GROUPS", 1, 3), size("REST", 0, 9)
PLACES = size("PLACES", 1, 40)


def rotary_reference(places, q, k, table, rest):
    cos, sin = table[places.long()].chunk(2, -1)
    width = table.shape[-1]

    def turned(x):
        heads = x.unflatten(-1, (-1, width + rest))
        left, right = heads[..., :width].chunk(2, -1)
        c, s = cos.unsqueeze(1), sin.unsqueeze(1)
        return torch.cat([left * c - right * s, right * c + left * s, heads[..., width:]], -1).flatten(1)

    return dict(q=turned(q), k=turned(k))


@kernel(
    places=indices(M, below=PLACES, dtypes=("int64",)), q=tensor(M, HEADS * GROUPS * (2 * HALF + REST), contiguous=True),
    k=tensor(M, HEADS * (2 * HALF + REST), contiguous=True), table=tensor(PLACES, 2 * HALF, contiguous=True), rest=REST,
    dims=(HALF, HEADS, GROUPS), in_place=("q", "k"), accumulate="inputs", reference=rotary_reference,
)  # fmt: skip
def conch_rotary_embedding(places, q, k, table, rest):
    """Rotary embedding of the first of each head, in place."""
    function, width = found("embedding.rotary_embedding:rotary_embedding"), table.shape[-1] + rest
    q, k = function(places.contiguous(), q, k, width, table)
    return dict(q=q.clone(), k=k.clone())


BLOCKS, EACH, PAGES = size("BLOCKS", 1, 20), size("EACH", 1, 8), size("PAGES", 1, 5)


def reshape_reference(key, value, keys, values, shift):
    slots = (torch.arange(len(key), device=key.device) + shift) % (keys.shape[0] * keys.shape[1])
    after = keys.flatten(0, 1).clone(), values.flatten(0, 1).clone()
    for cache, new in zip(after, (key, value), strict=True):
        cache[slots] = new
    return dict(keys=after[0].reshape(keys.shape), values=after[1].reshape(values.shape))


WIDE_CACHE = {"*fp8_scaling*": "the cache is as wide as its keys"}
CACHE = tensor(BLOCKS, EACH, HEADS, D, contiguous=True)
TOKENS = size("TOKENS", 1, 20)


@kernel(
    key=tensor(TOKENS, HEADS, D), value=tensor(TOKENS, HEADS, D), keys=CACHE, values=CACHE, shift=option(0, 3, 7),
    in_place=("keys", "values"), reference=reshape_reference, unreached=WIDE_CACHE,
)  # fmt: skip
def conch_reshape_and_cache(key, value, keys, values, shift):
    """New keys and values put into the slots of a cache."""
    if len({part.dtype for part in (key, value, keys, values)}) > 1 or len(key) > keys.shape[0] * keys.shape[1]:
        raise ValueError("one dtype, and a slot for each token")
    slots = (torch.arange(len(key), device=key.device) + shift) % (keys.shape[0] * keys.shape[1])
    found("vllm.reshape_and_cache:reshape_and_cache")(key, value, keys, values, slots, strict=True)
    return dict(keys=keys.clone(), values=values.clone())


def paged_reference(query, keys, values, table, lengths, scale, softcap):
    outputs = []
    for row, blocks, length in zip(query, table.tolist(), lengths.tolist(), strict=True):
        groups = len(row) // keys.shape[2]
        k, v = (cache[blocks].flatten(0, 1)[:length].repeat_interleave(groups, 1) for cache in (keys, values))
        scores = (row * k).sum(-1) * (row.shape[-1] ** -0.5 if scale is None else scale)
        scores = softcap * (scores / softcap).tanh() if softcap else scores
        weights = (scores - scores.amax(0)).exp()
        outputs.append((weights / weights.sum(0)).unsqueeze(-1).mul(v).sum(0))
    return dict(y=torch.stack(outputs))


B, WIDTH, LONG = size("B", 1, 4), size("WIDTH", 1, 64), size("LONG", 1, 3)
PAGED = tensor(BLOCKS, 16, HEADS, WIDTH, contiguous=True)


@kernel(
    query=tensor(B, HEADS * GROUPS, WIDTH, contiguous=True), keys=PAGED, values=PAGED,
    table=indices(B, LONG, below=BLOCKS, dtypes=("int32",)), lengths=indices(B, below=16 * LONG, dtypes=("int32",)),
    scale=option(None, 0.5), softcap=option(0.0, 10.0), dims=(GROUPS,), accumulate="inputs", dot="tf32",
    reference=lambda lengths, **given: paged_reference(lengths=lengths + 1, **given),
    unreached=WIDE_CACHE | {"*max_seqlen_k > *": "it sets the number of splits alone, which other lengths vary"},
)  # fmt: skip
def conch_paged_attention(query, keys, values, table, lengths, scale, softcap):
    """Attention of one query a sequence to keys and values in blocks of a cache."""
    if len({part.dtype for part in (query, keys, values)}) > 1:
        raise ValueError("one dtype")
    function = found("attention.paged_attention:paged_attention")
    more = dict(scale=scale, softcap=softcap)
    return dict(y=function(query, keys, values, table.contiguous(), (lengths + 1).contiguous(), **more))
