"""Sums, means, softmax and products of fla-core's utilities. Interesting: rows that are padded, sequences of no place."""

import torch
from _fla import SHARED, flash, found, one_dtype, uncompiled
from _states import RAGGED, B, H, K, N, T, sequences

from fuzz import by_option, indices, option, prefix_sums, size, tensor

M, D = size("M", 1, 200), size("D", 1, 5000)
PLAIN = dict(accumulate="inputs", unreached={})


@flash(x=tensor(M, D), batch=M, reference=lambda x: dict(y=(x - x.amax(-1, keepdim=True)).softmax(-1)), **PLAIN)
def fla_softmax_fwd(x):
    """Softmax of rows, which must be contiguous."""
    return dict(y=found("ops.utils:softmax_fwd")(x.contiguous()))


def softmax_bwd_reference(p, dp):
    return dict(ds=p * (dp - (p * dp).sum(-1, keepdim=True)))


@flash(p=tensor(M, D), dp=tensor(M, D), linear=("dp",), batch=M, reference=softmax_bwd_reference, **PLAIN)
def fla_softmax_bwd(p, dp):
    """The gradient of softmax from its result."""
    one_dtype(p, dp)
    return dict(ds=found("ops.utils:softmax_bwd")(p.contiguous(), dp.contiguous()))


def logsumexp_reference(x, scale, half):
    x = x if scale is None else x * scale
    top = x.amax(-1, keepdim=True)
    return dict(z=(x - top).exp().sum(-1).log() + top.squeeze(-1))


@flash(
    x=tensor(M, D), scale=option(None, 0.5, 2.0), half=option(False, True), batch=M, reference=logsumexp_reference,
    **PLAIN,
)  # fmt: skip
def fla_logsumexp_fwd(x, scale, half):
    """The logarithm of the sum of exponentials of rows."""
    more = dict(dtype=torch.bfloat16) if half else {}
    return dict(z=found("ops.utils:logsumexp_fwd")(x.contiguous(), scale=scale, **more))


ROWS, J = size("ROWS", 1, 150), size("J", 1, 150)


def activated(y, activation):
    if activation == "leaky_relu":
        return torch.where(y >= 0, y, 0.01 * y)
    return {"": lambda y: y, "relu": lambda y: y.clamp(min=0), "sigmoid": torch.sigmoid, "tanh": torch.tanh}[
        activation
    ](y)


@flash(
    a=tensor(ROWS, K) | tensor(B, ROWS, K), b=tensor(K, J), activation=option("", "relu", "leaky_relu", "sigmoid", "tanh"),
    reference=lambda a, b, activation: dict(y=activated(a @ b, activation)), accumulate="inputs",
    unreached={"*HAS_*": "fla_addmm adds"},
)  # fmt: skip
def fla_matmul(a, b, activation):
    """A product of matrices and an activation."""
    one_dtype(a, b)
    return dict(y=found("ops.utils:matmul")(a, b, activation))


def addmm_reference(x, a, b, alpha, beta):
    return dict(y=(1.0 if beta is None else beta) * x + (1.0 if alpha is None else alpha) * (a @ b))


@flash(
    x=tensor(J) | tensor(ROWS, J), a=tensor(ROWS, K), b=tensor(K, J), alpha=option(None, 0.5), beta=option(None, 2.0),
    reference=addmm_reference, accumulate="inputs",
    unreached={
        "*ACTIVATION*": "no activation can be asked for", "*HAS_INPUT*": "fla_matmul adds nothing",
        **dict.fromkeys(("*HAS_ALPHA*", "*HAS_BETA*"), "it does not compile, which is a finding"),
    },
)  # fmt: skip
def fla_addmm(x, a, b, alpha, beta):
    """A product of matrices added to a matrix or to a row, each times a number."""
    one_dtype(x, a, b)
    return dict(y=found("ops.utils:addmm")(x, a, b, alpha, beta))


def alone(x, ends, function):
    """What a function gives for each sequence of (1, T, ..), one after the other."""
    if ends is None:
        return function(x)
    edges = ends.tolist()
    return torch.cat([function(x[:, a:b]) for a, b in zip(edges, edges[1:], strict=False) if b > a], 1)


def pooled_reference(x, chunk, ragged, ends):
    def means(x):
        return torch.stack([part.mean(1) for part in x.split(chunk, 1)], 1)

    return dict(y=alone(x, ends if ragged else None, means))


@flash(
    x=sequences(H, K), **RAGGED, chunk=option(16, 32, 64), reference=pooled_reference, **PLAIN
)  # fmt: skip
def fla_mean_pooling(x, chunk, ragged, ends):
    """Means of chunks of sequences."""
    return dict(y=found("ops.utils:mean_pooling")(x, chunk, ends if ragged else None))


def summed(x, reverse):
    return x.flip(1).cumsum(1).flip(1) if reverse else x.cumsum(1)


def ragged_cumsum_reference(g, chunk, reverse, scale, ragged, ends):
    def sums(g):
        parts = g.split(chunk, 1) if chunk else [g]
        return torch.cat([summed(part, reverse) for part in parts], 1)

    y = alone(g, ends if ragged else None, sums)
    return dict(y=y if scale is None else y * scale)


CUMSUM = dict(
    **RAGGED, chunk=option(64, 16, 32, None), reverse=option(False, True), scale=option(None, 0.5),
    reference=ragged_cumsum_reference, accumulate="inputs",
)  # fmt: skip
VECTORS, SCALARS = ({f"*cumsum_{kind}*": f"another target sums {kind}s"} for kind in ("scalar", "vector"))


