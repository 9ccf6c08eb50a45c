"""Log-linear attention of fla-core. Interesting: lengths around powers of two, more heads of values than of keys."""

import torch
from _fla import SHARED, flash, found, one_dtype
from _states import B, H, N, gates

from fuzz import by_option, option, prefix_sums, size, tensor

FAR = "these levels are of 512 places and more, and the reference takes all pairs of them"
LEVELS = 9
"""One more than there are binary digits in a place: enough for sequences of up to 256."""
LEVELS_BEYOND = {
    **dict.fromkeys((f"*MAX_LEVEL >= {level}`*" for level in range(3, 12)), FAR),
    **dict.fromkeys((f"*KV_{level}_*" for level in range(4, 12)), FAR),
    **dict.fromkeys(("*`MIN_LEVEL <= 1` is never false*", "*`MIN_LEVEL == *"), "levels begin with the first"),
}
GOES_ON = dict.fromkeys(
    ("*copy_input_kernel*", "*USE_INITIAL_STATE*", "*initial_state is not None*", "*offsets is not None*"),
    "fla_log_linear_states goes on with states",
)
WITHOUT = "fla_chunk_log_linear_attn has the backward"
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


def attended(scale, q, k, v, g, scales):
    """What queries (B, T, G, K) take of sequences of one length."""
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    q, k = (x.repeat_interleave(v.shape[2] // q.shape[2], 2).transpose(1, 2) for x in (q, k))
    scores = q @ k.transpose(-1, -2) * weights(gates(g), scales)
    return (scores @ v.transpose(1, 2)).transpose(1, 2) * factor


def spans(ragged, ends, places, start=0):
    """Where each of the sequences stands, which begin at a place."""
    edges = ends.tolist() if ragged else [0, places]
    return [slice(start + first, start + last) for first, last in zip(edges, edges[1:], strict=False)]


def log_linear_reference(q, k, v, g, scales, ragged, ends, keep, scale):
    inputs = (q, k, v, g, scales)
    parts = [attended(scale, *(x[:, span] for x in inputs)) for span in spans(ragged, ends, q.shape[1])]
    return dict(y=torch.cat(parts, 1))


CHUNKS, REST = size("CHUNKS", 0, 3), size("REST", 1, 64)
T = 64 * CHUNKS + REST


def sequences(*dims):
    """As for other recurrences, but of several chunks in most cases: levels are those of chunks."""
    return by_option("ragged", {False: tensor(B, T, *dims), True: tensor(1, T, *dims)})


@flash(
    q=sequences(G, K), k=sequences(G, K), v=sequences(G * H, V), g=sequences(G * H), scales=sequences(G * H, LEVELS),
    ragged=option(False, True), ends=prefix_sums(N + 1, total=T), dims=(H, N, CHUNKS, REST), keep=option(False, True), scale=option(1.0, None), differentiable=dict(y=sequences(G * H, V)),
    timeout=300.0, accumulate="inputs", dot="tf32", reference=log_linear_reference,
    unreached={**SHARED, **LEVELS_BEYOND, **GOES_ON},
)  # fmt: skip
def fla_chunk_log_linear_attn(q, k, v, g, scales, ragged, ends, keep, scale):
    """Attention whose gated sums have a scale for each level of a binary tree of places, in chunks."""
    one_dtype(q, k, v, g, scales)
    function = found("ops.log_linear_attn:chunk_log_linear_attn")
    ends = ends if ragged else None
    y, _ = function(q, k, v, gates(g), scales, output_final_state=keep, cu_seqlens=ends, scale=scale)
    return dict(y=y)


AFTER_CHUNKS, AFTER_REST = size("AFTER_CHUNKS", 0, 1), size("AFTER_REST", 1, 64)
BEFORE, AFTER = size("BEFORE", 1, 128), 64 * AFTER_CHUNKS + AFTER_REST
BOTH = BEFORE + AFTER


def both(*dims):
    """The places of two calls one after the other, of sequences of one length or of several."""
    return by_option("ragged", {False: tensor(B, BOTH, *dims), True: tensor(1, BOTH, *dims)})


def continued_reference(q, k, v, g, scales, before, ragged, ends_before, ends, keep, scale):
    inputs, first, second = (q, k, v, g, scales), [], []
    for one, two in zip(
        spans(ragged, ends_before, before), spans(ragged, ends, q.shape[1] - before, before), strict=True
    ):
        y = attended(scale, *(torch.cat([x[:, one], x[:, two]], 1) for x in inputs))
        first.append(y[:, : one.stop - one.start])
        second.append(y[:, one.stop - one.start :])
    return dict(y=torch.cat([*first, *second], 1))


@flash(
    q=both(G, K), k=both(G, K), v=both(G * H, V), g=both(G * H), scales=both(G * H, LEVELS), before=BEFORE,
    ragged=option(False, True), ends_before=prefix_sums(N + 1, total=BEFORE), ends=prefix_sums(N + 1, total=AFTER),
    dims=(H, N, AFTER_CHUNKS, AFTER_REST), keep=option(False, True), scale=option(1.0, None), dtypes=("float32", "bfloat16", "float16"),
    timeout=300.0, accumulate="inputs", dot="tf32",
    reference=continued_reference,
    unreached={**SHARED, **LEVELS_BEYOND, "*_bwd_*": WITHOUT, "*.backward*": WITHOUT, "*masks *": WITHOUT, "*binary_level*": WITHOUT},
)  # fmt: skip
def fla_log_linear_states(q, k, v, g, scales, before, ragged, ends_before, ends, keep, scale):
    """The same in two calls, of which the second goes on with the states of the first, which has no backward."""
    one_dtype(q, k, v, g, scales)
    function, outputs, state = found("ops.log_linear_attn:chunk_log_linear_attn"), [], None
    for span, edges in ((slice(before), ends_before), (slice(before, None), ends)):
        parts = (x[:, span] for x in (q, k, v, gates(g), scales))
        more = dict(output_final_state=keep or state is None, cu_seqlens=edges if ragged else None, scale=scale)
        y, state = function(*parts, initial_state=state, **more)
        outputs.append(y)
    return dict(y=torch.cat(outputs, 1))
