"""Sums and linear attention of fla-core. Interesting: heads that fill no block, one element that dwarfs the others."""

import torch
from _fla import flash, found, one_dtype, uncompiled
from _recurrences import begun, taken_in

from fuzz import option, size, tensor

B, T, H = size("B", 1, 3), size("T", 1, 200), size("H", 1, 4)
K, V, D = size("K", 1, 64), size("V", 1, 64), size("D", 1, 64)
STEPS = size("S", 1, 70)


RAGGED = {
    **dict.fromkeys(("*IS_VARLEN*", "*HAS_SCALE*", "*cu_seqlens*", "*scale*"), "fla_ragged_cumsum has these"),
    "*cumsum_*is never called*": "fla_ragged_cumsum and fla_ragged_cumsum_vector call it",
    "*cumsum_*is never launched*": "fla_ragged_cumsum and fla_ragged_cumsum_vector launch it",
    "*len(*.shape) == *": "another target sums the others",
}
"""What the sums of sequences of one length leave to those of several."""


def summed(x, reverse):
    return x.flip(-1).cumsum(-1).flip(-1) if reverse else x.cumsum(-1)


def local_cumsum_reference(g, chunk, reverse):
    parts = g.transpose(1, -1).split(chunk, -1)
    return dict(y=torch.cat([summed(part, reverse) for part in parts], -1).transpose(1, -1))


@flash(
    g=tensor(B, T, H, D),
    chunk=option(16, 32, 64),
    reverse=option(False, True),
    reference=local_cumsum_reference,
    unreached=RAGGED,
)
def fla_local_cumsum_vector(g, chunk, reverse):
    """Sums of vectors along chunks of the sequence."""
    return dict(y=found("ops.utils:chunk_local_cumsum")(g, chunk, reverse=reverse))


@flash(
    g=tensor(B, T, H), chunk=option(16, 32, 64), reverse=option(False, True), reference=local_cumsum_reference,
    unreached=RAGGED,
)  # fmt: skip
def fla_local_cumsum(g, chunk, reverse):
    """Sums along chunks of the sequence."""
    return dict(y=found("ops.utils:chunk_local_cumsum")(g, chunk, reverse=reverse))


def global_cumsum_reference(g, reverse):
    return dict(y=summed(g.transpose(1, -1), reverse).transpose(1, -1))


@flash(g=tensor(B, T, H), reverse=option(False, True), reference=global_cumsum_reference, unreached=RAGGED)
def fla_global_cumsum(g, reverse):
    """Sums along the sequence."""
    return dict(y=found("ops.utils:chunk_global_cumsum")(g, reverse=reverse))


@flash(g=tensor(B, T, H, D), reverse=option(False, True), reference=global_cumsum_reference, unreached=RAGGED)
def fla_global_cumsum_vector(g, reverse):
    """Sums of vectors along the sequence."""
    return dict(y=found("ops.utils:chunk_global_cumsum")(g, reverse=reverse))


class RectifiedSquare(torch.autograd.Function):
    """The square of what is positive; a gradient that overflows counts where it is multiplied by 0, too."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0).square()

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * 2 * x.clamp(min=0)


def relu_square_reference(x, inplace):
    return dict(y=RectifiedSquare.apply(x))


CHANNEL_MIXING = ("fla.ops.rwkv7.channel_mixing",)


@flash(
    x=tensor(T, D), inplace=option(True, False), in_place={"x": "inplace"}, reference=relu_square_reference,
    imports=CHANNEL_MIXING,
)  # fmt: skip
def fla_rwkv_relu_square(x, inplace):
    """The square of what is positive, which RWKV7's channel mixing puts in its input's place."""
    return dict(y=found("ops.rwkv7.channel_mixing:rwkv_relu_and_square_fwd")(x, inplace=inplace))


def channel_mixing_reference(x, before, mix, key, value):
    earlier = torch.cat([before.unsqueeze(1), x[:, :-1]], 1)
    return dict(y=RectifiedSquare.apply((x + (earlier - x) * mix) @ key) @ value)


@flash(
    x=tensor(B, T, D), before=tensor(B, D), mix=tensor(D), key=tensor(D, K), value=tensor(K, D),
    accumulate="inputs", reference=channel_mixing_reference, differentiable=dict(y=tensor(B, T, D)),
    imports=CHANNEL_MIXING,
)  # fmt: skip
def fla_rwkv_channel_mixing(x, before, mix, key, value):
    """RWKV7's channel mixing."""
    one_dtype(x, before, mix, key, value)
    uncompiled("ops.rwkv7.channel_mixing:compute_x_k_grad")
    function = found("ops.rwkv7.channel_mixing:channel_mixing_rwkv7")
    return dict(y=function(x, before, mix, key, value, inplace=False)[0])


class Gates(torch.autograd.Function):
    """Takes the gates' gradient from those of what reads and writes the state, as the library and its papers do.

    What a gate forgets would have been read from there on of what was written before: sums of read dread - write dwrite
    from the end. Where that is 0 the sums leave what rounding makes of their terms.
    """

    @staticmethod
    def forward(ctx, gate, write, *reads):
        ctx.save_for_backward(write, *reads)
        return write.clone(), *(read.clone() for read in reads)

    @staticmethod
    def backward(ctx, dwrite, *dreads):
        write, *reads = ctx.saved_tensors
        kept = sum(read * dread for read, dread in zip(reads, dreads, strict=True))
        return summed((kept - write * dwrite).transpose(1, -1), True).transpose(1, -1), dwrite, *dreads


def gla_reference(q, k, v, gate, chunked):
    logarithms = -gate.abs()
    k, q = Gates.apply(logarithms, k, q)
    forget = logarithms.detach().exp().unsqueeze(-1)
    return dict(y=taken_in(q, k, v, begun(None, None, k, v), forget)[0] * q.shape[-1] ** -0.5)


QKV = dict(q=tensor(B, STEPS, H, K), k=tensor(B, STEPS, H, K), v=tensor(B, STEPS, H, V))


@flash(
    **QKV, gate=tensor(B, STEPS, H, K), chunked=option(False, True), timeout=120.0,
    accumulate="inputs", dot="tf32", reference=gla_reference, differentiable=dict(y=tensor(B, STEPS, H, V)),
    unreached=dict.fromkeys(("fla/ops/*:*",), "fla_chunk_gla and fla_recurrent_gla draw all that this draws, and more"),
)  # fmt: skip
def fla_gated_linear_attention(q, k, v, gate, chunked):
    """Gated linear attention; the gates' logarithms are minus the magnitudes."""
    one_dtype(q, k, v, gate)
    name = "chunk_gla" if chunked else "fused_recurrent_gla"
    return dict(y=found(f"ops.gla:{name}")(q, k, v, -gate.abs())[0])
