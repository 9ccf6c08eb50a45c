"""Loads and stores with masks, atomics in every dtype, the order of programs."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from bit_values import assert_same, floats, integers

from fuzz.backends import cpu

ALL = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.int16, torch.int32, torch.int64]


@triton.jit
def masked(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, mask=i < n))
    tl.store(out + B + i, tl.load(x + i, mask=i < n, other=7))
    tl.store(out + 2 * B + i, tl.load(x + i), mask=i >= n)


@pytest.mark.parametrize("dtype", [*ALL, torch.bool])
def test_masks(dtype):
    x = torch.randint(0, 2, (16,)).bool() if dtype == torch.bool else torch.randint(1, 9, (16,)).to(dtype)
    out = torch.zeros(3, 16, dtype=dtype)
    masked[(1,)](x, out, 5, B=16)
    inside = torch.arange(16) < 5
    assert_same(out[0], torch.where(inside, x, torch.zeros_like(x)))
    assert_same(out[1], torch.where(inside, x, torch.full_like(x, 7)))
    assert_same(out[2], torch.where(inside, torch.zeros_like(x), x))


@triton.jit
def hinted(x, out, n, CACHE: tl.constexpr, EVICTION: tl.constexpr, STORE: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    value = tl.load(x + i, mask=i < n, cache_modifier=CACHE, eviction_policy=EVICTION)
    tl.store(out + i, value, mask=i < n, cache_modifier=STORE, eviction_policy=EVICTION)


@pytest.mark.parametrize("hints", [(".cg", "evict_last", ".cs"), (".ca", "evict_first", ".wt"), ("", "", ".wb")])
def test_hints_to_the_cache_change_nothing(hints):
    x, out = torch.arange(16.0), torch.zeros(16)
    hinted[(1,)](x, out, 12, *hints, B=16)
    assert torch.equal(out, x * (x < 12))


@triton.jit
def masked_pairs(x, on, out, B: tl.constexpr):
    row, pair = tl.expand_dims(tl.arange(0, B), 1), tl.expand_dims(tl.arange(0, 2), 0)
    mask = tl.load(on + (row * 2 + 1 + pair))
    first, _ = tl.split(tl.load(x + (row * 2 + 3 + pair), mask=mask, other=7))
    tl.atomic_or(out + tl.arange(0, B), first)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_pairs_whose_masks_are_kept(dtype):
    """gcc 12.2 gives some of these lanes the mask of others where it unrolls the loop over the pairs."""
    x = torch.randint(1, 1 << 30, (3 + 128,)).to(dtype)
    on = torch.rand(1 + 128) > 0.5
    out = torch.zeros(64, dtype=dtype)
    masked_pairs[(1,)](x, on, out, B=64)
    assert torch.equal(out, torch.where(on[1::2], x[3::2], 7))


@triton.jit
def strided(x, out, xm, xn, om, on, M: tl.constexpr, N: tl.constexpr):
    m, n = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    tl.store(out + m * om + n * on, tl.load(x + m * xm + n * xn))


def test_any_strides():
    base = torch.randn(8, 2, 16)
    out = torch.empty(16, 4).T
    strided[(1,)](base[::2, 1], out, *base[::2, 1].stride(), *out.stride(), M=4, N=16)
    assert torch.equal(out, base[::2, 1])
    row = torch.randn(1, 16).expand(4, 16)
    strided[(1,)](row, out, *row.stride(), *out.stride(), M=4, N=16)
    assert torch.equal(out, row)


@triton.jit
def atomics_int(x, v, old, n, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(v + i)
    m = i < n
    tl.store(old + i, tl.atomic_add(x + i % 4, a, mask=m))
    tl.atomic_max(x + 4 + i % 4, a)
    tl.atomic_min(x + 8 + i % 4, a)
    tl.atomic_and(x + 12 + i % 4, a)
    tl.atomic_or(x + 16 + i % 4, a)
    tl.atomic_xor(x + 20 + i % 4, a)
    tl.store(old + B + i, tl.atomic_xchg(x + 24 + i % 4, a))
    tl.store(old + 2 * B + i, tl.atomic_cas(x + 28 + i % 4, a, a + 1))


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.uint64])
def test_integer_atomics(dtype):
    signed = {4: torch.int32, 8: torch.int64}[np.dtype(dtype).itemsize]
    x, v = integers(signed, 32, 1).numpy().view(dtype).copy(), integers(signed, 16, 2).numpy().view(dtype).copy()
    v[3] = x[31]
    tensor, old = torch.from_numpy(x.copy()), torch.from_numpy(np.empty((3, 16), dtype))
    atomics_int[(1,)](tensor, torch.from_numpy(v), old, 10, B=16)
    want, seen = expected_atomics(x, v, 10)
    np.testing.assert_array_equal(tensor.numpy(), want)
    np.testing.assert_array_equal(old.numpy(), seen)


def expected_atomics(x, v, n):
    want, seen = x.copy(), np.zeros((3, 16), x.dtype)
    with np.errstate(over="ignore"):
        for i, a in enumerate(v):
            k = i % 4
            if i < n:
                seen[0, i], want[k] = want[k], want[k] + a
            for at, combine in ((4, max), (8, min), (12, np.bitwise_and), (16, np.bitwise_or), (20, np.bitwise_xor)):
                want[at + k] = combine(want[at + k], a)
            seen[1, i], want[24 + k] = want[24 + k], a
            seen[2, i] = want[28 + k]
            if want[28 + k] == a:
                want[28 + k] = a + x.dtype.type(1)
    return want, seen


@triton.jit
def atomics_float(x, v, old, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(old + i, tl.atomic_add(x + i % 4, tl.load(v + i)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_float_atomic_add_rounds_every_time(dtype):
    x, v, old = torch.randn(4).to(dtype), torch.randn(64).to(dtype), torch.empty(64, dtype=dtype)
    want, seen = x.clone(), []
    for i in range(64):
        seen.append(want[i % 4].clone())
        want[i % 4] += v[i]
    atomics_float[(1,)](x, v, old, B=64)
    assert_same(x, want)
    assert_same(old, torch.stack(seen))


@triton.jit
def atomic_extremes(x, v, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(v + i)
    tl.atomic_max(x + i * 0, a)
    tl.atomic_min(x + 1 + i * 0, a)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_float_atomic_extremes(dtype):
    v = floats(dtype, 64, 3)
    v = torch.where(v.isnan(), torch.ones_like(v), v)
    x = torch.tensor([-1.0, 1.0], dtype=dtype)
    atomic_extremes[(1,)](x, v, B=64)
    assert x.tolist() == [max(-1.0, v.max().item()), min(1.0, v.min().item())]


@triton.jit
def scalar_atomic(x, count):
    value = tl.load(x + tl.program_id(0))
    tl.atomic_add(count, value)


def test_permuted_order_changes_the_bits_of_a_sum():
    x = torch.randn(257) * torch.exp2(torch.randint(-20, 20, (257,)).float())
    totals = {}
    for order in (None, -1, 1, 2, 1):
        total = torch.zeros(1)
        with cpu.observe(order=order) as log:
            scalar_atomic[(257,)](x, total)
        assert log.launches == ["scalar_atomic"] and not log.violations
        assert totals.setdefault(order, total.item()) == total.item()
    assert len(set(totals.values())) > 1
    plain = torch.zeros(1)
    scalar_atomic[(257,)](x, plain)
    assert plain.item() == totals[None]


@triton.jit
def ticket(out, counter):
    at = tl.atomic_add(counter, 1)
    tl.store(out + at, tl.program_id(0) + 100 * tl.program_id(1))


def test_orders_are_permutations_of_the_grid():
    def run(order):
        out, counter = torch.full((12,), -1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
        with cpu.observe(order=order):
            ticket[(4, 3)](out, counter)
        return out.tolist()

    plain = [x + 100 * y for y in range(3) for x in range(4)]
    assert run(None) == plain
    assert run(-1) == plain[::-1]
    assert run(5) == run(5) != plain
    assert sorted(run(5)) == sorted(plain)
    assert run(5) != run(6)


@triton.jit
def large(x, out, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(x + i)
    total = tl.cumsum(a, 0)
    tl.store(out + i, total + tl.flip(a, 0))


def test_big_tensors_do_not_live_on_the_stack():
    size = 1 << 20
    x, out = torch.randint(-3, 3, (size,)).double(), torch.empty(size, dtype=torch.float64)
    large[(2,)](x, out, B=size)
    assert torch.equal(out, x.cumsum(0) + x.flip(0))
