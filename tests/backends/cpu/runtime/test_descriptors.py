"""Block pointers and tensor descriptors, made in the kernel and on the host: masks, padding, atomics, rows by index."""

import warnings

import pytest
import torch
import triton
import triton.language as tl
from bit_values import TRITON, assert_same
from triton.tools.tensor_descriptor import TensorDescriptor

from fuzz.backends import cpu

DTYPES = [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int32]


def block(x, row, column, rows, columns, padding=0.0):
    """Part of a matrix, padded where it is outside."""
    wide = torch.full((rows, columns), padding, dtype=torch.float64)
    for i in range(rows):
        for j in range(columns):
            if 0 <= row + i < x.shape[0] and 0 <= column + j < x.shape[1]:
                wide[i, j] = float(x[row + i, column + j])
    return wide.to(x.dtype) if x.itemsize > 1 else wide.float().to(x.dtype)


def same(got, want):
    if got.itemsize == 1:
        got, want = got.float(), want.float()
    assert_same(got, want)


@triton.jit
def inside(x, y, out, n, m, i, j, N: tl.constexpr, M: tl.constexpr, PADDING: tl.constexpr):
    source = tl.make_tensor_descriptor(x, shape=[n, m], strides=[m, 1], block_shape=[N, M], padding_option=PADDING)
    target = tl.make_tensor_descriptor(y, shape=[n, m], strides=[m, 1], block_shape=[N, M])
    a = source.load([i, j])
    tl.store(out + tl.arange(0, N)[:, None] * M + tl.arange(0, M)[None, :], a)
    target.store([i, j], a)


