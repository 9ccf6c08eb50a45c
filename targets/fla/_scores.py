"""Formulas of attention that references share: scores of queries and keys, weights of values, windows."""

import torch


def alone(function, ends, *inputs):
    """What a function gives for each sequence of inputs (1, T, ..) alone, one after the other."""
    if ends is None:
        return function(*inputs)
    edges = ends.tolist()
    parts = [function(*(x[:, a:b] for x in inputs)) for a, b in zip(edges, edges[1:], strict=False) if b > a]
    return torch.cat(parts, 1)


def scored(q, k, scale):
    """Scores (B, H, T, T) of queries and keys (B, T, H, K), of which there are fewer heads."""
    k = k.repeat_interleave(q.shape[2] // k.shape[2], 2)
    return q.transpose(1, 2) @ k.permute(0, 2, 3, 1) * (q.shape[-1] ** -0.5 if scale is None else scale)


def weighed(weights, v):
    """Values (B, T, H, V) summed by weights (B, H, T, T)."""
    v = v.repeat_interleave(weights.shape[1] // v.shape[2], 2)
    return (weights @ v.transpose(1, 2)).transpose(1, 2)


def near(places, window, device):
    """Which keys (T, T) a query sees: its own and those before it, of a window where there is one."""
    place = torch.arange(places, device=device)
    apart = place.unsqueeze(1) - place.unsqueeze(0)
    return (apart >= 0) & (apart < (window or places))


class LogSigmoid(torch.autograd.Function):
    """The logarithm of the logistic function, whose gradient autograd would add up of parts that cancel."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(max=0) - (-x.abs()).exp().log1p()

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * (-x).sigmoid()
