"""Linear attention, retention, delta rules and softmax attention of fla-core, over (batch, length, heads, head)."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from fla.ops import (
    attn,
    delta_rule,
    forgetting_attn,
    gated_delta_rule,
    gla,
    hgrn,
    kda,
    linear_attn,
    retention,
    rwkv6,
    simple_gla,
)
from fla_modules import operation

from benchmarks.libraries.operations import Check, Draw, check

HALF = (torch.bfloat16, torch.float16)


def sizes(draw: Draw) -> tuple[int, int, int, int]:
    """Batch, length, heads, head: one shape inside a chunk of 64, the other beyond it."""
    return draw.pick((1, 20, 2, 16), (2, 70, 1, 32))


def queries(draw: Draw) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return draw.leaf(*sizes(draw)), draw.leaf(*sizes(draw)), draw.leaf(*sizes(draw))


def unit_queries(draw: Draw) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Keys of length one: a delta rule is stable with them."""
    return (
        draw.leaf(*sizes(draw)),
        draw.leaf_of(F.normalize(draw.fixed(*sizes(draw)).float(), dim=-1)),
        draw.leaf(*sizes(draw)),
    )


def decay(draw: Draw, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Logarithms of forgetting: below zero."""
    return F.logsigmoid(draw.fixed(*shape, dtype=torch.float32)).to(dtype or draw.dtype).requires_grad_()


def recurrence(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    gate: torch.Tensor | None = None,
    beta: torch.Tensor | None = None,
    bonus: torch.Tensor | None = None,
    scale: float | None = None,
) -> torch.Tensor:
    """The state forgets by exp(gate), takes k v' in (beta: what v lacks of it), and is read by q.

    `gate` as (batch, length, heads) or with one value for each key. `bonus` (heads, head) weighs the newest entry
    instead of the state that holds it.
    """
    batch, length, heads, _ = q.shape
    state = q.new_zeros(batch, heads, q.shape[-1], v.shape[-1])
    outputs = []
    for t in range(length):
        key, value = k[:, t], v[:, t]
        forget = 1.0
        if gate is not None:
            forget = gate[:, t].exp().reshape(batch, heads, -1, 1)
        if bonus is not None:
            read = state + (bonus * key).unsqueeze(-1) * value.unsqueeze(-2)
            state = state * forget + key.unsqueeze(-1) * value.unsqueeze(-2)
        else:
            state = state * forget
            if beta is not None:
                value = beta[:, t].unsqueeze(-1) * (value - torch.einsum("bhk,bhkv->bhv", key, state))
            state = read = state + key.unsqueeze(-1) * value.unsqueeze(-2)
        outputs.append(torch.einsum("bhk,bhkv->bhv", q[:, t], read))
    return torch.stack(outputs, 1) * (q.shape[-1] ** -0.5 if scale is None else scale)


def retained(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Heads forget at fixed rates (Sun et al., 2023)."""
    rates = (1 - 2.0 ** (-5.0 - torch.arange(q.shape[2], dtype=q.dtype))).log()
    return recurrence(q, k, v, rates.expand(*q.shape[:3]))


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, gate: torch.Tensor | None = None) -> torch.Tensor:
    """Causal softmax attention; what lies between two positions fades by the sum of their gates (Lin et al., 2025)."""
    length = q.shape[1]
    scores = torch.einsum("bihk,bjhk->bhij", q, k) / math.sqrt(q.shape[-1])
    if gate is not None:
        total = gate.cumsum(1).transpose(1, 2)
        scores = scores + total.unsqueeze(-1) - total.unsqueeze(-2)
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    return torch.einsum("bhij,bjhv->bihv", scores.masked_fill(future, float("-inf")).softmax(-1), v)


def first(function: Callable[..., object], **fixed: object) -> Callable[..., object]:
    """The output of a function that returns a state as well."""
    return lambda *inputs: function(*inputs, **fixed)[0]


@operation
def retention_chunk(draw: Draw) -> Check:
    return check(first(retention.chunk_retention), retained, *queries(draw))


@operation
def retention_parallel(draw: Draw) -> Check:
    return check(first(retention.parallel_retention), retained, *queries(draw))


@operation
def retention_recurrent(draw: Draw) -> Check:
    return check(first(retention.fused_recurrent_retention), retained, *queries(draw))


@operation
def retention_fused_chunk(draw: Draw) -> Check:
    return check(first(retention.fused_chunk_retention), retained, *queries(draw))


@operation
def linear_attention_chunk(draw: Draw) -> Check:
    return check(first(linear_attn.chunk_linear_attn, normalize=False), recurrence, *queries(draw))


@operation
def linear_attention_fused_chunk(draw: Draw) -> Check:
    return check(first(linear_attn.fused_chunk_linear_attn, normalize=False), recurrence, *queries(draw))


