"""The order in which reductions and dots combine, and its permutations by a seed; ties, masks and NaN in reductions."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from bit_values import assert_same

from fuzz.backends import cpu

FLOATS = [torch.float16, torch.float32, torch.float64]


@pytest.fixture(autouse=True)
def own_order() -> Iterator[None]:
    yield
    cpu.knobs.reduction_order = 0


@triton.jit
def sums(x, out, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    a = tl.load(x + at)
    tl.store(out + tl.arange(0, M), tl.sum(a, 1))
    tl.store(out + M + tl.arange(0, M), tl.max(a, 1))
    value, index = tl.max(a, 1, return_indices=True)
    tl.store(out + 2 * M + tl.arange(0, M), index.to(tl.float32))
    tl.store(out + 3 * M + tl.arange(0, M), tl.sum((a * 8).to(tl.int32), 1).to(tl.float32))


def test_a_seed_permutes_what_depends_on_the_order_and_only_that():
    x = torch.randn(16, 256)
    x[:, 7] = x[:, 200] = 9
    seen = []
    for seed in (0, 1, 2, 2**31 - 1, 1):
        cpu.knobs.reduction_order = seed
        out = torch.empty(4, 16)
        sums[(1,)](x, out, M=16, N=256)
        seen.append(out)
        np.testing.assert_allclose(out[0], x.double().sum(1), rtol=1e-5, atol=1e-5)
    assert torch.equal(seen[1], seen[4]) and len({tuple(out[0].tolist()) for out in seen}) == 4
    assert all(torch.equal(out[1:], seen[0][1:]) for out in seen) and bool((seen[0][2] == 7).all())


@triton.jit
def product(x, y, out, N: tl.constexpr, P: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + at, tl.dot(tl.load(x + at), tl.load(y + at), input_precision=P))


def multiply(x, y, precision="ieee"):
    out = torch.empty(len(x), len(x))
    product[(1,)](x, y, out, N=len(x), P=precision)
    return out


def test_a_seed_permutes_products():
    x, y = torch.randn(32, 32), torch.randn(32, 32)
    plain = multiply(x, y)
    cpu.knobs.reduction_order = 5
    turned = multiply(x, y)
    order = torch.arange(32) ^ 5
    assert not torch.equal(plain, turned)
    cpu.knobs.reduction_order = 0
    assert torch.equal(multiply(x[:, order].contiguous(), y[order].contiguous()), turned)


def test_the_seed_is_checked():
    for seed in (-1, 2**31):
        with pytest.raises(ValueError, match="reduction_order"):
            cpu.knobs.reduction_order = seed


def test_three_products_of_tf32_are_nearly_those_of_float32():
    x, y = torch.randn(32, 32), torch.randn(32, 32)
    exact = x.double() @ y.double()
    three, one = multiply(x, y, "tf32x3"), multiply(x, y, "tf32")
    assert (three - exact).abs().max() < 1e-5 < 1e-4 < (one - exact).abs().max()


def test_three_products_of_tf32_have_the_bits_of_a_gpu():
    """The four words and their results are from an H200."""
    x = torch.eye(32)
    x[0, :4] = torch.tensor([0x3F801000, 0x3F801001, 0x3F803000, 0x3F800FFF], dtype=torch.int32).view(torch.float32)
    left, right = multiply(x, torch.eye(32), "tf32x3"), multiply(torch.eye(32), x, "tf32x3")
    once = multiply(x, torch.eye(32), "tf32")
    want = [0x3F801000, 0x3F801002, 0x3F803000, 0x3F800FFE]
    assert left[0, :4].view(torch.int32).tolist() == right[0, :4].view(torch.int32).tolist() == want
    assert once[0, :4].view(torch.int32).tolist() == [0x3F800000, 0x3F800000, 0x3F802000, 0x3F800000]


@triton.jit
def picks(x, words, high, low, top, counts, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + i)
    tl.store(high + tl.arange(0, 1), tl.argmax(a, 0))
    tl.store(low + tl.arange(0, 1), tl.argmin(a, 0))
    tl.store(top + tl.arange(0, 8), tl.topk(a, 8))
    n = tl.load(words + i)
    tl.store(counts + tl.arange(0, 16), tl.histogram(n, 16, mask=(n >= 0) & (i % 3 != 0)))


@pytest.mark.parametrize("dtype", [*FLOATS, torch.bfloat16, torch.int32, torch.int64])
def test_ties_top_values_and_masked_counts(dtype):
    x = torch.randint(-9, 9, (64,)).to(dtype)
    words = torch.randint(-2, 16, (64,), dtype=torch.int32)
    high, low, counts = (torch.empty(n, dtype=torch.int32) for n in (1, 1, 16))
    top = torch.empty(8, dtype=dtype)
    picks[(1,)](x, words, high, low, top, counts, N=64)
    wide = x.double().numpy()
    assert high[0] == wide.argmax() and low[0] == wide.argmin()
    assert_same(top, x.sort(descending=True).values[:8])
    kept = words[(words >= 0) & (torch.arange(64) % 3 != 0)]
    assert counts.tolist() == torch.bincount(kept, minlength=16).tolist()


@triton.jit
def larger(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def extremes(x, out, N: tl.constexpr):
    a = tl.load(x + tl.arange(0, N))
    tl.store(out, tl.max(a, 0))
    tl.store(out + 1, tl.min(a, 0))
    tl.store(out + 2, tl.reduce(a, 0, larger))


@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_is_passed_over_unless_it_is_to_propagate(dtype):
    x = torch.randn(32).to(dtype)
    x[[0, 5, 31]] = float("nan")
    out = torch.empty(3, dtype=dtype)
    extremes[(1,)](x, out, N=32)
    real = x[~x.isnan()]
    assert out[0] == real.max() and out[1] == real.min() and out[2].isnan()


@triton.jit
def either(a, b, x, y):
    return a + x, tl.where(b > y, b, y)


@triton.jit
def shapes(x, out, other, L: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, L)[:, None, None] * M * N + (tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])[None]
    a = tl.load(x + at)
    s, t = tl.reduce((a, -a), 1, either)
    tl.store(out + tl.arange(0, L)[:, None] * N + tl.arange(0, N)[None, :], s)
    tl.store(other + tl.arange(0, L)[:, None] * N + tl.arange(0, N)[None, :], t)
    u, v = tl.associative_scan((a, -a), 1, either, reverse=True)
    tl.store(out + L * N + at, u)
    tl.store(other + L * N + at, v)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.int64])
def test_reductions_and_reverse_scans_of_two_operands_over_a_middle_axis(dtype):
    x = torch.randint(-50, 50, (4, 8, 16)).to(dtype)
    out, other = torch.empty(4 * 16 * 9, dtype=dtype), torch.empty(4 * 16 * 9, dtype=dtype)
    shapes[(1,)](x, out, other, L=4, M=8, N=16)
    assert torch.equal(out[:64].reshape(4, 16), x.sum(1).to(dtype))
    assert torch.equal(other[:64].reshape(4, 16), (-x).amax(1))
    assert torch.equal(out[64:].reshape(4, 8, 16), x.flip(1).cumsum(1).flip(1).to(dtype))
    assert torch.equal(other[64:].reshape(4, 8, 16), (-x).flip(1).cummax(1).values.flip(1))


def test_products_of_bfloat16_parts():
    drawn = torch.Generator().manual_seed(0)
    x, y = torch.randn(32, 32, generator=drawn), torch.randn(32, 32, generator=drawn)
    exact = x.double() @ y.double()
    worst = {name: float((multiply(x, y, name) - exact).abs().max()) for name in ("tf32", "bf16x3", "bf16x6")}
    assert worst["bf16x6"] < 1e-5 < worst["bf16x3"] < 2e-4 < worst["tf32"]
    eye = torch.eye(32)
    eye[0, :3] = torch.tensor([1 + 2.0**-8 + 2.0**-16, 1 + 2.0**-12, 3e38])
    assert torch.equal(multiply(eye, torch.eye(32), "bf16x6")[0, :3], eye[0, :3])


@triton.jit
def half_product(x, y, out, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + at, tl.dot(tl.load(x + at), tl.load(y + at), out_dtype=tl.float16))


def test_accumulators_of_16_bits_round_after_sixteen_products():
    x, y, out = torch.randn(64, 64).half(), torch.randn(64, 64).half(), torch.empty(64, 64).half()
    half_product[(1,)](x, y, out, N=64)
    total = np.zeros((64, 64), np.float32)
    for k in range(64):
        total += np.outer(x[:, k].float(), y[k].float())
        if k % 16 == 15:
            total = total.astype(np.float16).astype(np.float32)
    assert np.array_equal(out.float().numpy(), total)
