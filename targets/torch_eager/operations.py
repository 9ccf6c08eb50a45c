"""PyTorch's own operations as kernels: what they compute in float32 and bfloat16 against their float64 selves.

Those that disagree are in disagreeing.py. They promise no bits for other layouts. Gradients are compared in float32 only: in bfloat16 autograd keeps what the forward
rounded. Interesting: constant rows, many rows added at one index, deep negatives, underflow times a large cotangent.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from fuzz import indices, option, size, target, tensor

M, N = size("M", 1, 1024), size("N", 1, 4096)
R, V, L = size("R", 1, 64), size("V", 1, 1024), size("L", 1, 1024)
MATRIX = dict(differentiable=dict(y=tensor(M, N)))
ROWS = dict(differentiable=dict(y=tensor(M)))
Operation = Callable[..., Any]


def eager(
    *bfloat16: str, reference: Operation | None = None, differentiable: Any = None, **declaration: Any
) -> Callable[[Operation], Any]:
    """A float32 target with gradients, and with "bfloat16" one of the forward alone; its reference is the operation."""

    def decorate(operation: Operation) -> Any:
        how = dict(reference=reference or operation, **declaration)
        for dtype in bfloat16:
            name = f"{operation.__name__}_{dtype}"
            globals()[name] = target(name=name, dtypes=(dtype,), **how)(operation)
        return target(dtypes=("float32",), differentiable=differentiable, **how)(operation)

    return decorate


@eager(x=tensor(M, 4, L))
def group_norm_by_steps(x):
    """Group norm step by step, by two passes: constant groups, whose roundings share a sign."""
    d = x - x.mean((1, 2), keepdim=True)
    return dict(y=d / torch.sqrt((d * d).mean((1, 2), keepdim=True) + 1e-5))


def sums(x):
    return dict(y=x.sum(-1))


@eager(x=tensor(M, N), reference=sums)
def sequential_sum(x):
    """Row sums, one column after another, as a loop over blocks adds them."""
    total = torch.zeros_like(x[:, 0])
    for column in x.unbind(1):
        total = total + column
    return dict(y=total)


def own(x: torch.Tensor) -> torch.Tensor:
    """x, so that its gradient has memory of its own where autograd would hand the cotangent through."""
    return x * 1


@eager("bfloat16", x=tensor(M, N), weight=tensor(N), **MATRIX)
def rms_norm(x, weight):
    """Root-mean-square norm."""
    return dict(y=functional.rms_norm(x, (x.shape[-1],), weight, 1e-6))


@eager("bfloat16", x=tensor(M, N), **MATRIX)
def softmax(x):
    """Softmax."""
    return dict(y=torch.softmax(x, -1))


@eager(x=tensor(M, N), **MATRIX)
def log_softmax(x):
    """Logarithm of softmax."""
    return dict(y=torch.log_softmax(x, -1))


@eager("bfloat16", x=tensor(M, N), **MATRIX)
def silu(x):
    """SiLU."""
    return dict(y=functional.silu(x))


@eager("bfloat16", x=tensor(M, N))
def softplus(x):
    """Softplus."""
    return dict(y=functional.softplus(x))


@eager(dy=tensor(M, N), x=tensor(M, N), linear=("dy",))
def softplus_bw(dy, x):
    """Softplus, backward: an underflow times a large cotangent."""
    return dict(dx=dy * torch.sigmoid(x))


@eager("bfloat16", x=tensor(M, N), **MATRIX)
def cumsum(x):
    """Running sums."""
    return dict(y=torch.cumsum(own(x), -1))


@eager("bfloat16", x=tensor(M, N), **ROWS)
def row_sum(x):
    """Sums over rows."""
    return dict(y=own(x).sum(-1))


@eager(x=tensor(M, N), **ROWS)
def logsumexp(x):
    """Logarithm of the sum of exponentials."""
    return dict(y=torch.logsumexp(x, -1))


@eager(x=tensor(R, N), index=indices(M, below=R), source=tensor(M, N), differentiable=dict(y=tensor(R, N)))
def index_add(x, index, source):
    """Rows added at indices: many at one index."""
    return dict(y=own(x).index_add(0, index, source))


@target(x=tensor(R, N), index=indices(M, below=R), source=tensor(M, N), dtypes=("bfloat16",), accumulate="bfloat16",
        reference=index_add.reference)  # fmt: skip
def index_add_bfloat16(x, index, source):
    """Rows added at indices in bfloat16, which eager accumulates in."""
    return dict(y=x.index_add(0, index, source))


@eager(weight=tensor(V, N), index=indices(M, below=V), **MATRIX)
def embedding(weight, index):
    """Rows looked up; the backward adds rows at indices."""
    return dict(y=functional.embedding(index, weight))


@eager(logits=tensor(M, V), labels=indices(M, below=V, sentinel=-100, dtypes=("int64",)), smoothing=option(0.0, 0.1),
       differentiable=dict(loss=tensor()))  # fmt: skip
def cross_entropy(logits, labels, smoothing):
    """Cross entropy with ignored labels."""
    return dict(loss=functional.cross_entropy(logits, labels, label_smoothing=smoothing))
