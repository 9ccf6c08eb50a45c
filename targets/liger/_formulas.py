"""Formulas that references share, written so that they are right where autograd of the plain ones is not."""

import torch


def silu(x):
    """x * sigmoid(x); autograd of torch's own is NaN at an infinity."""
    return x * x.sigmoid()


class Softmax(torch.autograd.Function):
    """Softmax of rows, whose gradient is computed from its result, as kernels do."""

    @staticmethod
    def forward(ctx, x):
        shifted = (x - x.amax(-1, keepdim=True)).exp()
        y = shifted / shifted.sum(-1, keepdim=True)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return y * (dy - (y * dy).sum(-1, keepdim=True))


def sparsemax(x):
    """The point of the simplex nearest to each row."""
    x = x - x.amax(-1, keepdim=True).detach()
    ordered = x.sort(-1, descending=True).values
    ranks = torch.arange(1, x.shape[-1] + 1, dtype=torch.float64, device=x.device)
    sums = ordered.cumsum(-1)
    count = (1 + ranks * ordered > sums).sum(-1, keepdim=True)
    return (x - (sums.gather(-1, count - 1) - 1) / count).clamp(min=0)
