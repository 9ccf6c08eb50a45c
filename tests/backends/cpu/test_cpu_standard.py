"""The rest of Triton's library of functions, each once, against torch."""

import pytest
import torch
import triton
import triton.language as tl
from cpu_values import assert_same


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


@pytest.mark.parametrize("dtype", [torch.float8_e5m2, torch.bfloat16, torch.float32, torch.int64])
def test_tensors_of_two_dims_joined(dtype):
    x, y = (torch.randint(-9, 9, (4, 8)).float().to(dtype) for _ in range(2))
    out = torch.empty(192).to(dtype)
    joined[(1,)](x, y, out, M=4, N=8)
    a, b = x.double(), y.double()
    want = [torch.cat([a, b], 1), torch.cat([a, b], 0), torch.stack([a, b], 2).reshape(4, 16)]
    assert torch.equal(out.double(), torch.cat([side.flatten() for side in want]))
