"""Gated layers of liger-kernel, alone and as mixtures of experts. Interesting: experts without a token, one expert for
all, repeated experts."""

from types import SimpleNamespace

import torch
from _formulas import silu
from _liger import applied, layer, liger, one_dtype

from fuzz import indices, option, size, tensor

T, CHOSEN, EXPERTS = size("T", 1, 80), size("CHOSEN", 1, 3), size("EXPERTS", 1, 5)
H, INNER = size("H", 1, 64), size("INNER", 1, 40)


class LastLayer(torch.autograd.Function):
    """Results (.., H) of a last layer (.., H, INNER) times weights (..), after it as the library documents.

    The gradient of a weight is a sum over INNER: that over H takes what the library does not keep.
    """

    @staticmethod
    def forward(ctx, down, inner, weights):
        ctx.save_for_backward(down, inner, weights)
        return (down @ inner.unsqueeze(-1)).squeeze(-1) * weights.unsqueeze(-1)

    @staticmethod
    def backward(ctx, dy):
        down, inner, weights = ctx.saved_tensors
        weights, back = weights.unsqueeze(-1), (down.transpose(-1, -2) @ dy.unsqueeze(-1)).squeeze(-1)
        return dy.unsqueeze(-1) @ (inner * weights).unsqueeze(-2), back * weights, (back * inner).sum(-1)


def moe_reference(x, up, down, places, weights, module):
    chosen = places.long()
    inner = (up[chosen] @ x.unsqueeze(1).unsqueeze(-1)).squeeze(-1)
    gate, value = inner.chunk(2, -1)
    return dict(y=LastLayer.apply(down[chosen], silu(gate) * value, weights).sum(1))


@liger(
    x=tensor(T, H),
    up=tensor(EXPERTS, 2 * INNER, H),
    down=tensor(EXPERTS, H, INNER),
    places=indices(T, CHOSEN, below=EXPERTS, dtypes=("int32",)),
    weights=tensor(T, CHOSEN),
    module=option(False, True),
    deterministic="tokens of an expert stand in the order in which atomic additions counted them",
    timeout=300.0,
    accumulate="inputs",
    dot="tf32",
    reference=moe_reference,
    differentiable=dict(y=tensor(T, H)),
)
def liger_fused_moe(x, up, down, places, weights, module):
    """Gated layers of the experts that each token chose, weighed and summed."""
    one_dtype(x, up, down, weights)
    if module:
        sizes = dict(num_experts=len(up), hidden_size=x.shape[-1], intermediate_size=down.shape[-1])
        config, parameters = SimpleNamespace(**sizes, hidden_act="silu"), dict(gate_up_proj=up, down_proj=down)
        return dict(y=layer("swiglu:LigerExperts", parameters, x, places, weights, config=config))
    place = "fused_moe:LigerFusedMoEFunction"
    return dict(
        y=applied(place, x=x, gate_up_proj=up, down_proj=down, top_k_index=places, top_k_weights=weights)
    )  # fmt: skip


B, S = size("B", 1, 3), size("S", 1, 160)
IN, WIDE = size("IN", 8, 160, multiple_of=8), size("WIDE", 8, 160, multiple_of=8)


def mlp_reference(x, gate, up, down, gate_factor, down_factor):
    return dict(y=(silu(x @ gate.T * gate_factor) * (x @ up.T)) @ down.T * down_factor)


@liger(
    x=tensor(B, S, IN),
    gate=tensor(WIDE, IN),
    up=tensor(WIDE, IN),
    down=tensor(IN, WIDE),
    gate_factor=option(1.0, 0.5),
    down_factor=option(1.0, 2.0),
    timeout=300.0,
    accumulate="inputs",
    dot="tf32",
    reference=mlp_reference,
    differentiable=dict(y=tensor(B, S, IN)),
)
def liger_mlp(x, gate, up, down, gate_factor, down_factor):
    """A gated layer of which two projections and the gate are one kernel; widths are multiples of 16 bytes.

    Tensors that begin at no multiple of 16 bytes are copied: tensor descriptors do not allow them.
    """
    one_dtype(x, gate, up, down)
    x, gate, up, down = (part.clone() if part.data_ptr() % 16 else part for part in (x, gate, up, down))
    place = "mlp:LigerMLPFunction"
    factors = dict(gate_multiplier=gate_factor, down_multiplier=down_factor)
    return dict(y=applied(place, input=x, gate_weight=gate, up_weight=up, down_weight=down, **factors))
