"""Operations that move elements, and reductions and scans over each axis."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from bit_values import TRITON, assert_same, floats, integers

ALL = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.int16, torch.int32, torch.int64]
# Until 3.8 `cat` insists that it may, from 3.9 on that it does not.
MAY_REORDER = tl.constexpr(TRITON < (3, 9))


@triton.jit
def moves(x, out, M: tl.constexpr, N: tl.constexpr):
    m, n = tl.arange(0, M), tl.arange(0, N)
    at = m[:, None] * N + n[None, :]
    flat = tl.arange(0, M * N)
    a = tl.load(x + at)
    tl.store(out + flat, tl.reshape(tl.trans(a), (M * N,)))
    tl.store(out + M * N + flat, tl.ravel(a))
    left, right = tl.split(tl.reshape(a, (M * N // 2, 2)))
    tl.store(out + 2 * M * N + tl.arange(0, M * N // 2), left)
    tl.store(out + 2 * M * N + M * N // 2 + tl.arange(0, M * N // 2), right)
    tl.store(out + 3 * M * N + flat, tl.reshape(tl.join(right, left), (M * N,)))
    tl.store(out + 4 * M * N + flat, tl.interleave(left, right))
    tl.store(out + 5 * M * N + flat, tl.cat(right, left, can_reorder=MAY_REORDER))
    tl.store(out + 6 * M * N + flat, tl.reshape(tl.permute(tl.reshape(a, (M, 2, N // 2)), (1, 2, 0)), (M * N,)))
    tl.store(out + 7 * M * N + flat, tl.ravel(tl.flip(a, 1)))
    tl.store(out + 8 * M * N + at, tl.broadcast_to(tl.load(x + m[:, None]), (M, N)))


@pytest.mark.parametrize("dtype", ALL)
def test_moves(dtype):
    m, n = 8, 16
    x = (floats if dtype.is_floating_point else integers)(dtype, m * n, 1).reshape(m, n)
    out = torch.empty(9, m * n, dtype=dtype)
    moves[(1,)](x, out, M=m, N=n)
    pairs = x.reshape(-1, 2)
    left, right = pairs[:, 0], pairs[:, 1]
    want = [
        x.T.reshape(-1), x.reshape(-1), torch.cat([left, right]), torch.stack([right, left], 1).reshape(-1),
        x.reshape(-1), torch.cat([right, left]), x.reshape(m, 2, n // 2).permute(1, 2, 0).reshape(-1),
        x.flip(1).reshape(-1), x.reshape(-1)[:m, None].expand(m, n).reshape(-1),
    ]  # fmt: skip
    for row, expected in zip(out, want, strict=True):
        assert_same(row, expected)


@triton.jit
def reductions(x, out0, out1, whole, M: tl.constexpr, N: tl.constexpr):
    m, n = tl.arange(0, M), tl.arange(0, N)
    a = tl.load(x + m[:, None] * N + n[None, :])
    tl.store(out0 + n, tl.sum(a, 0))
    tl.store(out0 + N + n, tl.max(a, 0))
    tl.store(out0 + 2 * N + n, tl.min(a, 0))
    tl.store(out1 + m, tl.sum(a, 1))
    tl.store(out1 + M + m, tl.max(a, 1))
    tl.store(out1 + 2 * M + m, tl.min(a, 1))
    tl.store(whole, tl.sum(a))
    tl.store(whole + 1, tl.max(a))
    tl.store(whole + 2, tl.min(a))


def tree(values, axis, combine):
    """The documented order: element i with element i + h, h = N/2 ... 1."""
    values = np.moveaxis(values, axis, 0)
    while len(values) > 1:
        half = len(values) // 2
        values = combine(values[:half], values[half:])
    return values[0]


@pytest.mark.parametrize(("m", "n"), [(1, 8), (8, 1), (4, 32), (64, 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64])
def test_reductions_are_halving_trees(dtype, m, n):
    x = torch.randn(m, n, dtype=torch.float64).to(dtype) if dtype.is_floating_point else integers(dtype, m * n, 2)
    x = x.reshape(m, n)
    outs = [torch.empty(3, n, dtype=dtype), torch.empty(3, m, dtype=dtype), torch.empty(3, dtype=dtype)]
    reductions[(1,)](x, *outs, M=m, N=n)
    for axis, out in enumerate(outs[:2]):
        for row, combine in zip(out.numpy(), (np.add, np.maximum, np.minimum), strict=True):
            np.testing.assert_array_equal(row, tree(x.numpy(), axis, combine))
    assert outs[2].tolist() == [tree(x.numpy().reshape(-1), 0, f) for f in (np.add, np.maximum, np.minimum)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bit_sums_are_of_the_dtype_that_triton_says(dtype):
    """Triton sums 16-bit floats as they are: every step rounds."""
    x = torch.randn(4, 32).to(dtype)
    outs = [torch.empty(3, 32, dtype=dtype), torch.empty(3, 4, dtype=dtype), torch.empty(3, dtype=dtype)]
    reductions[(1,)](x, *outs, M=4, N=32)
    rows = x
    while rows.shape[1] > 1:
        half = rows.shape[1] // 2
        rows = rows[:, :half] + rows[:, half:]
    assert_same(outs[1][0], rows[:, 0])
    assert_same(outs[1][1], x.amax(1))


@triton.jit
def positions(x, out, low, high, M: tl.constexpr, N: tl.constexpr):
    m, n = tl.arange(0, M), tl.arange(0, N)
    a = tl.load(x + m[:, None] * N + n[None, :])
    tl.store(out + m, tl.argmax(a, 1))
    tl.store(out + M + m, tl.argmin(a, 1))
    value, index = tl.max(a, 1, return_indices=True)
    tl.store(high + m, value)
    tl.store(out + 2 * M + m, index)
    value, index = tl.min(a, 1, return_indices=True, return_indices_tie_break_left=False)
    tl.store(low + m, value)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int32, torch.int64])
def test_positions_of_extremes(dtype):
    x = torch.randint(-5, 5, (16, 32)).to(dtype)
    out = torch.empty(3, 16, dtype=torch.int32)
    low, high = torch.empty(16, dtype=dtype), torch.empty(16, dtype=dtype)
    positions[(1,)](x, out, low, high, M=16, N=32)
    wide = x.double().numpy()
    np.testing.assert_array_equal(out[0].numpy(), wide.argmax(1))
    np.testing.assert_array_equal(out[1].numpy(), wide.argmin(1))
    np.testing.assert_array_equal(out[2].numpy(), wide.argmax(1))
    assert_same(high, x.amax(1))
    assert_same(low, x.amin(1))


@triton.jit
def first(a, b):
    return a


@triton.jit
def decay(a0, b0, a1, b1):
    return a0 * a1, b0 * a1 + b1


@triton.jit
def scans(x, out, M: tl.constexpr, N: tl.constexpr):
    m, n = tl.arange(0, M), tl.arange(0, N)
    at = m[:, None] * N + n[None, :]
    a = tl.load(x + at)
    tl.store(out + at, tl.cumsum(a, 0))
    tl.store(out + M * N + at, tl.cumsum(a, 1))
    tl.store(out + 2 * M * N + at, tl.cumprod(a, 1))
    tl.store(out + 3 * M * N + at, tl.cumsum(a, 1, reverse=True))
    tl.store(out + 4 * M * N + at, tl.associative_scan(a, 0, first))
    scale, state = tl.associative_scan((a, a), 1, decay)
    tl.store(out + 5 * M * N + at, state)


@triton.jit
def short_scans(x, out):
    i = tl.arange(0, 2)
    tl.store(out + i, tl.cumsum(tl.load(x + i), 0))
    tl.store(out + 2 + i, tl.cumsum(tl.load(x + i), 0, reverse=True))


def test_scans_of_two_elements():
    out = torch.empty(4)
    short_scans[(1,)](torch.tensor([3.0, 5.0]), out)
    assert out.tolist() == [3.0, 8.0, 8.0, 5.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64])
def test_scans_are_sequential(dtype):
    x = torch.randint(-3, 4, (8, 16)).to(dtype)
    out = torch.empty(6, 8, 16, dtype=dtype)
    scans[(1,)](x, out, M=8, N=16)
    a = x.numpy()
    want = [a.cumsum(0), a.cumsum(1), a.cumprod(1), a[:, ::-1].cumsum(1)[:, ::-1], np.broadcast_to(a[:1], a.shape)]
    for row, expected in zip(out.numpy(), want, strict=False):
        np.testing.assert_array_equal(row, expected.astype(a.dtype))
    state = np.zeros_like(a)
    state[:, 0] = a[:, 0]
    for column in range(1, 16):
        state[:, column] = state[:, column - 1] * a[:, column] + a[:, column]
    np.testing.assert_array_equal(out[5].numpy(), state)


@triton.jit
def sorts(x, out, picks, counts, N: tl.constexpr):
    n = tl.arange(0, N)
    a = tl.load(x + n)
    tl.store(out + n, tl.sort(a))
    tl.store(out + N + n, tl.sort(a, descending=True))
    index = tl.load(picks + n)
    tl.store(out + 2 * N + n, tl.gather(a, index, 0))
    tl.store(counts + n, tl.histogram(index, N))
    tl.store(out + 3 * N + n, tl.where(tl.xor_sum(index) == 0, a, a + a))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_sort_gather_histogram(dtype):
    x = torch.randint(-1000, 1000, (64,)).to(dtype)
    picks = torch.randint(0, 64, (64,), dtype=torch.int32)
    out, counts = torch.empty(4, 64, dtype=dtype), torch.empty(64, dtype=torch.int32)
    sorts[(1,)](x, out, picks, counts, N=64)
    ordered = x.sort().values
    for row, want in zip(out, (ordered, ordered.flip(0), x[picks.long()]), strict=False):
        assert_same(row, want)
    assert counts.tolist() == torch.bincount(picks, minlength=64).tolist()
    doubled = np.bitwise_xor.reduce(picks.numpy()) != 0
    assert_same(out[3], x + x if doubled else x)


@triton.jit
def one_broadcast(x, out, SHAPE: tl.constexpr, WIDE: tl.constexpr, N: tl.constexpr):
    small = tl.reshape(tl.load(x + tl.arange(0, N // 2)), SHAPE)
    tl.store(out + tl.arange(0, N), tl.reshape(tl.broadcast_to(small + small, WIDE), (N,)))


@pytest.mark.parametrize("axis", range(6))
def test_a_value_of_many_dims_is_broadcast_along_each(axis):
    """From five dims on a loop over them has one index; that of a value with one lane there is another."""
    wide = (2,) * 6
    shape = tuple(1 if dim == axis else 2 for dim in range(6))
    x, out = torch.arange(32, dtype=torch.int32), torch.empty(64, dtype=torch.int32)
    one_broadcast[(1,)](x, out, SHAPE=shape, WIDE=wide, N=64)
    assert torch.equal(out, (2 * x).reshape(shape).expand(wide).reshape(-1))


@triton.jit
def bins_of(x, counts, N: tl.constexpr, BINS: tl.constexpr):
    tl.store(counts + tl.arange(0, BINS), tl.histogram(tl.load(x + tl.arange(0, N)), BINS))


@pytest.mark.skipif(TRITON >= (3, 9), reason="the histogram of Triton 3.9 takes 32-bit integers alone")
@pytest.mark.parametrize(
    ("dtype", "values"),
    [(torch.uint8, [0, 1, 200, 255, 128, 127, 200, 3]), (torch.int64, [0, 1, (1 << 40) + 1, 255, -1, 127, 7, 3])],
)
def test_the_histogram_counts_bytes_as_unsigned_and_no_value_beyond_the_last_bin(dtype, values):
    counts = torch.empty(256, dtype=torch.int32)
    bins_of[(1,)](torch.tensor(values, dtype=dtype), counts, N=8, BINS=256)
    kept = [value for value in values if 0 <= value < 256]
    assert counts.tolist() == torch.bincount(torch.tensor(kept), minlength=256).tolist()


@triton.jit
def pointers_in_a_loop(x, out):
    pointer, before = x, x.to(tl.int64)
    for _ in range(3):
        now = pointer.to(tl.int64)
        pointer = pointer + 1
        before = now
    tl.store(out, before - x.to(tl.int64))


def test_a_loop_that_carries_a_pointer_reads_it_before_it_is_moved():
    out = torch.empty(1, dtype=torch.int64)
    pointers_in_a_loop[(1,)](torch.zeros(8), out)
    assert out.item() == 8


@triton.jit
def two_ones(x, out, MAY: tl.constexpr):
    one = tl.load(x + tl.arange(0, 1))
    tl.store(out + tl.arange(0, 2), tl.cat(one, one + 1, can_reorder=MAY))


def test_two_tensors_of_one_element_are_joined():
    out = torch.empty(2)
    two_ones[(1,)](torch.tensor([3.0]), out, MAY=MAY_REORDER)
    assert out.tolist() == [3.0, 4.0]
