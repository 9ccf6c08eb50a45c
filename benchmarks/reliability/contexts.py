"""Kernels that corrupt the CUDA context of their process, beside one that is right and one that is wrong."""

import torch
import triton
import triton.language as tl
from deadly import asserting

from fuzz import size, target, tensor

N = size("N", 1, 256)
ONE = dict(x=tensor(N), dtypes=("float32",), reference=lambda x: dict(y=x * 2))


@triton.jit
def doubling(x, y, n, far, wrong, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(y + at + far, value * 2 + wrong * (value > 1), mask=at < n)


def doubled(x, far=0, wrong=0):
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    doubling[(1,)](x.contiguous(), y, x.numel(), far, wrong, BLOCK=256)
    return dict(y=y)


@target(**ONE)
def right(x):
    """Doubles."""
    return doubled(x)


@target(**ONE)
def wrong(x):
    """Doubles, and adds one to what is above 1."""
    return doubled(x, wrong=1)


@target(**ONE)
def strays(x):
    """Writes where there is no memory: an illegal address, after which no kernel of the process runs."""
    return doubled(x, far=1 << 44 if x.numel() > 8 else 0)


@target(**ONE)
def asserts(x):
    """Asserts on the device, after which no kernel of the process runs."""
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    asserting[(1,)](x.contiguous(), y, x.numel(), BLOCK=256, debug=True)
    return dict(y=y)
