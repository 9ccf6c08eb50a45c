"""Attention of fla-core whose scores or values are changed on the way. Interesting: sequences beside a block, windows."""

import torch
from _fla import flash, found, one_dtype
from _recurrences import Gates
from _scores import alone, near, scored, weighed
from _states import RAGGED, H, K, N, T, V, gates, sequences

from fuzz import indices, option, size, tensor

GROUPS = size("GROUPS", 1, 3)
PARALLEL = dict(**{**RAGGED, "dims": (N, GROUPS)}, scale=option(None, 0.5), timeout=300.0)
FULL = ("float32",)
KEY, VALUE = size("KEY", 16, 64, multiple_of=16), size("VALUE", 16, 64, multiple_of=16)


def mild(w, beta):
    """Reflections that lengthen nothing, by no arithmetic that rounds."""
    return w.clamp(-0.125, 0.125), beta.abs().clamp(max=1.0)


def path_reference(q, k, v, w, beta, gate, ragged, ends, scale, cached):
    groups, ends = q.shape[2] // k.shape[2], ends if ragged else None

    def walked(k, w, beta, q):
        """Keys at the end of a sequence, and the scores of its queries, side by side in the last dim."""
        keys, rows = k[:, :0], []
        for place in range(k.shape[1]):
            side = w[:, place : place + 1]
            seen = (keys * side).sum(-1, keepdim=True) * beta[:, place : place + 1].unsqueeze(-1)
            keys = torch.cat([keys - seen * side, k[:, place : place + 1]], 1)
            row = (q[:, place : place + 1] * keys.repeat_interleave(groups, 2)).sum(-1)
            rows.append(torch.cat([row, row.new_zeros(len(k), k.shape[1] - place - 1, q.shape[2])], 1))
        return keys, torch.stack(rows, -1).permute(0, 2, 3, 1)

    def attended(q, k, v, w, beta, *forgets):
        scores = walked(k, w, beta, q)[1]
        for forget in forgets:
            sums = forget.cumsum(1).transpose(1, 2)
            scores = scores + sums.unsqueeze(-1) - sums.unsqueeze(-2)
        scores = scores * (q.shape[-1] ** -0.5 if scale is None else scale)
        return weighed(torch.softmax(torch.where(near(q.shape[1], None, q.device), scores, float("-inf")), -1), v)

    w, beta = mild(w, beta)
    y = alone(attended, ends, q, k, v, w, beta, *([] if gate is None else [gates(gate)]))
    if not cached:
        return dict(y=y)
    return dict(y=y, cache=alone(lambda *given: walked(*given)[0], ends, k, w, beta, q))


@flash(
    q=sequences(H * GROUPS, KEY), k=sequences(H, KEY), v=sequences(H, VALUE), w=sequences(H, KEY, dtypes=FULL),
    beta=sequences(H, dtypes=FULL), gate=sequences(H * GROUPS, dtypes=FULL) | None, cached=option(False, True),
    accumulate="bfloat16", dot="tf32", reference=path_reference, differentiable=dict(y=sequences(H * GROUPS, VALUE)),
    **PARALLEL,
)  # fmt: skip
def fla_path_attn(q, k, v, w, beta, gate, ragged, ends, scale, cached):
    """Attention along a path of reflections, which the library rounds to half precision on the way."""
    one_dtype(q, k, v)
    ends, function = ends if ragged else None, found("ops.path_attn:parallel_path_attn")
    y, cache = function(q, k, v, *mild(w, beta), gates(gate), scale=scale, cu_seqlens=ends, use_cache=cached)
    return dict(y=y, cache=cache) if cached else dict(y=y)


def parallax_reference(q, r, k, v, ragged, ends, scale, window):
    def attended(q, r, k, v):
        seen = near(q.shape[1], window, q.device)
        weights = torch.softmax(torch.where(seen, scored(q, k, scale), float("-inf")), -1)
        moves = scored(r, k, 1.0)
        # The mean of the moves of all keys less that of one: of a single key it is 0, however large it is.
        return weighed(weights * (1 + ((weights * moves).sum(-1, keepdim=True) - moves)), v)

    return dict(y=alone(attended, ends if ragged else None, q, r, k, v))


@flash(
    q=sequences(H * GROUPS, K), r=sequences(H * GROUPS, K), k=sequences(H, K), v=sequences(H, K),
    window=option(None, 1, 5, 64), dtypes=("bfloat16", "float16"), accumulate="inputs", dot="tf32",
    reference=parallax_reference, differentiable=dict(y=sequences(H * GROUPS, K)), **PARALLEL,
)  # fmt: skip
def fla_parallax(q, r, k, v, ragged, ends, scale, window):
    """Attention with a first-order correction, of half precision alone."""
    one_dtype(q, r, k, v)
    function = found("ops.parallax:parallel_parallax")
    return dict(y=function(q, r, k, v, scale=scale, window_size=window, cu_seqlens=ends if ragged else None))


D = size("D", 1, 16)


