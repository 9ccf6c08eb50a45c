"""Linear attention of fla-core: recurrent, chunked and parallel forms. Interesting: empty sequences, states in and out."""

import torch
from _fla import COMMON, SHARED, flash, found, one_dtype
from _recurrences import bonused, linear, scanned
from _states import QKV, RAGGED, STATES, B, H, K, T, V, carried, gates, sequences, states

from fuzz import option, size, tensor

WIDE, FEW = size("WIDE", 257, 300), size("FEW", 1, 40)
BROAD = {
    **STATES,
    "initial": states(H, WIDE, FEW) | None,
    "differentiable": dict(y=sequences(H, FEW), final=states(H, WIDE, FEW)),
}
NARROW = {
    **SHARED,
    **dict.fromkeys(
        ("*_intra_sub_intra_split*", "*_intra_sub_intra_merge*", "*`K <= 256`*"),
        "keys are 257 wide and wider at another target",
    ),
}
WIDER = {
    **SHARED,
    "*_intra_sub_intra is never launched*": "keys are narrower at another target",
    "*`K <= 256`*": "keys are narrower at another target",
}


def gla_reference(q, k, v, gate, values, ragged, ends, v_first, reverse, **given):
    ends = ends if ragged else None
    gate, values = gates(gate), gates(values.detach()) if values is not None else None
    return linear(q, k, v, gate=gate, values=values, ends=ends, reverse=reverse, **given)


@flash(
    **QKV, gate=sequences(H, K) | None, values=sequences(H, V) | None, reverse=option(False, True),
    v_first=option(False, True), reference=gla_reference, **STATES,
)  # fmt: skip
def fla_recurrent_gla(q, k, v, gate, values, **given):
    """Gated linear attention step by step, with gates of keys and of values."""
    one_dtype(q, k, v)
    values = gates(values.detach()) if values is not None else None
    return carried("ops.gla:fused_recurrent_gla", q, k, v, gk=gates(gate), gv=values, **given)


def chunk_gla_reference(q, k, v, gate, ragged, ends, v_first, **given):
    return linear(q, k, v, gate=gates(gate), ends=ends if ragged else None, **given)


@flash(
    **QKV, gate=sequences(H, K), v_first=option(False, True), dot="tf32", reference=chunk_gla_reference,
    unreached=NARROW, **STATES,
)  # fmt: skip
def fla_chunk_gla(q, k, v, gate, **given):
    """Gated linear attention in chunks."""
    one_dtype(q, k, v, gate)
    return carried("ops.gla:chunk_gla", q, k, v, gates(gate), **given)


@flash(
    q=sequences(H, WIDE), k=sequences(H, WIDE), v=sequences(H, FEW), gate=sequences(H, WIDE),
    v_first=option(False, True), dot="tf32", reference=chunk_gla_reference, unreached=WIDER, **BROAD,
)  # fmt: skip
def fla_chunk_gla_wide(q, k, v, gate, **given):
    """The same with keys so wide that several programs share one."""
    return fla_chunk_gla(q, k, v, gate, **given)


def simple_reference(q, k, v, gate, ragged, ends, reverse=False, v_first=False, **given):
    return linear(q, k, v, gate=gates(gate), ends=ends if ragged else None, reverse=reverse, **given)


@flash(
    **QKV, gate=sequences(H) | None, reverse=option(False, True), v_first=option(False, True),
    reference=simple_reference, **STATES,
)  # fmt: skip
def fla_recurrent_simple_gla(q, k, v, gate, **given):
    """Linear attention with one gate a head, step by step."""
    one_dtype(q, k, v)
    return carried("ops.simple_gla:fused_recurrent_simple_gla", q, k, v, gates(gate), **given)


@flash(
    **QKV, gate=sequences(H) | None, v_first=option(False, True), dot="tf32", reference=simple_reference, **STATES
)  # fmt: skip
def fla_chunk_simple_gla(q, k, v, gate, **given):
    """Linear attention with one gate a head, in chunks."""
    one_dtype(q, k, v)
    return carried("ops.simple_gla:chunk_simple_gla", q, k, v, gates(gate), **given)


