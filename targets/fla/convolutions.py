"""Convolutions and shifts of sequences of fla-core with their caches. Interesting: sequences shorter than the kernel."""

import torch
from _fla import flash, found, one_dtype
from _states import RAGGED, N, sequences, states

from fuzz import option, size, tensor

D, W = size("D", 1, 130), size("W", 2, 4)


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
)  # fmt: skip
def fla_conv_with_states(x, weight, bias, residual, initial, activation, keep, ragged, ends):
    """A convolution of each channel with what came before, also in the call before."""
    one_dtype(x, weight, bias, residual)
    y, final = found("modules.causal_conv1d:causal_conv1d")(
        x, weight, bias, residual=residual, initial_state=initial, output_final_state=keep, activation=activation,
        cu_seqlens=ends if ragged else None,
    )  # fmt: skip
    return dict(y=y, final=final) if keep else dict(y=y)


def update_reference(x, cache, weight, bias, residual, activation):
    after = torch.cat([cache[..., 1:], x.unsqueeze(-1)], -1)
    y = (after * weight).sum(-1)
    y = y if bias is None else y + bias
    y = y if activation is None else y * y.sigmoid()
    return dict(y=y if residual is None else y + residual, after=after)


@flash(
    x=tensor(N, D), cache=tensor(N, D, W), weight=tensor(D, W), bias=tensor(D) | None, residual=tensor(N, D) | None,
    activation=option(None, "silu"), in_place=("cache",), accumulate="inputs", reference=update_reference,
)  # fmt: skip
def fla_conv_update(x, cache, weight, bias, residual, activation):
    """One step of a convolution, which moves its cache on in place."""
    one_dtype(x, cache, weight, bias, residual)
    y = found("modules.causal_conv1d.ops:causal_conv1d_update")(x, cache, residual, weight, bias, activation)
    y, after = y if isinstance(y, tuple) else (y, cache)
    return dict(y=y, after=after.clone())


def shift_reference(x, cache, keep, ragged, ends):
    def shifted(x, state):
        past = torch.zeros_like(x[:, :1]) if state is None else state.unsqueeze(1)
        if not x.shape[1]:
            return x, torch.zeros(len(x), 1, x.shape[-1], dtype=x.dtype) if state is None else state.unsqueeze(1)
        return torch.cat([past, x[:, :-1]], 1) - x, x[:, -1:]

    y, after = alone(shifted, ends if ragged else None, x, cache)
    return dict(y=y, after=after.squeeze(1)) if keep else dict(y=y)


@flash(
    x=sequences(D), cache=states(D) | None, keep=option(True, False), **RAGGED, accumulate="inputs",
    reference=shift_reference, differentiable=dict(y=sequences(D), after=states(D)),
)  # fmt: skip
def fla_token_shift_cached(x, cache, keep, ragged, ends):
    """The token before minus each token, also that of the call before."""
    ends = ends if ragged else None
    value = found("modules.token_shift:token_shift")(x, ends, None if cache is None else cache.to(x.dtype), keep)
    return dict(y=value[0], after=value[1].reshape(-1, x.shape[-1])) if keep else dict(y=value)