def wall_reference(q, k, v, g, gate, sink, ragged, ends, scale, window):
    factor = q.shape[-1] ** -0.5 if scale is None else scale

    def attended(q, k, v, g, *forgets):
        k, q = Gates.apply(gates(g), None, False, [], False, k.repeat_interleave(q.shape[2] // k.shape[2], 2), q)
        sums = gates(g.detach()).cumsum(1)
        seen = near(q.shape[1], window, q.device)
        apart = torch.where(seen[..., None, None], sums.unsqueeze(2) - sums.unsqueeze(1), 0.0)
        kept = (k.unsqueeze(1) * apart.exp()).unsqueeze(-2) @ q.unsqueeze(2).unsqueeze(-1)
        scores = kept.squeeze(-1).squeeze(-1).permute(0, 3, 1, 2) * factor
        for forget in forgets:
            total = forget.cumsum(1).transpose(1, 2)
            scores = scores + (total.unsqueeze(-1) - total.unsqueeze(-2))
        scores = torch.where(seen, scores, float("-inf"))
        if sink is not None:
            scores = torch.cat([scores, sink.reshape(1, -1, 1, 1).expand(*scores.shape[:3], 1)], -1)
        return weighed(torch.softmax(scores, -1)[..., : q.shape[1]], v)

    return dict(y=alone(attended, ends if ragged else None, q, k, v, g, *([] if gate is None else [gates(gate)])))


@flash(
    q=sequences(H * GROUPS, D), k=sequences(H, D), v=sequences(H, V), g=sequences(H * GROUPS, D),
    gate=sequences(H * GROUPS) | None, sink=tensor(H * GROUPS) | None, window=option(None, 1, 5, 64),
    accumulate="inputs", dot="tf32", reference=wall_reference, differentiable=dict(y=sequences(H * GROUPS, V)),
    **PARALLEL,
)  # fmt: skip
def fla_wall_attn(q, k, v, g, gate, sink, ragged, ends, scale, window):
    """Attention each channel of whose scores decays by a gate of its own."""
    one_dtype(q, k, v, g)
    more = dict(scale=scale, window_size=window, cu_seqlens=ends if ragged else None)
    function = found("ops.wall_attn:parallel_wall_attn")
    return dict(y=function(q, k, v, gates(g), g_scalar=gates(gate), sink_bias=sink, **more))


HEADS, BLOCKS = size("HEADS", 1, 2), size("BLOCKS", 1, 4)


def chosen(gaps, places, block):
    """Different blocks (T, H, S) for each place, its own first and then earlier ones; -1 for none."""
    own = torch.arange(places, device=gaps.device) // block
    steps = (gaps + 1).cumsum(-1) - (gaps + 1)[..., :1]
    return (own[:, None, None] - steps[:places]).clamp(min=-1)


def nsa_reference(q, k, v, gaps, selected, compressed, ragged, ends, scale, block):
    ends = ends if ragged else None
    groups = q.shape[2] // k.shape[2]

    def picked(q, k, v):
        places = torch.arange(q.shape[1], device=q.device) // block
        choice = chosen(gaps.long(), q.shape[1], block).repeat_interleave(groups, 1)
        mine = (choice.unsqueeze(-1) == places).any(2).transpose(0, 1) & near(q.shape[1], None, q.device)
        return weighed(torch.softmax(torch.where(mine, scored(q, k, scale), float("-inf")), -1), v)

    def pooled(q, k, v):
        means = [torch.stack([part.mean(1) for part in x.split(block, 1)], 1) for x in (k, v)]
        count = torch.arange(1, q.shape[1] + 1, device=q.device).unsqueeze(1) // block
        past = torch.arange(means[0].shape[1], device=q.device) < count
        scores = torch.where(past | (count == 0), scored(q, means[0], scale), float("-inf"))
        return weighed(torch.where(past, torch.softmax(scores, -1), 0.0), means[1])

    y = alone(picked, ends, q, k, v)
    y = y if selected is None else y * selected.unsqueeze(-1)
    return dict(y=y if compressed is None else y + alone(pooled, ends, q, k, v) * compressed.unsqueeze(-1))


@flash(
    q=sequences(16 * HEADS, K), k=sequences(HEADS, K), v=sequences(HEADS, V), selected=sequences(16 * HEADS) | None,
    gaps=indices(T, HEADS, BLOCKS, below=3), compressed=sequences(16 * HEADS) | None, block=option(16, 32), **RAGGED,
    scale=option(None, 0.5), timeout=300.0, accumulate="inputs", dot="tf32", reference=nsa_reference,
    differentiable=dict(y=sequences(16 * HEADS, V)),
)  # fmt: skip
def fla_nsa(q, k, v, gaps, selected, compressed, ragged, ends, scale, block):
    """Attention to blocks that are given, and to means of blocks."""
    one_dtype(q, k, v, selected, compressed)
    edges = ends.tolist() if ragged else [0, q.shape[1]]
    choice = torch.cat([chosen(gaps.long(), b - a, block) for a, b in zip(edges, edges[1:], strict=False)])
    choice = choice.expand(len(q), *choice.shape).contiguous()
    return dict(
        y=found("ops.nsa:parallel_nsa")(
            q, k, v, g_cmp=compressed, g_slc=selected, block_indices=choice, block_counts=choice.shape[-1],
            block_size=block, scale=scale, cu_seqlens=ends if ragged else None,
        )
    )  # fmt: skip