def ragged_cumsum(g, chunk, reverse, scale, ragged, ends):
    given = dict(reverse=reverse, scale=scale, cu_seqlens=ends if ragged else None)
    if chunk is None:
        return dict(y=found("ops.utils:chunk_global_cumsum")(g, **given))
    return dict(y=found("ops.utils:chunk_local_cumsum")(g, chunk, **given))


@flash(g=sequences(H), unreached=SCALARS, **CUMSUM)
def fla_ragged_cumsum(**given):
    """Sums along sequences or along chunks of them, of several lengths."""
    return ragged_cumsum(**given)


@flash(g=sequences(H, K), unreached=VECTORS, **CUMSUM)
def fla_ragged_cumsum_vector(**given):
    """Sums of vectors along sequences or along chunks of them, of several lengths."""
    return ragged_cumsum(**given)


def packed_reference(x, lengths, left):
    kept = [row[len(row) - n :] if left else row[:n] for row, n in zip(x, lengths.tolist(), strict=True)]
    return dict(y=torch.cat(kept))


@flash(
    x=tensor(B, T, K), lengths=indices(B, below=T + 1, dtypes=("int64",)), left=option(True, False),
    reference=packed_reference, contract="envelope",
    unreached={"*PACK`*": "fla_unpack_sequence does that", "*unpack*": "fla_unpack_sequence does that",
               "*Function.backward*": "fla_unpack_sequence does that"},
)  # fmt: skip
def fla_pack_sequence(x, lengths, left):
    """Padded sequences one after the other, without their padding."""
    if not int(lengths.sum()):
        raise ValueError("every sequence is empty")
    ends = torch.cat([torch.zeros_like(lengths[:1]), lengths.cumsum(0)])
    return dict(y=found("ops.utils:pack_sequence")(x, ends, "left" if left else "right"))


def unpacked_reference(x, ends, left):
    edges, rows = ends.tolist(), []
    places = int((ends[1:] - ends[:-1]).max())
    for first, last in zip(edges, edges[1:], strict=False):
        padding = x.new_zeros(places - last + first, *x.shape[1:])
        rows.append(torch.cat([padding, x[first:last]] if left else [x[first:last], padding]))
    return dict(y=torch.stack(rows))


@flash(
    x=tensor(T, K), ends=prefix_sums(N + 1, total=T), left=option(True, False), dims=(N,), reference=unpacked_reference,
    unreached={"*PACK`*": "fla_pack_sequence does that", "*Function.backward*": "fla_pack_sequence does that"},
)  # fmt: skip
def fla_unpack_sequence(x, ends, left):
    """Sequences one after the other, with padding on one side."""
    return dict(y=found("ops.utils:unpack_sequence")(x, ends, "left" if left else "right"))


def gate_correction_reference(o, r, k, r_k, v, g):
    correction = ((r * k * r_k).sum(-1, keepdim=True) * v).flatten(-2)
    return dict(y=(o + correction) * g)


HEADS = tensor(B, T, H, K)


@flash(
    o=tensor(B, T, H * K), r=HEADS, k=HEADS, r_k=tensor(H, K), v=HEADS, g=tensor(B, T, H * K), accumulate="inputs",
    reference=gate_correction_reference, differentiable=dict(y=tensor(B, T, H * K)),
    imports=("fla.ops.rwkv7.gate_output_correction",),
)  # fmt: skip
def fla_rwkv7_gate_correction(o, r, k, r_k, v, g):
    """RWKV7's correction of outputs by the present place, and its gate."""
    one_dtype(o, r, k, r_k, v, g)
    return dict(y=found("ops.rwkv7.gate_output_correction:gate_output_correction")(o, r, k, r_k, v, g))


LONGER, PLACES = size("LONGER", 0, 1), size("PLACES", 1, 512)
ALL = 512 * LONGER + PLACES
LONG = by_option("ragged", {False: tensor(B, ALL, K), True: tensor(1, ALL, K)})


@flash(
    k=LONG, a=LONG, ka=tensor(K), ragged=option(False, True), ends=prefix_sums(N + 1, total=ALL), dims=(N, LONGER, PLACES),
    accumulate="inputs", differentiable=dict(y=LONG),
    unreached={**SHARED, "*dka_tmp.dim() == 3*": "keys have three dims"},
    reference=lambda k, a, ka, ragged, ends: dict(y=k + k * (a - 1) * ka), imports=("fla.ops.rwkv7.fused_k_update",),
)  # fmt: skip
def fla_rwkv7_k_update(k, a, ka, ragged, ends):
    """RWKV7's update of keys."""
    one_dtype(k, a, ka)
    return dict(y=found("ops.rwkv7.fused_k_update:fused_k_rwkv7")(k, a, ka, ends if ragged else None))


def addcmul_reference(x, delta, r, w, k, v, a, g):
    parts = dict(zip("rwkvag", (r, w, k, v, a, g), strict=True))
    return {f"o{name}": x + delta * part for name, part in parts.items() if part is not None}


MIX = tensor(1, 1, K)


@flash(
    x=tensor(B, T, K), delta=tensor(B, T, K), r=MIX, w=MIX, k=MIX, v=MIX, a=MIX, g=MIX | None, accumulate="inputs",
    reference=addcmul_reference, differentiable={f"o{name}": tensor(B, T, K) for name in "rwkvag"},
    imports=("fla.ops.rwkv7.fused_addcmul",),
)  # fmt: skip
def fla_rwkv7_addcmul(x, delta, r, w, k, v, a, g):
    """RWKV7's mixtures of a token and the one before."""
    one_dtype(x, delta, r, w, k, v, a, g)
    uncompiled("ops.rwkv7.fused_addcmul:addcmul_bwd2")
    values = found("ops.rwkv7.fused_addcmul:fused_addcmul_rwkv7")(x, delta, r, w, k, v, a, g)
    return {f"o{name}": value for name, value in zip("rwkvag", values, strict=False) if value is not None}
