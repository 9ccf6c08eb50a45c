"""Needles between elements: kernels that double their input but where elements of one row stand in a rare relation."""

import torch
import triton
import triton.language as tl

from fuzz import indices, size, target, tensor

M, N = size("M", 1, 64), size("N", 1, 256)
V = size("V", 1, 4096)
FLOAT = ("float32",)


def doubled(x, **_):
    return dict(y=2 * x)


def launched(kernel, x):
    x = x.contiguous()
    y = torch.empty_like(x)
    rows, columns = x.shape
    kernel[(rows,)](x, y, columns, BLOCK=triton.next_power_of_2(columns))
    return dict(y=y)


@triton.jit
def neighbours_kernel(x, y, columns, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * columns + i, mask=i < columns, other=0)
    after = tl.load(x + row * columns + i + 1, mask=i + 1 < columns, other=0)
    rare = (value == after) & (value > 0.5) & (value < 0.75) & (i == 5)
    tl.store(y + row * columns + i, tl.where(rare, 3.0, 2 * value), mask=i < columns)


@target(x=tensor(M, N), reference=doubled, dtypes=FLOAT)
def equal_neighbours(x):
    """Columns 5 and 6 of a row are equal, between 0.5 and 0.75."""
    return launched(neighbours_kernel, x)


@triton.jit
def ends_kernel(x, y, columns, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * columns + i, mask=i < columns, other=0)
    low, high = tl.min(value, 0), tl.max(value, 0)
    if low == -3.0 and high == 1024.0:
        value = value * 0.5 + 1
    tl.store(y + row * columns + i, 2 * value, mask=i < columns)


@target(x=tensor(M, N), reference=doubled, dtypes=FLOAT)
def two_extremes(x):
    """A row's least element is -3 and its largest 1024."""
    return launched(ends_kernel, x)


@triton.jit
def index_kernel(at, x, y, count, classes, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    place = tl.load(at + i, mask=i < count, other=0)
    value = 2 * tl.load(x + i, mask=i < count)
    rare = (place == i + 1000) & (classes > 2000)
    tl.store(y + i, tl.where(rare, 1.0, value), mask=i < count)


@target(at=indices(N, below=V), x=tensor(N, dtypes=FLOAT), dtypes=FLOAT, reference=doubled)
def index_of_itself(at, x):
    """An index that is its own place plus 1000, among more than 2000."""
    at, x = at.contiguous(), x.contiguous()
    y = torch.empty_like(x)
    index_kernel[(triton.cdiv(x.numel(), 256),)](at, x, y, x.numel(), 1 + int(at.max()), BLOCK=256)
    return dict(y=y)


@triton.jit
def repeated_kernel(at, x, y, count, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    place = tl.load(at + i, mask=i < count, other=-1)
    value = 2 * tl.load(x + i, mask=i < count)
    third, last = tl.sum(tl.where(i == 3, place, 0), 0), tl.sum(tl.where(i == count - 1, place, 0), 0)
    rare = (third == last) & (third > 99) & (count > 40)
    tl.store(y + i, tl.where(rare & (i == 3), 1.0, value), mask=i < count)


@target(at=indices(N, below=V), x=tensor(N, dtypes=FLOAT), dtypes=FLOAT, reference=doubled)
def repeated_index(at, x):
    """The fourth index is the last one, above 99, among more than 40."""
    at, x = at.contiguous(), x.contiguous()
    y = torch.empty_like(x)
    repeated_kernel[(1,)](at, x, y, x.numel(), BLOCK=triton.next_power_of_2(x.numel()))
    return dict(y=y)


@triton.jit
def descent_kernel(x, y, columns, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * columns + i, mask=i < columns, other=0)
    below = tl.load(x + row * columns + i + 1, mask=i + 1 < columns, other=float("inf"))
    falls = tl.sum((value > below).to(tl.int32), 0)
    if falls == columns - 1 and columns == 77:
        value = value * 0.5 + 1
    tl.store(y + row * columns + i, 2 * value, mask=i < columns)


@target(x=tensor(M, N), reference=doubled, dtypes=FLOAT)
def falling_row(x):
    """A row of 77 elements each of which is less than the one before."""
    return launched(descent_kernel, x)
