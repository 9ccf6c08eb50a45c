"""Attention of fla-core through a few slots that forget. Interesting: slots that take nothing in, empty sequences."""

import torch
from _fla import SHARED, flash, found, one_dtype
from _recurrences import cumulative, linear
from _states import RAGGED, STATES, B, H, K, N, T, V, gates, sequences, states

from fuzz import option, size, tensor

M, GROUPS = size("M", 1, 40), size("GROUPS", 1, 3)


def additive_reference(s, initial, halved, ragged, ends):
    share, gate, final = cumulative(s, ends if ragged else None, initial)
    return dict(share=share, gate=gate, final=final)


@flash(
    s=sequences(H, M), initial=states(1, H, M) | None, halved=option(False, True), **RAGGED, timeout=300.0,
    accumulate="inputs", reference=additive_reference,
    differentiable=dict(share=sequences(H, M), gate=sequences(H, M), final=states(1, H, M)),
)  # fmt: skip
def fla_additive_gate(s, initial, halved, ragged, ends):
    """Shares of a running sum of exponentials, which may have begun before, and how much of it each place keeps."""
    more = dict(output_dtype=torch.float16, gate_dtype=torch.float32) if halved else {}
    share, gate, final = found("ops.gsa.gate:fused_additive_gate")(s, initial, ends if ragged else None, **more)
    return dict(share=share, gate=gate, final=final)


def slots(q, k, v, s, gate, keys, values, ends, scale, keep, reverse=False):
    """Queries read slots of keys, and what they find there reads slots of values; both forget by the same gates."""
    keys, values = both(keys, values) or (None, None)
    q, k, v, s = (part.repeat_interleave(q.shape[2] // part.shape[2], 2) for part in (q, k, v, s))
    if gate is None:
        s, gate, _ = cumulative(s, ends)
    else:
        gate = gates(gate).repeat_interleave(q.shape[2] // gate.shape[2], 2)
    keys, values = (
        part if part is None else part.repeat_interleave(q.shape[2] // part.shape[1], 1) for part in (keys, values)
    )
    given = dict(ends=ends, keep=keep, reverse=reverse)
    first = linear(q, k, s, initial=keys, scale=scale, values=gate, **given)
    second = linear(first["y"].softmax(-1), s, v, initial=values, scale=1.0, gate=gate, **given)
    return dict(y=second["y"], **(dict(keys_after=first["final"], values_after=second["final"]) if keep else {}))


def both(keys, values):
    """The two initial states together: none of them where one is left out."""
    return None if keys is None or values is None else (keys, values)


def gsa_reference(q, k, v, s, gate, keys, values, ragged, ends, level=0, **given):
    y = slots(q, k, v, s, gate, keys, values, ends if ragged else None, **given)
    groups = q.shape[2] // k.shape[2]
    return {name: value if name == "y" else value[:, ::groups] for name, value in y.items()}


GSA = dict(
    k=sequences(H, K), v=sequences(H, V), s=sequences(H, M), gate=sequences(H, M) | None, keys=states(H, K, M) | None,
    values=states(H, M, V) | None, reference=gsa_reference,
    **{name: value for name, value in STATES.items() if name not in ("initial", "differentiable", "dims")},
)  # fmt: skip
ONE = "fla_gsa_step has one place without gradients"
SEVERAL = "fla_recurrent_gsa has several places, and gradients"
AFTER = dict(keys_after=states(H, K, M), values_after=states(H, M, V))


def slotted(place, q, k, v, s, gate, keys, values, ragged, ends, keep, **given):
    one_dtype(q, k, v, s)
    y, after = found(place)(
        q, k, v, s, gates(gate), initial_state=both(keys, values), output_final_state=keep,
        cu_seqlens=ends if ragged else None, **given,
    )  # fmt: skip
    return dict(y=y, **(dict(keys_after=after[0], values_after=after[1]) if keep else {}))


@flash(
    q=sequences(H * GROUPS, K), level=option(2, 0, 1), dims=(N, GROUPS), dot="tf32", **GSA,
    differentiable=dict(y=sequences(H * GROUPS, V), **AFTER),
)  # fmt: skip
def fla_chunk_gsa(level, **given):
    """Gated slot attention in chunks."""
    return slotted("ops.gsa:chunk_gsa", checkpoint_level=level, **given)


@flash(
    q=sequences(H, K), reverse=option(False, True), dims=(N,), **GSA, differentiable=dict(y=sequences(H, V), **AFTER),
    unreached={**SHARED, "*_inference*": ONE, "*needs_input_grad*": ONE, "fla/ops/gsa/gate.py:*": "fla_additive_gate has the rest"},
)  # fmt: skip
def fla_recurrent_gsa(**given):
    """Gated slot attention step by step."""
    if given["reverse"] and given["gate"] is None:
        raise NotImplementedError("slots are normalized from the beginning on")
    return slotted("ops.gsa:fused_recurrent_gsa", **given)


@flash(
    q=tensor(B, 1, H * GROUPS, K), k=tensor(B, 1, H, K), v=tensor(B, 1, H, V), s=tensor(B, 1, H, M),
    gate=tensor(B, 1, H, M) | None, keys=tensor(B, H, K, M, dtypes=("float32",)) | None,
    values=tensor(B, H, M, V, dtypes=("float32",)) | None, dims=(GROUPS,), keep=option(True, False),
    scale=option(None, 0.5), timeout=120.0, accumulate="inputs",
    reference=lambda **given: gsa_reference(ragged=False, ends=None, **given),
    unreached={
        **SHARED,
        **dict.fromkeys(("*_gsa_fwd*", "*_gsa_bwd*", "*.backward*", "*.forward: lines*", "*cu_seqlens*"), SEVERAL),
        "*needs_input_grad*": SEVERAL, "fla/ops/gsa/gate.py:*": "fla_additive_gate has the rest",
    },
)  # fmt: skip
def fla_gsa_step(**given):
    """One place of gated slot attention, as a decoder computes it, of which several queries may share a key."""
    return slotted("ops.gsa:fused_recurrent_gsa", ragged=False, ends=None, **given)


SLOTS = size("SLOTS", 16, 64, multiple_of=16)


def abc_reference(q, k, v, s, keys, values, keep):
    return slots(q, k, v, s, None, keys, values, None, None, keep)


@flash(
    q=tensor(B, T, H, K), k=tensor(B, T, H, K), v=tensor(B, T, H, V), s=tensor(B, T, H, SLOTS),
    keys=tensor(B, H, K, SLOTS, dtypes=("float32",)) | None, values=tensor(B, H, SLOTS, V, dtypes=("float32",)) | None,
    keep=option(True, False), timeout=300.0, accumulate="inputs", reference=abc_reference,
    differentiable=dict(
        y=tensor(B, T, H, V), keys_after=tensor(B, H, K, SLOTS, dtypes=("float32",)),
        values_after=tensor(B, H, SLOTS, V, dtypes=("float32",)),
    ),
)  # fmt: skip
def fla_chunk_abc(q, k, v, s, keys, values, keep):
    """Attention with bounded memory: slots that are filled by a softmax over time."""
    one_dtype(q, k, v, s)
    y, after = found("ops.abc:chunk_abc")(q, k, v, s, both(keys, values), keep)
    return dict(y=y, **(dict(keys_after=after[0], values_after=after[1]) if keep else {}))