@pytest.mark.parametrize(("i", "j"), [(0, 0), (3, 5), (-1, -2)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_descriptors_made_in_the_kernel(dtype, i, j):
    x = torch.arange(5 * 16).reshape(5, 16).float().to(dtype)
    y, out = torch.zeros(5, 16).to(dtype), torch.zeros(4, 16).to(dtype)
    nan = dtype.is_floating_point
    inside[(1,)](x, y, out, 5, 16, i, j, N=4, M=16, PADDING="nan" if nan else "zero")
    same(out, block(x, i, j, 4, 16, float("nan") if nan else 0))
    covered = torch.zeros(5, 16, dtype=torch.bool)
    covered[max(i, 0) : i + 4, max(j, 0) : j + 16] = True
    same(y, torch.where(covered, x.float(), 0).to(dtype))


@triton.jit
def reduces(x, y, N: tl.constexpr, M: tl.constexpr):
    source = tl.make_tensor_descriptor(x, shape=[N, M], strides=[M, 1], block_shape=[N, M])
    target = tl.make_tensor_descriptor(y, shape=[N - 1, M], strides=[M, 1], block_shape=[N, M])
    a = source.load([0, 0])
    target.atomic_add([0, 0], a)
    target.atomic_max([1, 0], a)
    target.atomic_min([2, 0], a)
    target.atomic_xor([0, 0], a)


def test_descriptors_reduce():
    x = torch.randint(-99, 99, (4, 8), dtype=torch.int32)
    y = torch.randint(-99, 99, (3, 8), dtype=torch.int32)
    want = y + x[:3]
    want[1:] = torch.maximum(want[1:], x[:2])
    want[2:] = torch.minimum(want[2:], x[:1])
    reduces[(1,)](x, y, N=4, M=8)
    assert torch.equal(y, want ^ x[:3])


@triton.jit
def rows(x, y, picks, n, M: tl.constexpr):
    source = tl.make_tensor_descriptor(x, shape=[n, M], strides=[M, 1], block_shape=[1, 8])
    target = tl.make_tensor_descriptor(y, shape=[n, M], strides=[M, 1], block_shape=[1, 8])
    index = tl.load(picks + tl.arange(0, 8))
    a = source.gather(index, 4)
    target.scatter(a + 1, index, 4)


def test_descriptors_gather_and_scatter_rows():
    x, y = torch.randn(6, 16), torch.zeros(6, 16)
    picks = torch.tensor([5, 0, 3, 2, 9, -1, 6, 4], dtype=torch.int32)
    rows[(1,)](x, y, picks, 6, M=16)
    want = torch.zeros(6, 16)
    chosen = [5, 0, 3, 2, 4]
    want[chosen, 4:12] = x[chosen, 4:12] + 1
    assert torch.equal(y, want)


@triton.jit
def host(source, target, out, i, N: tl.constexpr, M: tl.constexpr):
    a = source.load([i, 0])
    target.store([i, 0], a)
    tl.store(out + tl.arange(0, N)[:, None] * M + tl.arange(0, M)[None, :], a)


@pytest.mark.parametrize("padding", ["zero", "nan"])
def test_descriptors_made_on_the_host(padding):
    x, y, out = torch.randn(6, 8), torch.zeros(6, 8), torch.zeros(4, 8)
    source = TensorDescriptor.from_tensor(x, [4, 8], padding=padding)
    host[(1,)](source, TensorDescriptor(y, [5, 8], [8, 1], [4, 8]), out, 3, N=4, M=8)
    same(out, block(x, 3, 0, 4, 8, float(padding == "nan" and "nan")))
    assert torch.equal(y[3:5], x[3:5]) and not y[:3].any() and not y[5].any()


def test_a_descriptor_larger_than_its_tensor_is_out_of_bounds():
    x, out = torch.randn(4, 8), torch.zeros(4, 8)
    large, small = TensorDescriptor(x, [6, 8], [8, 1], [4, 8]), TensorDescriptor.from_tensor(x, [4, 8])
    with pytest.raises(cpu.OutOfBounds, match="host"):
        host[(1,)](large, small, out, 2, N=4, M=8)


@pytest.mark.skipif(TRITON < (3, 7), reason="Triton 3.6 has no descriptors that round")
def test_a_descriptor_that_rounds_to_tf32():
    x, y, out = torch.randn(4, 8), torch.zeros(4, 8), torch.zeros(4, 8)
    source = TensorDescriptor.from_tensor(x, [4, 8], round_f32_to_tf32=True)
    host[(1,)](source, TensorDescriptor.from_tensor(y, [4, 8]), out, 0, N=4, M=8)
    assert not (out.view(torch.int32) & 0x1FFF).any()
    assert bool(((out - x).abs() <= x.abs() * 2**-11).all())


@triton.jit
def blocks(x, out, n, m, s, N: tl.constexpr, M: tl.constexpr, CHECK: tl.constexpr):
    p = tl.make_block_ptr(x, shape=[n, m], strides=[s, 1], offsets=[0, 3], block_shape=[N, M], order=[1, 0])
    a = tl.load(p, boundary_check=CHECK, padding_option="nan")
    p = tl.advance(p, [1, -2])
    b = tl.load(p, boundary_check=CHECK, padding_option="zero")
    q = tl.make_block_ptr(out, shape=[N, M], strides=[M, 1], offsets=[0, 0], block_shape=[N, M], order=[1, 0])
    tl.store(q, a)
    q = tl.make_block_ptr(out + N * M, shape=[n, m], strides=[M, 1], offsets=[0, 0], block_shape=[N, M], order=[1, 0])
    tl.store(q, b, boundary_check=(0,))


@pytest.mark.skipif(TRITON >= (3, 9), reason="Triton 3.9 has no block pointers")
@pytest.mark.parametrize("dtype", DTYPES[:3])
def test_block_pointers(dtype):
    x = torch.arange(3 * 10).reshape(3, 10).float().to(dtype)
    out = torch.zeros(2, 4, 8).to(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        blocks[(1,)](x, out, 3, 10, 10, N=4, M=8, CHECK=(0, 1))
    same(out[0], block(x, 0, 3, 4, 8, float("nan")))
    want = block(x, 1, 1, 4, 8)
    want[3] = 0
    same(out[1], want)
