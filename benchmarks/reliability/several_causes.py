"""Launchers with several mistakes each, of which none may hide another: docs/reliability.md says what was found."""

import ctypes
import hashlib
import os
import time

import torch
import triton
import triton.language as tl

from fuzz import size, target, tensor

M, N = size("M", 1, 64), size("N", 1, 256)


def percent(x):
    """A number below 100 that depends on the values."""
    return int(hashlib.sha256(x.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest(), 16) % 100


@triton.jit
def rows(x, y, s, m, n, stride, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + r * stride + at, mask=at < n, other=0.0)
    tl.store(y + r * n + at, v * 0.5 + 1.0, mask=at < n)
    tl.store(s + r, tl.sum(v, 0) + 1.0)


@target(x=tensor(M, N), dtypes=("float32",), reference=lambda x: dict(y=x * 0.5, s=x.sum(1)))
def always_and_wide(x):
    """`y` is too large by one always, and zero from row 48 on; `s` loses its last digits."""
    m, n = x.shape
    y, s = torch.empty(m, n), torch.empty(m)
    x = x.contiguous()
    rows[(m,)](x, y, s, m, n, n, BLOCK=triton.next_power_of_2(n))
    if m > 48:
        y[48:] = 0
    return dict(y=y, s=s - 1.0)


@target(x=tensor(N), dtypes=("float32",), reference=lambda x: dict(y=x.abs().sqrt()))
def nan_and_wrong(x):
    """Not a number below -2; the last element is wrong from a size of 100 on."""
    y = torch.where(x < -2, torch.nan, x.abs().sqrt())
    if x.numel() >= 100:
        y[-1] = y[-1] * 2 + 1
    return dict(y=y)


@target(x=tensor(N), dtypes=("float32",), reference=lambda x: dict(y=x + 1), timeout=3.0)
def four_deaths(x):
    """Segfaults, hangs, fills the memory or raises in 6 to 8 % of cases each; some layouts it refuses by mistake."""
    k = percent(x)
    if k < 8:
        ctypes.string_at(0)
    elif k < 14:
        while True:
            time.sleep(1)
    elif k < 20:
        held = []
        while True:
            held.append(torch.ones(1 << 24))
    elif k < 28:
        raise RuntimeError("unlucky")
    return dict(y=x + 1)


@target(x=tensor(N), dtypes=("float32",), reference=lambda x: dict(y=x * x))
def talkative(x):
    """Raises at two places, with a text that differs each time."""
    if x.numel() % 5 == 0:
        raise RuntimeError(f"at {time.monotonic_ns()} in {os.getpid()}: {id(x):x}")
    if x.numel() > 200:
        raise KeyError(os.urandom(8).hex())
    return dict(y=x * x)


CALLS = [0]


@target(x=tensor(N), dtypes=("float32",), reference=lambda x: dict(y=x - 1))
def third_call(x):
    """Wrong in its first element in every third call of a process, and in the last one above a size of 180."""
    CALLS[0] += 1
    y = x - 1
    if CALLS[0] % 3 == 0:
        y[0] = y[0] + 7
    if x.numel() > 180:
        y[-1] = 0
    return dict(y=y)


@triton.jit
def spoil(x, y, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n)
    tl.store(y + at, v * 3, mask=at < n)
    big = v > 3.5
    tl.store(x + at, v - 1, mask=(at < n) & big)


@target(x=tensor(N), dtypes=("float32",), reference=lambda x: dict(y=x * 3))
def spoils_rarely(x):
    """Writes over its input where that is above 3.5; one element is wrong where the size is a multiple of 16."""
    x = x if x.is_contiguous() else x.contiguous()
    n = x.numel()
    y = torch.empty(n)
    spoil[(1,)](x, y, n, BLOCK=256)
    if n % 16 == 0:
        y[n // 2] = -y[n // 2] - 1
    return dict(y=y)
