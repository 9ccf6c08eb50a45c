"""Checks of whole blocks give the same reports and values as checks of single lanes would."""

import itertools

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from fuzz.backends import cpu

FILL = float("nan")


@triton.jit
def rows(x, out, start, x_row, x_column, m, n, shift, M: tl.constexpr, N: tl.constexpr):
    i = tl.program_id(0) * M + tl.arange(0, M)
    j = tl.arange(0, N) + shift
    mask = (i[:, None] < m) & (j[None, :] < n) & (j >= 0)[None, :]
    value = tl.load(x + start + i[:, None] * x_row + j[None, :] * x_column, mask=mask, other=-1.0)
    tl.store(out + i[:, None] * N + tl.arange(0, N)[None, :], value)


def expected(x, start, strides, m, n, shift, shape):
    """The output and the lanes outside, lane by lane."""
    out, outside = np.full(shape, -1.0, np.float32), []
    for i, j in np.ndindex(shape):
        if i < m and 0 <= j + shift < n:
            at = start + i * strides[0] + (j + shift) * strides[1]
            inside = 0 <= at < len(x)
            out[i, j] = x[at] if inside else FILL
            outside += [] if inside else [at]
    return out, sorted(outside)


@pytest.mark.parametrize(
    ("strides", "start"), [((16, 1), 0), ((1, 8), 0), ((-16, 1), 112), ((0, 3), 2), ((16, -1), 15)]
)
def test_affine_blocks_under_boxes(strides, start):
    x = np.random.default_rng(0).random(125).astype(np.float32)
    for m, n, shift in itertools.product((0, 1, 7, 8), (-1, 1, 15, 16, 20), (-3, 0, 2)):
        want, outside = expected(x, start, strides, m, n, shift, (8, 16))
        out = torch.zeros(8, 16)
        with cpu.observe(reports=1000) as log:
            rows[(2,)](torch.from_numpy(x), out, start, *strides, m, n, shift, M=4, N=16)
        np.testing.assert_array_equal(out.numpy(), want)
        assert sorted(v.offset for v in log.violations) == outside


@triton.jit
def folded(x, out, count, width, wrap, most, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    at = (i // width) * width + (i % width) % wrap
    tl.store(out + i, tl.load(x + tl.minimum(at, most), mask=i < count, other=-1.0))


def test_remainders_quotients_and_limits():
    x = np.arange(50, dtype=np.float32)
    for count, width, wrap, most in itertools.product((3, 50, 64), (1, 7, 16), (3, 20), (49, 50, 1000)):
        i = np.arange(64)
        at = np.minimum(i // width * width + i % width % wrap, most)
        want = np.where(i < count, np.where(at < 50, x[np.minimum(at, 49)], FILL), -1)
        out = torch.zeros(64)
        with cpu.observe(reports=1000) as log:
            folded[(4,)](torch.from_numpy(x), out, count, width, wrap, most, B=16)
        np.testing.assert_array_equal(out.numpy(), want.astype(np.float32))
        assert sorted(v.offset for v in log.violations) == sorted(at[(i < count) & (at >= 50)])


@triton.jit
def walking(x, out, n, step, B: tl.constexpr):
    columns = tl.arange(0, B)
    pointers = x + columns % 5
    total = tl.zeros((B,), tl.float32)
    for _ in range(n):
        total += tl.load(pointers, mask=columns < 6)
        pointers += step
        columns += 1
    tl.store(out + tl.arange(0, B), total)


@pytest.mark.parametrize(("n", "step"), [(3, 5), (5, 5), (6, 5), (4, -1), (0, 9)])
def test_pointers_and_masks_that_loops_move(n, step):
    x = torch.arange(25.0)
    lanes = [(turn, lane) for turn in range(n) for lane in range(8) if lane + turn < 6]
    at = [lane % 5 + turn * step for turn, lane in lanes]
    with cpu.observe(reports=1000) as log:
        walking[(1,)](x, torch.zeros(8), n, step, B=8)
    assert [v.offset for v in log.violations] == [place for place in at if not 0 <= place < 25]


@triton.jit
def wrapping(x, out, stride, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.load(x + i * stride, mask=i * stride < n, other=7.0))


def test_offsets_and_masks_of_32_bits_that_wrap_around():
    """2 * 2**30 is -2**31 in 32 bits, which is below n."""
    out = torch.zeros(4)
    with cpu.observe() as log:
        wrapping[(1,)](torch.zeros(4), out, 2**30, 4, B=4)
    assert [v.offset for v in log.violations] == [-(2**31), -(2**30)]
    assert out[:2].tolist() == [0, 7] and out[2:].isnan().all()


@triton.jit
def product_wraps(x, out, a, b, c, B: tl.constexpr):
    i = tl.arange(0, B).to(tl.int64)
    tl.store(out + i, tl.load(x + i * a * b * c))


def test_proofs_do_not_wrap_around_themselves():
    """Lane 1 lies at 2**62 * 4 bytes = 2**64: at 0 for the machine, though far outside for the proof."""
    with cpu.observe() as log:
        product_wraps[(1,)](torch.zeros(1), torch.zeros(4), 2**31, 2**31, 1, B=4)
        assert not log.violations
        product_wraps[(1,)](torch.zeros(1), torch.zeros(4), 2**30, 2**30, 2, B=4)
    assert [v.lane for v in log.violations] == [(1,), (3,)]


@triton.jit
def added(x, y, out, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.load(x + i) + tl.load(y + i))


def test_each_place_is_reported_however_often_others_are():
    out = torch.zeros(64)
    with cpu.observe(reports=1) as log:
        for _ in range(3):
            added[(2,)](torch.zeros(8), torch.zeros(8), out, B=64)
    assert [v.argument for v in log.violations] == ["x", "y"]
    assert log.count == 3 * 2 * 2 * 56
