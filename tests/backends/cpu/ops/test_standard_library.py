"""The rest of Triton's library of functions, each once, against torch."""

import math
from fractions import Fraction

import pytest
import torch
import triton
import triton.language as tl
from bit_values import TRITON, assert_same, floats


@triton.jit
def standard(x, words, out, bits, M: tl.constexpr, N: tl.constexpr):
    m, n = tl.arange(0, M), tl.arange(0, N)
    at = m[:, None] * N + n[None, :]
    a = tl.load(x + at)
    w = tl.load(words + at)
    tl.store(out + at, tl.softmax(a, 1, keep_dims=True))
    tl.store(out + M * N + at, tl.sigmoid(a))
    tl.store(out + 2 * M * N + at, tl.sort(a, 1, descending=True))
    tl.store(out + 3 * M * N + at, tl.flip(a, 0))
    tl.store(out + 4 * M * N + at, tl.zeros_like(a) + tl.cdiv(N, 3))
    i, j = tl.swizzle2d(m[:, None], n[None, :], M, N, 2)
    tl.store(out + 5 * M * N + at, (i * N + j).to(tl.float32))
    tl.store(bits + n, tl.xor_sum(w, 0))
    tl.store(bits + N + n, tl.reduce_or(w, 0))
    tl.store(bits + 2 * N + n, tl.cumsum(w, 0).sum(0))
    tl.store(bits + 3 * N + n, tl.cumprod(w, 1).max(0))
    tl.store(bits + 4 * N + n, tl.clamp(w.to(tl.float32), -3.0, 3.0).to(tl.int32).min(0))
    tl.store(bits + 5 * N, tl.umulhi(w, w).max())
    tl.store(bits + 5 * N + 1, tl.argmax(tl.ravel(a), 0, tie_break_left=False))


@pytest.mark.filterwarnings("ignore:The keep_dims argument to tl.softmax is deprecated")
def test_standard_functions():
    m, n = 8, 16
    x = torch.randn(m, n)
    words = torch.randint(-(2**31), 2**31 - 1, (m, n)).to(torch.int32)
    out, bits = torch.empty(6, m, n), torch.empty(6 * n, dtype=torch.int32)
    standard[(1,)](x, words, out, bits, M=m, N=n)
    torch.testing.assert_close(out[0], x.softmax(1))
    torch.testing.assert_close(out[1], x.sigmoid())
    assert_same(out[2], x.sort(1, descending=True).values)
    assert_same(out[3], x.flip(0))
    assert bool((out[4] == 6).all())
    # Two rows at a time, columns first.
    place = torch.arange(m * n)
    row, column = place // (2 * n) * 2 + place % 2, place % (2 * n) // 2
    assert torch.equal(out[5].flatten(), (row * n + column).float())
    w = words.long()
    either, both = w[0], w[0]
    for other in w[1:]:
        either, both = either | other, both ^ other
    got = bits[: 5 * n].reshape(5, n).long()
    assert torch.equal(got[0], both) and torch.equal(got[1], either)
    assert torch.equal(got[2], wrapped(w.cumsum(0).sum(0)))
    product = [w[:, 0]]
    for column in w.T[1:]:
        product.append(wrapped(product[-1] * column))
    assert torch.equal(got[3], torch.stack(product, 1).amax(0))
    assert torch.equal(got[4], w.clamp(-3, 3).amin(0))
    high = [int(v) % 2**32 * (int(v) % 2**32) >> 32 for v in w.flatten()]
    assert bits[5 * n] == max(v - 2**32 if v >= 2**31 else v for v in high)
    assert bits[5 * n + 1] == x.argmax()


def wrapped(values):
    return values.to(torch.int32).long()


