"""8-bit floats: loads, stores, casts, arithmetic and products, over all of their values."""

import itertools

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from bit_values import BITS, TRITON, bit_patterns, floats

from fuzz.backends import cpu

EIGHT = [torch.float8_e4m3fn, torch.float8_e5m2]
WIDER = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
ALL = torch.arange(256, dtype=torch.int32).to(torch.uint8)


def assert_bits(got: torch.Tensor, want: torch.Tensor) -> None:
    """Equal bits of 8-bit floats; any NaN equals any NaN."""
    same = (got.view(torch.uint8) == want.view(torch.uint8)) | (got.float().isnan() & want.float().isnan())
    where = (~same).nonzero().flatten().tolist()
    assert not where, f"{len(where)} differ, first {got.float()[where[0]]} not {want.float()[where[0]]} at {where[0]}"


@triton.jit
def cast(x, out, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i).to(out.dtype.element_ty))


def saturated(x: torch.Tensor, to: torch.dtype) -> torch.Tensor:
    """By definition: the nearest of all finite values, ties to the even one; NaN stays NaN, the rest saturates."""
    table = torch.arange(0, 256, dtype=torch.int32).to(torch.uint8)[:128].view(to).double()
    table = table[table.isfinite()]
    a = x.double().abs().nan_to_num(0.0).clamp(max=float(table[-1]))
    above = torch.searchsorted(table, a).clamp(1, len(table) - 1)
    low, high = table[above - 1], table[above]
    up = (a - low > high - a) | ((a - low == high - a) & (above % 2 == 0))
    word = torch.where(up, above, above - 1).to(torch.uint8) | (x.signbit().to(torch.uint8) << 7)
    return torch.where(x.isnan(), torch.full_like(word, 0x7F), word).view(to)


