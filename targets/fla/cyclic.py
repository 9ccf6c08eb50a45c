"""Cyclic flow attention of fla-core. Interesting: numbers of slots that fill no block, phases over several turns."""

import math

import torch
from _fla import SHARED, flash, found, one_dtype
from _recurrences import scanned
from _states import RAGGED, B, H, K, N, V, gates, sequences, states

from fuzz import option, size, tensor

P = size("P", 1, 9)
"""Half the number of slots: a constant and its unused mate, and pairs of cosines and sines."""
EPS = 1e-6


def normed(x, weight):
    return x / (x.square().mean(-1, keepdim=True) + EPS).sqrt() * weight


def basis(slots, like):
    """Cosines in even columns and sines in odd ones, of all frequencies, at each of `slots - 1` places."""
    count = slots - 1
    places, columns = torch.arange(count, device=like.device), torch.arange(slots, device=like.device)
    angle = torch.outer(places, columns // 2).to(like) * (2 * math.pi / count)
    values = torch.where(columns % 2 == 1, angle.sin(), angle.cos()) * math.sqrt(2 / count)
    values[:, 0], values[:, 1] = 1 / math.sqrt(count), 0.0
    return values


def phases(turn, slots):
    """The angles of all slots, of which whole places are taken off before a rest is added, as kernels do."""
    period, pair = slots - 1, (torch.arange(slots, device=turn.device) // 2).to(turn)
    whole = turn.floor()
    place = torch.remainder(whole * pair, period) + (turn - whole) * pair
    return torch.where(place > period / 2, place - period, place) * (2 * math.pi / period)


def turned(x, cos, sin, sign):
    """Pairs of slots turned by an angle, or with the sign -1 back."""
    mates = x.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
    signs = torch.tensor([-sign, sign], dtype=x.dtype, device=x.device).repeat(x.shape[-1] // 2)
    return cos * x + sin * signs * mates


def cyclic_reference(
    q, k, v, g, delta, beta, readout, q_weight, k_weight, keys, values, turn, ragged, ends, keep, scale
):
    q, k, ends = normed(q, q_weight), normed(k, k_weight), ends if ragged else None
    slots, heads = readout.shape[-1] + 1, q.shape[2]
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    table = readout @ basis(slots, readout)
    columns = torch.arange(slots, device=q.device)
    size_of = torch.where(columns < 2, 1.0, 2.0).to(q).div(slots - 1).sqrt()
    is_sine = columns % 2 == 1
    count = len(q) if ends is None else len(ends) - 1

    def or_zeros(state, *shape):
        return torch.zeros(count, *shape, dtype=q.dtype, device=q.device) if state is None else state

    keys, values = or_zeros(keys, heads, q.shape[-1], slots), or_zeros(values, heads, slots, v.shape[-1])
    widths = (q.shape[-1] * slots, slots * v.shape[-1], 1)
    begin = torch.cat([keys.flatten(2), values.flatten(2), or_zeros(turn, heads).unsqueeze(-1)], -1)

    def step(state, v, q, k, forget, delta, beta):
        keys, values, turn = state.split(widths, -1)
        turn = turn + delta.unsqueeze(-1)
        phase = phases(turn, slots)
        cos, sin = phase.cos(), phase.sin()
        write = beta.unsqueeze(-1) * size_of * torch.where(is_sine, -sin, cos)
        forget = forget.exp()[..., None, None]
        keys = keys.unflatten(-1, (-1, slots)) * forget + k.unsqueeze(-1) @ write.unsqueeze(-2)
        values = values.unflatten(-1, (slots, -1)) * forget + write.unsqueeze(-1) @ v.unsqueeze(-2)
        scores = turned((q.unsqueeze(-2) @ keys).squeeze(-2) * factor, cos, sin, 1.0)
        shares = (table @ scores.unsqueeze(-1)).squeeze(-1).softmax(-1)
        weights = turned((shares.unsqueeze(-2) @ table).squeeze(-2), cos, sin, -1.0)
        y = (weights.unsqueeze(-2) @ values).squeeze(-2)
        return y, torch.cat([keys.flatten(2), values.flatten(2), turn], -1)

    y, final = scanned(step, begin, ends, False, v, q, k, gates(g), delta, beta)
    if not keep:
        return dict(y=y)
    keys, values, turn = final.split(widths, -1)
    keys, values = keys.unflatten(-1, (-1, slots)), values.unflatten(-1, (slots, -1))
    return dict(y=y, keys_after=keys, values_after=values, turn_after=turn.squeeze(-1))


def declared(sequences, states):
    """The arguments of a form of the attention, where these make the shapes of sequences and of states."""
    numbers = sequences(H)
    return dict(
        q=sequences(H, K), k=sequences(H, K), v=sequences(H, V), g=numbers, delta=numbers, beta=numbers,
        readout=tensor(H, 2 * P - 1, 2 * P - 1), q_weight=tensor(K), k_weight=tensor(K), keys=states(H, K, 2 * P),
        values=states(H, 2 * P, V), turn=states(H), begun=option(False, True), keep=option(True, False),
        scale=option(None, 0.5), timeout=300.0, accumulate="inputs",
    )  # fmt: skip


CACHE = {
    "*cache_entry is not None*": "no two calls are given the same tensor",
    "*_tensor_version*": "inference mode alone",
}


def begun_reference(keys, values, turn, begun, **given):
    first = (keys, values, turn) if begun else (None, None, None)
    return cyclic_reference(**dict(zip(("keys", "values", "turn"), first, strict=True)), **given)


def flowed(
    place, q, k, v, g, delta, beta, readout, q_weight, k_weight, keys, values, turn, begun, ragged, ends, keep, scale, **more
):  # fmt: skip
    one_dtype(q, k, v, g, delta, beta, readout, q_weight, k_weight)
    y, final = found(place)(
        q, k, v, gates(g), delta, beta, readout, q_norm_weight=q_weight, k_norm_weight=k_weight, q_norm_eps=EPS,
        k_norm_eps=EPS, scale=scale, initial_state=(keys, values, turn) if begun else None, output_final_state=keep,
        cu_seqlens=ends if ragged else None, **more,
    )  # fmt: skip
    if not keep:
        return dict(y=y)
    return dict(y=y, keys_after=final[0], values_after=final[1], turn_after=final[2])


@flash(
    **declared(sequences, states), **{**RAGGED, "dims": (N, P)}, dot="tf32", reference=begun_reference,
    unreached={**SHARED, **CACHE, "*decode*": "fla_cyclic_step has one place"},
)  # fmt: skip
def fla_recurrent_cyclic(q, k, v, **given):
    """Attention over slots on a circle that turns, step by step, which has no backward."""
    return flowed("ops.cyfa:fused_recurrent_cyfa", q, k, v, **given)


@flash(
    **declared(sequences, states), **{**RAGGED, "dims": (N, P)}, level=option(0, 1), dot="tf32",
    reference=lambda level, g, **given: begun_reference(g=g.detach(), **given),
    differentiable=dict(
        y=sequences(H, V), keys_after=states(H, K, 2 * P), values_after=states(H, 2 * P, V), turn_after=states(H)
    ),
)  # fmt: skip
def fla_chunk_cyclic(q, k, v, g, level, **given):
    """Attention over slots on a circle that turns, in chunks; its gates get no gradient here."""
    return flowed("ops.cyfa:chunk_cyfa", q, k, v, g.detach(), checkpoint_level=level, **given)


def one_place(*dims):
    return tensor(B, 1, *dims)


def one_state(*dims):
    return tensor(B, *dims, dtypes=("float32",))


DECODER = (
    "*cyfa_k_kernel*", "*cyfa_v_kernel*", "*cyfa_readout_kernel*", "*rotate_*_2d*", "*qk_rmsnorm*", "*cu_seqlens*", "*: lines *",
    "*_k_recurrent_feature*",
)  # fmt: skip


@flash(
    **declared(one_place, one_state), dims=(P,),
    reference=lambda **given: begun_reference(ragged=False, ends=None, **given),
    unreached={**SHARED, **CACHE, **dict.fromkeys(DECODER, "fla_recurrent_cyclic has several places")},
)  # fmt: skip
def fla_cyclic_step(q, k, v, **given):
    """One place of it, as a decoder computes it."""
    return flowed("ops.cyfa:fused_recurrent_cyfa", q, k, v, ragged=False, ends=None, **given)