@flash(**QKV, gate=sequences(H) | None, dot="tf32", reference=simple_reference, **STATES)
def fla_fused_chunk_simple_gla(q, k, v, gate, **given):
    """Linear attention with one gate a head, in chunks of one kernel."""
    one_dtype(q, k, v)
    return carried("ops.simple_gla:fused_chunk_simple_gla", q, k, v, gates(gate), **given)


def parallel_reference(q, k, v, gate, ragged, ends, scale):
    return linear(q, k, v, gate=gates(gate), initial=None, ends=ends if ragged else None, scale=scale, keep=False)


PARALLEL = dict(
    **RAGGED, scale=option(None, 0.5), differentiable=dict(y=sequences(H, V)), timeout=300.0, accumulate="inputs",
    dot="tf32",
)  # fmt: skip


@flash(**QKV, gate=sequences(H) | None, reference=parallel_reference, **PARALLEL)
def fla_parallel_simple_gla(q, k, v, gate, ragged, ends, scale):
    """Linear attention with one gate a head, as attention."""
    one_dtype(q, k, v)
    function = found("ops.simple_gla:parallel_simple_gla")
    return dict(y=function(q, k, v, gates(gate), scale=scale, cu_seqlens=ends if ragged else None)[0])


def constant(v, decays):
    """Gates of heads that are the same at every place; they need no gradient."""
    return decays.to(v).expand(*v.shape[:3])


def retention_decays(v):
    heads = torch.arange(v.shape[2], dtype=torch.float64, device=v.device)
    return (-(2.0 ** (-5.0 - heads))).log1p()


def retention_reference(q, k, v, ragged, ends, reverse=False, v_first=False, **given):
    gate = constant(v, retention_decays(v))
    return linear(q, k, v, gate=gate, ends=ends if ragged else None, reverse=reverse, **given)


@flash(
    **QKV, reverse=option(False, True), v_first=option(False, True), reference=retention_reference, **STATES
)  # fmt: skip
def fla_recurrent_retention(q, k, v, **given):
    """Retention step by step."""
    one_dtype(q, k, v)
    return carried("ops.retention:fused_recurrent_retention", q, k, v, **given)


@flash(
    **QKV,
    fused=option(False, True),
    dot="tf32",
    reference=lambda fused, **given: retention_reference(**given),
    **STATES,
)
def fla_chunk_retention(q, k, v, fused, **given):
    """Retention in chunks."""
    one_dtype(q, k, v)
    return carried(f"ops.retention:{'fused_' if fused else ''}chunk_retention", q, k, v, **given)


def parallel_retention_reference(q, k, v, ragged, ends, scale):
    return retention_reference(q, k, v, ragged, ends, initial=None, scale=scale, keep=False)


@flash(**QKV, reference=parallel_retention_reference, **PARALLEL)
def fla_parallel_retention(q, k, v, ragged, ends, scale):
    """Retention as attention."""
    one_dtype(q, k, v)
    function = found("ops.retention:parallel_retention")
    return dict(y=function(q, k, v, scale=scale, cu_seqlens=ends if ragged else None)[0])


LAYERS = size("LAYERS", 1, 4)


def lightning_reference(q, k, v, layer, form, ragged, ends, **given):
    heads = torch.arange(v.shape[2], dtype=torch.float64, device=v.device)
    gate = constant(v, -(8 / v.shape[2] * (1 - layer / 4)) * heads)
    return linear(q, k, v, gate=gate, ends=ends if ragged else None, **given)


@flash(
    **QKV, layer=option(0, 1, 3), form=option("fused_recurrent", "chunk"), dot="tf32",
    reference=lightning_reference, **STATES,
)  # fmt: skip
def fla_lightning_attn(q, k, v, layer, form, **given):
    """Lightning attention of a layer of four."""
    one_dtype(q, k, v)
    return carried(f"ops.lightning_attn:{form}_lightning_attn", q, k, v, layer_idx=layer, num_layers=4, **given)


def plain_reference(q, k, v, form, ragged, ends, **given):
    return linear(q, k, v, ends=ends if ragged else None, **given)


@flash(
    **QKV, form=option("chunk", "fused_chunk", "fused_recurrent"), dot="tf32", reference=plain_reference, **STATES
)  # fmt: skip
def fla_linear_attn(q, k, v, form, **given):
    """Linear attention without gates and without a denominator."""
    one_dtype(q, k, v)
    return carried(f"ops.linear_attn:{form}_linear_attn", q, k, v, normalize=False, **given)


