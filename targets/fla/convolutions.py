"""Convolutions and shifts of sequences of fla-core with their caches. Interesting: sequences shorter than the kernel."""

import torch
from _fla import SHARED, flash, found, one_dtype
from _states import RAGGED, B, N, sequences, states

from fuzz import by_option, option, prefix_sums, size, tensor

D, W = size("D", 1, 130), size("W", 2, 4)
WHOLE = "a convolution without a weight has no width, and a step without a cache none to move"
OTHER = "the other implementation is that of a package for GPUs"


def alone(function, ends, *inputs):
    """What a function gives for each sequence of inputs (1, T, ..) and its state, one after the other, and the states."""
    if ends is None:
        return function(*inputs)
    edges = ends.tolist()
    parts = []
    for number, (first, last) in enumerate(zip(edges, edges[1:], strict=False)):
        state = inputs[1] if inputs[1] is None else inputs[1][number : number + 1]
        parts.append(function(inputs[0][:, first:last], state))
    return torch.cat([y for y, _ in parts], 1), torch.cat([state for _, state in parts])


def conv_reference(x, weight, bias, residual, initial, activation, keep, ragged, ends):
    width = weight.shape[1]

    def convolved(x, state):
        past = torch.zeros_like(weight).detach().expand(len(x), -1, -1) if state is None else state
        whole = torch.cat([past.transpose(1, 2), x], 1)
        length = x.shape[1]
        y = sum(whole[:, step + 1 : step + 1 + length] * weight[:, step] for step in range(width))
        return y, whole[:, length:].transpose(1, 2)

    y, final = alone(convolved, ends if ragged else None, x, initial)
    y = y if bias is None else y + bias
    y = y if activation is None else y * y.sigmoid()
    y = y if residual is None else y + residual
    return dict(y=y, final=final) if keep else dict(y=y)


@flash(
    x=sequences(D), weight=tensor(D, W), bias=tensor(D) | None, residual=sequences(D) | None,
    initial=states(D, W) | None, activation=option(None, "silu"), keep=option(True, False), **RAGGED,
    accumulate="inputs", reference=conv_reference, differentiable=dict(y=sequences(D), final=states(D, W)),
    unreached={
        **SHARED, **dict.fromkeys(("*x.dim() *", "*x.shape[[]-1] != weight*"), "inputs are documented to have three dims"),
        "*HAS_WEIGHT*": WHOLE, "*weight is not None*": WHOLE, "*`backend == 'triton'`*": OTHER,
    },
)  # fmt: skip
def fla_conv_with_states(x, weight, bias, residual, initial, activation, keep, ragged, ends):
    """A convolution of each channel with what came before, also in the call before."""
    one_dtype(x, weight, bias, residual)
    y, final = found("modules.causal_conv1d:causal_conv1d")(
        x, weight, bias, residual=residual, initial_state=initial, output_final_state=keep, activation=activation,
        cu_seqlens=ends if ragged else None,
    )  # fmt: skip
    return dict(y=y, final=final) if keep else dict(y=y)


def update_reference(x, cache, weight, bias, residual, activation, shape):
    dims, x = x.shape, x.reshape(-1, x.shape[-1])
    residual = None if residual is None else residual.reshape(x.shape)
    after = torch.cat([cache[..., 1:], x.unsqueeze(-1)], -1)
    y = (after * weight).sum(-1)
    y = y if bias is None else y + bias
    y = y if activation is None else y * y.sigmoid()
    return dict(y=(y if residual is None else y + residual).reshape(dims), after=after)


STEP = by_option("shape", dict(rows=tensor(N, D), steps=tensor(N, 1, D), places=tensor(1, N, D)))


@flash(
    x=STEP, cache=tensor(N, D, W), weight=tensor(D, W), bias=tensor(D) | None, residual=STEP | None,
    activation=option(None, "silu"), shape=option("rows", "steps", "places"), in_place=("cache",), accumulate="inputs",
    reference=update_reference,
    unreached={
        **dict.fromkeys(("*HAS_WEIGHT*", "*weight is not None*", "*USE_INITIAL_STATE*"), WHOLE),
        **dict.fromkeys(("*_bwd*", "*_fwd*", "*CausalConv1dFunction*", "*_states*"), "fla_conv_with_states runs these"),
    },
)  # fmt: skip
def fla_conv_update(x, cache, weight, bias, residual, activation, shape):
    """One step of a convolution, which moves its cache on in place."""
    one_dtype(x, cache, weight, bias, residual)
    y = found("modules.causal_conv1d.ops:causal_conv1d_update")(x, cache, residual, weight, bias, activation)
    y, after = y if isinstance(y, tuple) else (y, cache)
    return dict(y=y, after=after.clone())


FAR = "fla_token_shift_long has sequences of that many places"


def shift_reference(x, cache, keep, ragged, ends):
    def shifted(x, state):
        past = torch.zeros_like(x[:, :1]) if state is None else state.unsqueeze(1)
        if not x.shape[1]:
            return x, x.new_zeros(len(x), 1, x.shape[-1]) if state is None else state.unsqueeze(1)
        return torch.cat([past, x[:, :-1]], 1) - x, x[:, -1:]

    y, after = alone(shifted, ends if ragged else None, x, cache)
    return dict(y=y, after=after.squeeze(1)) if keep else dict(y=y)


@flash(
    x=sequences(D), cache=states(D) | None, keep=option(True, False), **RAGGED, accumulate="inputs",
    reference=shift_reference, differentiable=dict(y=sequences(D), after=states(D)),
    unreached={"*_kernel_long*": FAR, "*use_short_kernel*": FAR},
)  # fmt: skip
def fla_token_shift_cached(x, cache, keep, ragged, ends):
    """The token before minus each token, also that of the call before."""
    return token_shift(x, cache, keep, ragged, ends)


def token_shift(x, cache, keep, ragged, ends):
    ends = ends if ragged else None
    value = found("modules.token_shift:token_shift")(x, ends, None if cache is None else cache.to(x.dtype), keep)
    return dict(y=value[0], after=value[1].reshape(-1, x.shape[-1])) if keep else dict(y=value)


PLACES, FEW = size("PLACES", 4097, 4200), size("FEW", 1, 20)
LONG = by_option("ragged", {False: tensor(B, PLACES, FEW), True: tensor(1, PLACES, FEW)})


@flash(
    x=LONG, cache=states(FEW) | None, keep=option(True, False), ragged=option(False, True),
    ends=prefix_sums(N + 1, total=PLACES), dims=(N,), accumulate="inputs", reference=shift_reference, timeout=120.0,
    differentiable=dict(y=LONG, after=states(FEW)),
    unreached={"*_kernel_short*": "fla_token_shift_cached has shorter sequences"},
)  # fmt: skip
def fla_token_shift_long(x, cache, keep, ragged, ends):
    """The same of sequences of so many places that several kernels share one."""
    return token_shift(x, cache, keep, ragged, ends)