@triton.jit
def joined(x, y, out, M: tl.constexpr, N: tl.constexpr):
    m, n = tl.arange(0, M), tl.arange(0, N)
    a = tl.load(x + m[:, None] * N + n[None, :])
    b = tl.load(y + m[:, None] * N + n[None, :])
    both = tl.cat(a, b, dim=1)
    tl.store(out + m[:, None] * 2 * N + tl.arange(0, 2 * N)[None, :], both)
    both = tl.cat(a, b, dim=0)
    tl.store(out + 2 * M * N + tl.arange(0, 2 * M)[:, None] * N + n[None, :], both)
    both = tl.interleave(a, b)
    tl.store(out + 4 * M * N + m[:, None] * 2 * N + tl.arange(0, 2 * N)[None, :], both)


@pytest.mark.skipif(TRITON < (3, 7), reason="Triton 3.6 joins tensors of one dim only")
@pytest.mark.parametrize("dtype", [torch.float8_e5m2, torch.bfloat16, torch.float32, torch.int64])
def test_tensors_of_two_dims_joined(dtype):
    x, y = (torch.randint(-9, 9, (4, 8)).float().to(dtype) for _ in range(2))
    out = torch.empty(192).to(dtype)
    joined[(1,)](x, y, out, M=4, N=8)
    a, b = x.double(), y.double()
    want = [torch.cat([a, b], 1), torch.cat([a, b], 0), torch.stack([a, b], 2).reshape(4, 16)]
    assert torch.equal(out.double(), torch.cat([side.flatten() for side in want]))


@triton.jit
def fused(x, y, z, out, rest, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(x + i)
    b = tl.load(y + i)
    tl.store(out + i, tl.fma(a, b, tl.load(z + i)))
    tl.store(rest + i, (a % b).to(a.dtype))


def nearest(exact, dtype):
    """A fraction rounded once: of the neighbours of a first guess the nearest, ties to even."""
    guess = torch.tensor(float(exact), dtype=torch.float64).to(dtype)
    if not bool(guess.isfinite()):
        return guess
    bits = guess.view(torch.int16) + torch.tensor([-1, 0, 1], dtype=torch.int16)
    words = [word for word in bits.view(dtype) if bool(word.isfinite()) and bool(word.signbit() == guess.signbit())]
    return min(words, key=lambda word: (abs(Fraction(float(word)) - exact), int(word.view(torch.int16)) & 1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_fma_of_16_bits_rounds_once_however_far_apart_the_terms_are(dtype):
    """2.5 * 6.72e24 is a tie of bfloat16, which 2.5 more breaks: an H200 gives the upper neighbour."""
    x, y, z = (floats(dtype, 1024, seed) for seed in (31, 32, 33))
    x[:2], y[:2], z[:2] = 2.5, torch.tensor(6.724649871606375e24).to(dtype), torch.tensor([2.5, -2.5]).to(dtype)
    out, rest = torch.empty(1024, dtype=dtype), torch.empty(1024, dtype=dtype)
    fused[(1,)](x, y, z, out, rest, B=1024)
    wide = x.double() * y.double() + z.double()
    assert torch.equal(out.isnan(), wide.isnan()) and torch.equal(out[wide.isinf()].double(), wide[wide.isinf()])
    for a, b, c, got in zip(x.tolist(), y.tolist(), z.tolist(), out, strict=True):
        if any(math.isnan(value) or math.isinf(value) for value in (a, b, c)):
            continue
        exact = Fraction(a) * Fraction(b) + Fraction(c)
        assert got == nearest(exact, dtype) if exact else got == 0, (a, b, c, got)


def test_the_float_remainder_is_that_of_a_gpu():
    """The three results are from an H200: by one fused step from the quotient, which is rounded."""
    x = torch.tensor([2.0**63, 1e30, 5.5, -5.5, 5.5, 7.0, -7.0, 65504.0])
    y = torch.tensor([1.5319707e11, -0.16965097, 2.0, 2.0, -2.0, float("inf"), float("-inf"), 0.0])
    out, rest = torch.empty(8), torch.empty(8)
    fused[(1,)](x, y, x, out, rest, B=8)
    assert rest[:2].tolist() == [pytest.approx(-2.3909191e11), pytest.approx(-2.5470126e22)]
    assert rest[2:7].tolist() == [1.5, -1.5, 1.5, 7.0, -7.0] and bool(rest[7].isnan())