def normalized_reference(q, k, v, form, ragged, ends, scale):
    ends = ends if ragged else None
    q, k = q.abs(), k.abs()
    y = linear(q, k, v, initial=None, ends=ends, scale=scale, keep=False)["y"]
    total = linear(q, k, torch.ones_like(v[..., :1]).detach(), initial=None, ends=ends, scale=scale, keep=False)["y"]
    return dict(y=y / (total + 1e-10))


@flash(
    **QKV, form=option("chunk", "fused_chunk", "fused_recurrent"), reference=normalized_reference, **PARALLEL
)  # fmt: skip
def fla_linear_attn_normalized(q, k, v, form, ragged, ends, scale):
    """Linear attention over the sum of its weights, which the magnitudes of queries and keys are made of."""
    one_dtype(q, k, v)
    function = found(f"ops.linear_attn:{form}_linear_attn")
    return dict(y=function(q.abs(), k.abs(), v, scale=scale, normalize=True, cu_seqlens=ends if ragged else None)[0])


def rwkv6_reference(r, k, v, w, u, ragged, ends, **given):
    return bonused(r, k, v, u, gates(w.detach()), ends=ends if ragged else None, **given)


RKVW = dict(r=sequences(H, K), k=sequences(H, K), v=sequences(H, V), w=sequences(H, K), u=tensor(H, K))


@flash(**RKVW, reverse=option(False, True), reference=rwkv6_reference, **STATES)
def fla_recurrent_rwkv6(r, k, v, w, u, **given):
    """RWKV6 step by step; its gates get no gradient here."""
    one_dtype(r, k, v, w, u)
    return carried("ops.rwkv6:fused_recurrent_rwkv6", r, k, v, gates(w.detach()), u, **given)


@flash(**RKVW, dot="tf32", reference=rwkv6_reference, unreached={**NARROW, "fla/ops/gla/*:*": COMMON}, **STATES)
def fla_chunk_rwkv6(r, k, v, w, u, **given):
    """RWKV6 in chunks; its gates get no gradient here."""
    one_dtype(r, k, v, w, u)
    return carried("ops.rwkv6:chunk_rwkv6", r, k, v, gates(w.detach()), u, **given)


@flash(
    r=sequences(H, WIDE), k=sequences(H, WIDE), v=sequences(H, FEW), w=sequences(H, WIDE), u=tensor(H, WIDE),
    dot="tf32", reference=rwkv6_reference, unreached=WIDER, **BROAD,
)  # fmt: skip
def fla_chunk_rwkv6_wide(r, k, v, w, u, **given):
    """The same with keys so wide that several programs share one."""
    return fla_chunk_rwkv6(r, k, v, w, u, **given)


D = size("D", 1, 150)


def hgrn_reference(x, g, ragged, ends, initial, keep):
    def step(state, x, g):
        state = g.exp() * state + x
        return state, state

    ends = ends if ragged else None
    count = len(x) if ends is None else len(ends) - 1
    first = initial if initial is not None else torch.zeros(count, x.shape[-1], dtype=x.dtype, device=x.device)
    y, final = scanned(step, first, ends, False, x, gates(g))
    return dict(y=y, final=final) if keep else dict(y=y)


@flash(
    x=sequences(D), g=sequences(D), **RAGGED, initial=states(D) | None, keep=option(True, False),
    reference=hgrn_reference, differentiable=dict(y=sequences(D), final=states(D)), timeout=300.0,
    accumulate="inputs",
)  # fmt: skip
def fla_recurrent_hgrn(x, g, **given):
    """A gated sum step by step."""
    one_dtype(x, g)
    return carried("ops.hgrn:fused_recurrent_hgrn", x, gates(g), **given)


@flash(
    x=tensor(B, T, D), g=tensor(B, T, D), initial=tensor(B, D, dtypes=("float32",)) | None, timeout=300.0,
    accumulate="inputs", differentiable=dict(y=tensor(B, T, D)),
    reference=lambda x, g, initial: hgrn_reference(x, g, False, None, initial, False),
)  # fmt: skip
def fla_chunk_hgrn(x, g, initial):
    """A gated sum in chunks."""
    one_dtype(x, g)
    return dict(y=found("ops.hgrn.chunk:chunk_hgrn")(x, gates(g), initial)[0])