@operation
def linear_attention_recurrent(draw: Draw) -> Check:
    return check(first(linear_attn.fused_recurrent_linear_attn), recurrence, *queries(draw))


@operation
def simple_gla_chunk(draw: Draw) -> Check:
    gate = decay(draw, *sizes(draw)[:3])
    return check(first(simple_gla.chunk_simple_gla), recurrence, *queries(draw), gate)


@operation
def simple_gla_parallel(draw: Draw) -> Check:
    gate = decay(draw, *sizes(draw)[:3])
    return check(first(simple_gla.parallel_simple_gla), recurrence, *queries(draw), gate)


@operation
def simple_gla_recurrent(draw: Draw) -> Check:
    gate = decay(draw, *sizes(draw)[:3])
    return check(first(simple_gla.fused_recurrent_simple_gla), recurrence, *queries(draw), gate)


@operation
def simple_gla_fused_chunk(draw: Draw) -> Check:
    gate = decay(draw, *sizes(draw)[:3])
    return check(first(simple_gla.fused_chunk_simple_gla), recurrence, *queries(draw), gate)


@operation
def gla_chunk(draw: Draw) -> Check:
    return check(first(gla.chunk_gla), recurrence, *queries(draw), decay(draw, *sizes(draw)))


@operation
def gla_recurrent(draw: Draw) -> Check:
    return check(first(gla.fused_recurrent_gla), recurrence, *queries(draw), decay(draw, *sizes(draw)))


def strengths(draw: Draw) -> torch.Tensor:
    return draw.leaf_of(draw.fixed(*sizes(draw)[:3], dtype=torch.float32).sigmoid())


@operation(dtypes=HALF)
def delta_rule_chunk(draw: Draw) -> Check:
    """float32 is refused by the library."""
    reference = lambda q, k, v, beta: recurrence(q, k, v, None, beta)  # noqa: E731
    return check(first(delta_rule.chunk_delta_rule), reference, *unit_queries(draw), strengths(draw))


@operation
def delta_rule_recurrent(draw: Draw) -> Check:
    reference = lambda q, k, v, beta: recurrence(q, k, v, None, beta)  # noqa: E731
    return check(first(delta_rule.fused_recurrent_delta_rule), reference, *unit_queries(draw), strengths(draw))


@operation
def gated_delta_rule_chunk(draw: Draw) -> Check:
    gate = decay(draw, *sizes(draw)[:3])
    return check(first(gated_delta_rule.chunk_gated_delta_rule), recurrence, *unit_queries(draw), gate, strengths(draw))


@operation(backward=False)
def gated_delta_rule_recurrent(draw: Draw) -> Check:
    """For inference: the library has no backward."""
    gate = decay(draw, *sizes(draw)[:3])
    run = lambda q, k, v, g, beta: gated_delta_rule.fused_recurrent_gated_delta_rule(q, k, v, g, beta=beta)[0]  # noqa: E731
    return check(run, recurrence, *unit_queries(draw), gate, strengths(draw))


@operation
def kimi_delta_chunk(draw: Draw) -> Check:
    gate = decay(draw, *sizes(draw))
    return check(first(kda.chunk_kda), recurrence, *unit_queries(draw), gate, strengths(draw))


@operation
def rwkv6_chunk(draw: Draw) -> Check:
    heads, head = sizes(draw)[2:]
    reference = lambda q, k, v, w, u: recurrence(q, k, v, w, bonus=u, scale=head**-0.5)  # noqa: E731
    run = first(rwkv6.chunk_rwkv6, scale=head**-0.5)
    return check(run, reference, *queries(draw), decay(draw, *sizes(draw)), draw.leaf(heads, head))


@operation
def hgrn_recurrent(draw: Draw) -> Check:
    return gated_sum(draw, hgrn.fused_recurrent_hgrn)


@operation
def hgrn_chunk(draw: Draw) -> Check:
    return gated_sum(draw, hgrn.chunk_hgrn)


def gated_sum(draw: Draw, function: Callable[..., object]) -> Check:
    length, width = draw.pick((20, 16), (70, 32))

    def reference(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        state, outputs = torch.zeros_like(x[:, 0]), []
        for t in range(length):
            state = gate[:, t].exp() * state + x[:, t]
            outputs.append(state)
        return torch.stack(outputs, 1)

    return check(first(function), reference, draw.leaf(2, length, width), decay(draw, 2, length, width))


@operation
def attention_parallel(draw: Draw) -> Check:
    return check(attn.parallel_attn, attention, *queries(draw))


@operation
def attention_forgetting(draw: Draw) -> Check:
    gate = decay(draw, *sizes(draw)[:3])
    return check(forgetting_attn.parallel_forgetting_attn, attention, *queries(draw), gate)
