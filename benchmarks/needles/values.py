"""Needles in values: kernels that double their input but where its bits are rare."""

import torch
import triton
import triton.language as tl

from fuzz import option, size, target, tensor

N = size("N", 1, 4096)
FLOAT = ("float32",)


def doubled(x, **_):
    return dict(y=2 * x)


def launched(kernel, x, *more):
    tensors = [value.contiguous() for value in (x, *more)]
    y = torch.empty_like(tensors[0])
    kernel[(triton.cdiv(x.numel(), 256),)](*tensors, y, x.numel(), BLOCK=256)
    return dict(y=y)


@triton.jit
def one_pattern_kernel(x, y, count, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < count)
    rare = value.to(tl.int32, bitcast=True) == 0x42F6E979
    tl.store(y + i, tl.where(rare, 1.0, 2 * value), mask=i < count)


@target(x=tensor(N), reference=doubled, dtypes=FLOAT)
def one_pattern(x):
    """One of 2^32 bit patterns, 123.456."""
    return launched(one_pattern_kernel, x)


@triton.jit
def exponent_kernel(x, y, count, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < count)
    exponent = (value.to(tl.int32, bitcast=True) >> 23) & 0xFF
    rare = (exponent >= 201) & (exponent <= 202) & (value < 0)
    tl.store(y + i, tl.where(rare, 1.0, 2 * value), mask=i < count)


@target(x=tensor(N), reference=doubled, dtypes=FLOAT)
def exponent_window(x):
    """Negative, from 2^74 to 2^76."""
    return launched(exponent_kernel, x)


@triton.jit
def negative_zero_kernel(x, y, count, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < count)
    rare = (value == 0) & (value.to(tl.int32, bitcast=True) != 0) & (i % 8 == 5)
    tl.store(y + i, tl.where(rare, 1.0, 2 * value), mask=i < count)


@target(x=tensor(N), reference=doubled, dtypes=FLOAT)
def negative_zero(x):
    """-0 in one place of eight."""
    return launched(negative_zero_kernel, x)


@triton.jit
def subnormal_kernel(x, y, count, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < count)
    bits = value.to(tl.int32, bitcast=True)
    rare = (bits > 0) & (bits < 0x800) & (count > 1000)
    tl.store(y + i, tl.where(rare, 1.0, 2 * value), mask=i < count)


@target(x=tensor(N), reference=doubled, dtypes=FLOAT)
def small_subnormal(x):
    """A positive number of at most eleven bits in the last places, in a tensor that is not small."""
    return launched(subnormal_kernel, x)


@triton.jit
def affine_kernel(x, y, count, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < count)
    rare = value * 3.0 + 1.0 == 59.5
    tl.store(y + i, tl.where(rare, 1.0, 2 * value), mask=i < count)


@target(x=tensor(N), reference=doubled, dtypes=FLOAT)
def solved(x):
    """Where 3 x + 1 is 59.5."""
    return launched(affine_kernel, x)


@triton.jit
def equal_kernel(x, z, y, count, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value, other = tl.load(x + i, mask=i < count), tl.load(z + i, mask=i < count)
    rare = (value == other) & (value > 700) & (value < 701)
    tl.store(y + i, tl.where(rare, 1.0, 2 * value), mask=i < count)


@target(x=tensor(N), z=tensor(N), reference=doubled, dtypes=FLOAT)
def equal_arguments(x, z):
    """Two arguments equal in one place, between 700 and 701."""
    return launched(equal_kernel, x, z)


@triton.jit
def magnitude_kernel(x, y, eps, count, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < count)
    rare = (value < -1e30) & (eps == 0.25) & (count > 2500)
    tl.store(y + i, tl.where(rare & (i == count - 1), 1.0, 2 * value), mask=i < count)


@target(x=tensor(N), eps=option(1.0, 0.5, 0.25, 0.125, 2.0), reference=doubled, dtypes=FLOAT)
def large_last(x, eps):
    """The last element of more than 2500 below -1e30, at one option of five."""
    x = x.contiguous()
    y = torch.empty_like(x)
    magnitude_kernel[(triton.cdiv(x.numel(), 256),)](x, y, eps, x.numel(), BLOCK=256)
    return dict(y=y)
