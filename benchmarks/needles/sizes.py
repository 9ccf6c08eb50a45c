"""Needles in sizes, options, layouts and loops: kernels that double their input but in one rare situation."""

import torch
import triton
import triton.language as tl

from fuzz import option, size, target, tensor

M, N = size("M", 1, 64), size("N", 1, 8192)
P, Q = size("P", 1, 512), size("Q", 1, 512)
EPS = option(1e-5, 1e-6, 1e-12)


def doubled(x, **_):
    return dict(y=2 * x)


@triton.jit
def one_branch_kernel(x, y, columns, eps, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    value = 2 * tl.load(x + row * columns + i, mask=i < columns).to(tl.float32)
    if columns == 4097 and eps < 1e-8:
        value = value * 0.5 + 1
    tl.store(y + row * columns + i, value, mask=i < columns)


@target(x=tensor(M, N), eps=EPS, reference=doubled)
def one_branch(x, eps):
    x = x.contiguous()
    y = torch.empty_like(x)
    rows, columns = x.shape
    one_branch_kernel[(rows,)](x, y, columns, eps, BLOCK=triton.next_power_of_2(columns))
    return dict(y=y)


@triton.jit
def constexpr_kernel(x, y, columns: tl.constexpr, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    value = 2 * tl.load(x + row * columns + i, mask=i < columns).to(tl.float32)
    if columns == 1536 + 5:
        value = tl.where(i == columns - 1, 1.0, value)
    tl.store(y + row * columns + i, value, mask=i < columns)


@target(x=tensor(M, N), reference=doubled)
def constexpr_branch(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    rows, columns = x.shape
    constexpr_kernel[(rows,)](x, y, columns, BLOCK=triton.next_power_of_2(columns))
    return dict(y=y)


@triton.jit
def plain_kernel(x, y, wrong, count, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = 2 * tl.load(x + i, mask=i < count).to(tl.float32)
    if wrong:
        value = value * 0.5 + 1
    tl.store(y + i, value, mask=i < count)


def run_plain(x, wrong):
    x = x.contiguous()
    y = torch.empty_like(x)
    plain_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, int(wrong), x.numel(), BLOCK=1024)
    return dict(y=y)


@target(x=tensor(P, Q), mode=option("none", "mean", "sum", "tanh"), reference=doubled)
def option_layout_dtype(x, mode):
    """One option with one layout and one dtype."""
    transposed = x.shape[0] > 1 and x.shape[1] > 1 and x.stride(0) == 1
    return run_plain(x, mode == "tanh" and transposed and x.dtype is torch.bfloat16)


@target(x=tensor(P, Q), reference=doubled)
def pair_of_dims(x):
    return run_plain(x, x.shape == (113, 37))


@target(x=tensor(P, Q), reference=doubled)
def padded_rows(x):
    """At least 5 rows of float16, of an odd length, that stand exactly 7 elements apart."""
    rows, columns = x.shape
    return run_plain(x, rows > 4 and columns % 2 == 1 and x.stride() == (columns + 7, 1) and x.dtype is torch.float16)


@target(x=tensor(P, Q), reference=doubled)
def related_dims(x):
    """One dim is one less than three times the other, beyond the smallest sizes."""
    rows, columns = x.shape
    return run_plain(x, columns == 3 * rows - 1 and rows > 24)


@triton.jit
def trips_kernel(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for number in range(tl.cdiv(columns, BLOCK)):
        i = number * BLOCK + tl.arange(0, BLOCK)
        value = 2 * tl.load(x + row * columns + i, mask=i < columns).to(tl.float32)
        if number == 37 and tl.cdiv(columns, BLOCK) == 38:
            value = value * 0.5 + 1
        tl.store(y + row * columns + i, value, mask=i < columns)


@target(x=tensor(size("M", 1, 16), size("N", 1, 4096)), reference=doubled)
def trip_count(x):
    """A loop of exactly 38 trips."""
    x = x.contiguous()
    y = torch.empty_like(x)
    trips_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=64)
    return dict(y=y)


@triton.jit
def last_trips_kernel(x, y, columns, BLOCK: tl.constexpr):
    row, trips = tl.program_id(0), tl.cdiv(columns, BLOCK)
    for number in range(trips):
        i = number * BLOCK + tl.arange(0, BLOCK)
        value = 2 * tl.load(x + row * columns + i, mask=i < columns).to(tl.float32)
        if trips % 29 == 28 and number == trips - 1 and columns % BLOCK == 1:
            value = value * 0.5 + 1
        tl.store(y + row * columns + i, value, mask=i < columns)


@target(x=tensor(size("M", 1, 16), size("N", 1, 8192)), reference=doubled)
def last_trip(x):
    """A loop of 28 trips, or of 29 more, whose last block has one element."""
    x = x.contiguous()
    y = torch.empty_like(x)
    last_trips_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=32)
    return dict(y=y)
