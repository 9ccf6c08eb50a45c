"""PyTorch's own operations that err by more than the envelope of their formula allows, each with what goes wrong."""

import torch
from torch.nn import functional

from fuzz import option, size, target, tensor

M, N = size("M", 1, 1024), size("N", 1, 4096)
B, C, L = size("B", 1, 64), size("C", 4, 64, multiple_of=4), size("L", 1, 1024)


def layer_norm_reference(x, weight, bias):
    return dict(y=functional.layer_norm(x, (x.shape[-1],), weight, bias, 1e-5))


@target(
    x=tensor(M, N),
    weight=tensor(N),
    bias=tensor(N),
    dtypes=("float32", "bfloat16"),
    reference=layer_norm_reference,
    differentiable=dict(y=tensor(M, N)),
)
def layer_norm(x, weight, bias):
    """Layer norm: NaN where the variance overflows; its gradient subtracts rounded products, at N = 1 too."""
    if not x.dtype == weight.dtype == bias.dtype:
        raise TypeError("x, weight and bias need one dtype")
    return layer_norm_reference(x, weight, bias)


def group_norm_reference(x, weight, bias, groups):
    return dict(y=functional.group_norm(x, groups, weight, bias, 1e-5))


@target(
    x=tensor(B, C, L),
    weight=tensor(C),
    bias=tensor(C),
    groups=option(2, 1, 4),
    dtypes=("float32", "bfloat16"),
    reference=group_norm_reference,
    differentiable=dict(y=tensor(B, C, L)),
)
def group_norm(x, weight, bias, groups):
    """Group norm: weight * rstd overflows by itself; in bfloat16 the backward gets mean and rstd rounded to it."""
    if not x.dtype == weight.dtype == bias.dtype:
        raise TypeError("x, weight and bias need one dtype")
    return group_norm_reference(x, weight, bias, groups)


@target(x=tensor(M, N), dtypes=("bfloat16",), reference=lambda x: dict(y=torch.log_softmax(x, -1)))
def log_softmax(x):
    """Logarithm of softmax in bfloat16: an intermediate is rounded to bfloat16."""
    return dict(y=torch.log_softmax(x, -1))


@target(
    x=tensor(M, N),
    dtypes=("float32",),
    reference=lambda x: dict(y=functional.gelu(x)),
    differentiable=dict(y=tensor(M, N)),
)
def gelu(x):
    """GELU by 1 + erf: deep negatives lose all digits."""
    return dict(y=functional.gelu(x))


@target(
    x=tensor(M, N),
    dtypes=("float32",),
    reference=lambda x: dict(y=functional.softplus(x)),
    differentiable=dict(y=tensor(M, N)),
)
def softplus(x):
    """Softplus: the gradient's product dy * exp(x) overflows before it is divided by 1 + exp(x)."""
    return dict(y=functional.softplus(x))


@target(a=tensor(M, N), b=tensor(N, L), dtypes=("float32",), reference=lambda a, b: dict(y=a @ b))
def matmul(a, b):
    """Matrix product: wrong values where the rows of an operand are 2**30 elements apart."""
    return dict(y=a @ b)
