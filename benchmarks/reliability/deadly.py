"""Kernels that end, stop or fill the process that they run in: each must become a finding, and cost nothing else."""

import os
import signal
import time

import torch
import triton
import triton.language as tl

from fuzz import size, target, tensor

N = size("N", 1, 256)
ONE = dict(x=tensor(N), dtypes=("float32",), reference=lambda x: dict(y=x * 2))


@target(**ONE)
def segfaults(x):
    """Touches memory that is not there."""
    if x.numel() > 8:
        os.kill(os.getpid(), signal.SIGSEGV)
    return dict(y=x * 2)


@target(**ONE)
def leaves(x):
    """Ends its process."""
    if x.numel() > 8:
        os._exit(5)
    return dict(y=x * 2)


@target(**ONE, timeout=2.0)
def hangs(x):
    """Never returns."""
    if x.numel() == 1:
        time.sleep(1000)
    return dict(y=x * 2)


@target(**ONE)
def fills(x):
    """Takes all memory."""
    held = []
    while x.numel() > 8:
        held.append(torch.ones(1 << 24))
    return dict(y=x * 2)


@triton.jit
def asserting(x, y, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.device_assert(n < 9, "too long")
    tl.store(y + at, value * 2, mask=at < n)


@target(**ONE)
def asserts(x):
    """Asserts on the device."""
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    values = x.contiguous()
    asserting[(1,)](values, y, x.numel(), BLOCK=256, debug=True)
    return dict(y=y)