@pytest.mark.parametrize("to", EIGHT)
@pytest.mark.parametrize("source", WIDER)
def test_casts_down_round_once_and_saturate(source, to):
    if source.itemsize == 2:
        x = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(source)
    else:
        ties = ALL.view(to)[:126].double()
        middle = (ties[:-1] + ties[1:]) / 2
        hair = torch.tensor([0.0, 2.0**-20, -(2.0**-20), 2.0**-45]).double()
        near = (middle[:, None] * (1 + hair)).flatten().to(source)
        x = torch.cat([floats(source, 1 << 14, 1), bit_patterns(source, 1 << 14, 2), near, -near])
        x = x[: x.numel() // 1024 * 1024] if x.numel() % 1024 == 0 else torch.cat([x, x[: 1024 - x.numel() % 1024]])
    out = torch.empty(x.shape, dtype=to)
    cast[(x.numel() // 1024,)](x, out, B=1024)
    assert_bits(out, saturated(x, to))
    inside = x.double().abs() <= torch.finfo(to).max
    if source != torch.float64:
        assert_bits(out[inside], x[inside].to(to))


@pytest.mark.parametrize("source", EIGHT)
@pytest.mark.parametrize("to", [*WIDER, *EIGHT])
def test_all_values_widen_exactly(source, to):
    x = ALL.view(source)
    out = torch.empty(256, dtype=to)
    cast[(1,)](x, out, B=256)
    if to in EIGHT:
        assert_bits(out, x if to == source else saturated(x.double(), to))
    else:
        same = (out.view(BITS[to]) == x.to(to).view(BITS[to])) | (out.isnan() & x.float().isnan())
        assert bool(same.all()) and torch.equal(out.isnan(), x.float().isnan())


@triton.jit
def truncate(x, out, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.load(x + i).to(out.dtype.element_ty, fp_downcast_rounding="rtz"))


def test_rounding_towards_zero():
    x = floats(torch.float32, 4096, 3)
    out = torch.empty(4096, dtype=torch.float8_e5m2)
    truncate[(1,)](x, out, B=4096)
    near = saturated(x, torch.float8_e5m2)
    beyond = near.double().abs() > x.double().abs()
    want = torch.where(beyond, near.view(torch.uint8) - 1, near.view(torch.uint8))
    infinite = (x.signbit().to(torch.uint8) << 7) | 0x7C
    assert_bits(out, torch.where(x.isinf(), infinite, want).view(torch.float8_e5m2))
    with pytest.raises(cpu.UnsupportedOperation, match="rtz from f32 to f8E4M3FN"):
        truncate[(1,)](x, torch.empty(4096, dtype=torch.float8_e4m3fn), B=4096)


@triton.jit
def arithmetic(x, y, out, less, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + i)
    b = tl.load(y + i)
    tl.store(out + i, a + b)
    tl.store(out + n + i, a - b)
    tl.store(out + 2 * n + i, a * b)
    tl.store(out + 3 * n + i, tl.where(a < b, a, b))
    tl.store(less + i, a < b)


@pytest.mark.parametrize("dtype", EIGHT)
def test_arithmetic_of_all_pairs_rounds_once(dtype):
    pairs = torch.cartesian_prod(ALL, ALL)
    x, y = (side.contiguous().view(dtype) for side in pairs.T)
    out = torch.empty(4, 65536, dtype=torch.uint8).view(dtype)
    less = torch.empty(65536, dtype=torch.bool)
    arithmetic[(64,)](x, y, out, less, 65536, B=1024)
    a, b = x.double(), y.double()
    for row, want in zip(out, (a + b, a - b, a * b), strict=False):
        assert_bits(row, saturated(want, dtype))
    assert torch.equal(less, a < b)
    assert_bits(out[3], torch.where(a < b, x.view(torch.uint8), y.view(torch.uint8)).view(dtype))


@triton.jit
def moved(x, words, out, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(words + i, tl.load(x + i).to(tl.int8, bitcast=True))
    tl.store(out + i, tl.load(words + i).to(out.dtype.element_ty, bitcast=True))


@pytest.mark.parametrize("dtype", EIGHT)
def test_bitcasts_keep_all_but_the_payload_of_nan(dtype):
    x = ALL.view(dtype)
    words, out = torch.empty(256, dtype=torch.int8), torch.empty(256, dtype=torch.uint8).view(dtype)
    moved[(1,)](x, words, out, B=256)
    assert_bits(words.view(torch.uint8).view(dtype), x)
    assert_bits(out, x)


@triton.jit
def constants(out, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.full((B,), 0.3, out.dtype.element_ty))
    tl.store(out + B + i, tl.full((B,), float("nan"), out.dtype.element_ty))


@pytest.mark.skipif(TRITON < (3, 7), reason="Triton 3.6 makes no constants of 8 bits")
@pytest.mark.parametrize("dtype", EIGHT)
def test_constants(dtype):
    out = torch.empty(16, dtype=torch.uint8).view(dtype)
    constants[(1,)](out, B=8)
    assert_bits(out[:8], torch.full((8,), 0.3).to(dtype))
    assert bool(out[8:].float().isnan().all())


@triton.jit
def product(x, y, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(x + m[:, None] * K + k[None, :])
    b = tl.load(y + k[:, None] * N + n[None, :])
    tl.store(out + m[:, None] * N + n[None, :], tl.dot(a, b))


@pytest.mark.parametrize(("left", "right"), list(itertools.product(EIGHT, EIGHT)))
def test_products_of_eight_bit_floats_are_exact_in_float32(left, right):
    a, b = torch.randint(-8, 9, (16, 32)).float().to(left), torch.randint(-8, 9, (32, 16)).float().to(right)
    out = torch.empty(16, 16)
    product[(1,)](a, b, out, M=16, N=16, K=32)
    assert torch.equal(out, a.float() @ b.float())


@triton.jit
def scaled(x, xs, y, ys, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, KX: tl.constexpr, KY: tl.constexpr,
           LEFT: tl.constexpr, RIGHT: tl.constexpr, WITH: tl.constexpr):  # fmt: skip
    m, n, s = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K // 32)
    a = tl.load(x + m[:, None] * KX + tl.arange(0, KX)[None, :])
    b = tl.load(y + tl.arange(0, KY)[:, None] * N + n[None, :])
    left = tl.load(xs + m[:, None] * (K // 32) + s[None, :])
    if WITH:
        right = tl.load(ys + n[:, None] * (K // 32) + s[None, :])
        result = tl.dot_scaled(a, left, LEFT, b, right, RIGHT)
    else:
        result = tl.dot_scaled(a, left, LEFT, b, None, RIGHT)
    tl.store(out + m[:, None] * N + n[None, :], result)


E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
FORMATS = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "bf16": torch.bfloat16, "fp16": torch.float16}


def side(form, rows, depth):
    """Stored values [rows, depth or half of it], and what they mean."""
    if form == "e2m1":
        packed = torch.randint(0, 256, (rows, depth // 2), dtype=torch.int32).to(torch.uint8)
        return packed, torch.stack([E2M1[(packed & 15).long()], E2M1[(packed >> 4).long()]], 2).reshape(rows, depth)
    values = torch.randint(-6, 7, (rows, depth)).float().to(FORMATS[form])
    return values, values.float()


@pytest.mark.parametrize(
    ("left", "right", "both"),
    [("e2m1", "e2m1", True), ("e4m3", "e5m2", True), ("e2m1", "bf16", False), ("e5m2", "e2m1", True),
     ("fp16", "e4m3", True)],
)  # fmt: skip
def test_scaled_products(left, right, both):
    m, n, k = 16, 32, 64
    x, a = side(left, m, k)
    y, b = side(right, n, k)
    xs, ys = (torch.randint(125, 130, (rows, k // 32), dtype=torch.int32).to(torch.uint8) for rows in (m, n))
    out = torch.empty(m, n)
    turned = y.view(torch.uint8 if y.itemsize == 1 else torch.int16).T.contiguous().view(y.dtype)
    scaled[(1,)](x, xs, turned, ys, out, M=m, N=n, K=k, KX=x.shape[1], KY=y.shape[1], LEFT=left, RIGHT=right, WITH=both)
    a = a * torch.exp2(xs.float() - 127).repeat_interleave(32, 1)
    b = b * torch.exp2(ys.float() - 127).repeat_interleave(32, 1) if both else b
    np.testing.assert_array_equal(out.numpy(), (a.double() @ b.double().T).float().numpy())


def test_a_scale_of_255_is_nan():
    x, _ = side("e4m3", 16, 64)
    xs = torch.full((16, 2), 127, dtype=torch.uint8)
    xs[3, 1] = 255
    out = torch.empty(16, 16)
    y, _ = side("bf16", 16, 64)
    sizes = dict(M=16, N=16, K=64, KX=64, KY=64)
    scaled[(1,)](x, xs, y.T.contiguous(), xs, out, LEFT="e4m3", RIGHT="bf16", WITH=False, **sizes)
    assert bool(out[3].isnan().all()) and int(out.isnan().sum()) == 16


UNSIGNED_ZERO = [torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]


@pytest.mark.parametrize("dtype", UNSIGNED_ZERO)
@pytest.mark.parametrize("wider", WIDER)
def test_types_without_negative_zero_widen_exactly_and_come_back(dtype, wider):
    out, back = torch.empty(256, dtype=wider), torch.empty(256, dtype=dtype)
    cast[(1,)](ALL.view(dtype), out, B=256)
    want = ALL.view(dtype).to(torch.float32).to(wider)
    assert torch.equal(out.nan_to_num(), want.nan_to_num()) and torch.equal(out.isnan(), want.isnan())
    cast[(1,)](out, back, B=256)
    assert torch.equal(back.view(torch.uint8), ALL)


@pytest.mark.parametrize("dtype", UNSIGNED_ZERO)
def test_types_without_negative_zero_round_once_and_saturate(dtype):
    table = ALL.view(dtype).double()[:128]
    x = torch.cat([floats(torch.float32, 1 << 12, 3), ((table[1:] + table[:-1]) / 2).float(), torch.tensor([0.0])])
    x = torch.cat([x, -x])[:8192]
    out = torch.empty(x.shape, dtype=dtype)
    cast[(x.numel() // 128,)](x, out, B=128)
    a = x.double().abs().nan_to_num(0.0).clamp(max=float(table[-1]))
    above = torch.searchsorted(table, a).clamp(1, 127)
    low, high = table[above - 1], table[above]
    up = (a - low > high - a) | ((a - low == high - a) & (above % 2 == 0))
    word = torch.where(up, above, above - 1)
    word = torch.where((word > 0) & x.signbit(), word | 0x80, word)
    assert torch.equal(out.view(torch.uint8), torch.where(x.isnan(), 0x80, word).to(torch.uint8))


@triton.jit
def widen_custom(x, out):
    i = tl.arange(0, 256)
    tl.store(out + i, tl.load(x + i).to(out.dtype.element_ty))


@triton.jit
def narrow_custom(x, out):
    i = tl.arange(0, 256)
    tl.store(out + i, tl.load(x + i).to(tl.float8e4b15))


@pytest.mark.parametrize("wider", [torch.float16, torch.float32])
def test_the_type_with_bias_15(wider):
    custom = triton.reinterpret(ALL, dtype=tl.float8e4b15)
    out, back = torch.empty(256, dtype=wider), torch.zeros(256, dtype=torch.uint8)
    widen_custom[(1,)](custom, out)
    words = (ALL.int() & 0x80) << 8 | (ALL.int() & 0x7F) << 7
    assert torch.equal(out, words.to(torch.uint16).view(torch.float16).to(wider))
    narrow_custom[(1,)](out, triton.reinterpret(back, dtype=tl.float8e4b15))
    largest = torch.where(ALL & 0x7F == 0x7F, ALL & 0xFE, ALL)
    assert torch.equal(back, largest)
