"""Operations on each element alone, in every dtype, against numpy and torch."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from bit_values import assert_same, bit_patterns, floats, integers
from triton.language.extra import libdevice

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTS = [torch.int8, torch.int16, torch.int32, torch.int64]
N, B = 4096, 1024


@triton.jit
def float_binary(x, y, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + i)
    b = tl.load(y + i)
    tl.store(out + i, a + b)
    tl.store(out + n + i, a - b)
    tl.store(out + 2 * n + i, a * b)
    tl.store(out + 3 * n + i, (a / b).to(a.dtype))
    tl.store(out + 4 * n + i, -a + 0.0)  # some Triton versions negate as 0 - a, which loses the sign of zero
    tl.store(out + 5 * n + i, tl.abs(a))
    tl.store(out + 6 * n + i, tl.where(a < b, a, b))
    tl.store(out + 7 * n + i, tl.maximum(a, b))
    tl.store(out + 8 * n + i, tl.minimum(a, b))
    tl.store(out + 9 * n + i, tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL))
    tl.store(out + 10 * n + i, tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL))


@pytest.mark.parametrize("dtype", FLOATS)
def test_float_arithmetic_rounds_once_an_operation(dtype):
    x, y = floats(dtype, N, 1), floats(dtype, N, 2)
    out = torch.empty(11, N, dtype=dtype)
    float_binary[(N // B,)](x, y, out, N, B=B)
    quotient = x / y
    want = [x + y, x - y, x * y, quotient, -x + 0.0, x.abs(), torch.where(x < y, x, y)]
    for row, expected in zip(out, want, strict=False):
        assert_same(row, expected, x, y)
    check_extremes(out[7:], x, y)


def check_extremes(rows, x, y):
    """maximum and minimum: the number beats NaN unless NaN propagates; -0 < +0."""
    larger = torch.where((x == y) & (x == 0), torch.where(x.signbit(), y, x), torch.maximum(x, y))
    smaller = torch.where((x == y) & (x == 0), torch.where(x.signbit(), x, y), torch.minimum(x, y))
    nan = x.isnan() | y.isnan()
    other = torch.where(x.isnan(), y, x)
    for row, want in zip(rows, (larger, smaller), strict=False):
        assert_same(row, torch.where(nan, other, want), x, y)
    for row, want in zip(rows[2:], (larger, smaller), strict=True):
        assert_same(row, torch.where(nan, torch.full_like(x, float("nan")), want), x, y)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bit_arithmetic_over_random_bits(dtype):
    count = 1 << 18
    x, y = bit_patterns(dtype, count, 3), bit_patterns(dtype, count, 4)
    out = torch.empty(11, count, dtype=dtype)
    float_binary[(count // B,)](x, y, out, count, B=B)
    for row, want in zip(out, (x + y, x - y, x * y, x / y), strict=False):
        assert_same(row, want, x, y)


@triton.jit
def compare(x, y, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + i)
    b = tl.load(y + i)
    tl.store(out + i, (a == b).to(tl.int8))
    tl.store(out + n + i, (a != b).to(tl.int8))
    tl.store(out + 2 * n + i, (a < b).to(tl.int8))
    tl.store(out + 3 * n + i, (a <= b).to(tl.int8))
    tl.store(out + 4 * n + i, (a > b).to(tl.int8))
    tl.store(out + 5 * n + i, (a >= b).to(tl.int8))


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS])
def test_comparisons(dtype):
    make = floats if dtype.is_floating_point else integers
    x, y = make(dtype, N, 5), make(dtype, N, 6)
    out = torch.empty(6, N, dtype=torch.int8)
    compare[(N // B,)](x, y, out, N, B=B)
    for row, want in zip(out, (x == y, x != y, x < y, x <= y, x > y, x >= y), strict=True):
        assert_same(row, want.to(torch.int8), x, y)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_unsigned_comparisons_division_and_shifts(dtype):
    signed = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[np.dtype(dtype).itemsize]
    x, y = (integers(signed, N, seed).numpy().view(dtype) for seed in (7, 8))
    tx, ty = torch.from_numpy(x), torch.from_numpy(y)
    out = torch.empty(6, N, dtype=torch.int8)
    compare[(N // B,)](tx, ty, out, N, B=B)
    for row, want in zip(out.numpy(), (x == y, x != y, x < y, x <= y, x > y, x >= y), strict=True):
        np.testing.assert_array_equal(row, want)
    result = torch.from_numpy(np.empty((14, N), dtype))
    int_binary[(N // B,)](tx, ty, result, N, B=B)
    check_integers(result.numpy(), x, y)


@triton.jit
def int_binary(x, y, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + i)
    b = tl.load(y + i)
    tl.store(out + i, a + b)
    tl.store(out + n + i, a - b)
    tl.store(out + 2 * n + i, a * b)
    tl.store(out + 3 * n + i, a // b)
    tl.store(out + 4 * n + i, a % b)
    tl.store(out + 5 * n + i, a & b)
    tl.store(out + 6 * n + i, a | b)
    tl.store(out + 7 * n + i, a ^ b)
    tl.store(out + 8 * n + i, a << b)
    tl.store(out + 9 * n + i, a >> b)
    tl.store(out + 10 * n + i, tl.maximum(a, b))
    tl.store(out + 11 * n + i, tl.minimum(a, b))
    tl.store(out + 12 * n + i, ~a)
    tl.store(out + 13 * n + i, tl.abs(a))


@pytest.mark.parametrize("dtype", INTS)
def test_integer_arithmetic_wraps(dtype):
    x, y = integers(dtype, N, 9), integers(dtype, N, 10)
    out = torch.empty(14, N, dtype=dtype)
    int_binary[(N // B,)](x, y, out, N, B=B)
    check_integers(out.numpy(), x.numpy(), y.numpy())


def check_integers(got, x, y):
    """Against numpy, which wraps as well; what is undefined is as on a GPU."""
    kind, width = x.dtype, 8 * x.dtype.itemsize
    exact_x, exact_y = x.astype(object), y.astype(object)
    safe = [b if b else 1 for b in exact_y]
    quotient = [abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) for a, b in zip(exact_x, safe, strict=True)]
    remainder = [a - q * b for a, q, b in zip(exact_x, quotient, safe, strict=True)]
    zero = y == 0
    # PTX shifts by 32 bits, so that of 64 the lower half counts.
    amount = y.view(kind.str.replace("i", "u")) & (2**32 - 1 if width == 64 else 2**width - 1)
    over = amount >= width
    shift = np.where(over, 0, amount).astype(kind)
    filled = np.where(x < 0, -1, 0).astype(kind)
    want = [
        x + y, x - y, x * y,
        np.where(zero, all_ones(x), wrap(quotient, kind)), np.where(zero, all_ones(x), wrap(remainder, kind)),
        x & y, x | y, x ^ y, np.where(over, 0, x << shift), np.where(over, filled, x >> shift),
        np.maximum(x, y), np.minimum(x, y), ~x, wrap([abs(int(a)) for a in x], kind),
    ]  # fmt: skip
    for number, (row, expected) in enumerate(zip(got, want, strict=True)):
        np.testing.assert_array_equal(row, expected.astype(kind), err_msg=f"operation {number}")


def all_ones(x):
    """What an H200 gives for division by zero; a dividend that fits in 32 bits is divided in 32 bits."""
    ones = np.full(len(x), -1).astype(x.dtype)
    return np.where(x.view("u8") >> 32, ones, 0xFFFFFFFF).astype(x.dtype) if x.itemsize == 8 else ones


def wrap(values, kind):
    width = 8 * kind.itemsize
    return np.array([int(value) % (1 << width) for value in values], dtype=np.uint64).astype(kind)


@triton.jit
def unary(x, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + i)
    tl.store(out + i, tl.exp(a))
    tl.store(out + n + i, tl.exp2(a))
    tl.store(out + 2 * n + i, tl.log(a))
    tl.store(out + 3 * n + i, tl.log2(a))
    tl.store(out + 4 * n + i, tl.sin(a))
    tl.store(out + 5 * n + i, tl.cos(a))
    tl.store(out + 6 * n + i, tl.sqrt(a))
    tl.store(out + 7 * n + i, tl.rsqrt(a))
    tl.store(out + 8 * n + i, tl.math.erf(a))
    tl.store(out + 9 * n + i, tl.floor(a))
    tl.store(out + 10 * n + i, tl.ceil(a))
    tl.store(out + 11 * n + i, tl.fma(a, a, a))
    tl.store(out + 12 * n + i, tl.clamp(a, -1.0, 2.0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_mathematics(dtype):
    x = floats(dtype, N, 11)
    out = torch.empty(13, N, dtype=dtype)
    unary[(N // B,)](x, out, N, B=B)
    wide = x.double()
    exact = [wide.exp(), wide.exp2(), wide.log(), wide.log2(), wide.sin(), wide.cos(), wide.sqrt(), wide.rsqrt()]
    for row, want in zip(out, [*exact, torch.erf(wide), wide.floor(), wide.ceil()], strict=False):
        assert_close(row, want.to(dtype), x)
    clamped = torch.where(x.isnan(), torch.full_like(x, -1.0), x.clamp(-1.0, 2.0))
    assert_same(out[12], clamped, x)
    if dtype == torch.float32:
        # The product is exact in double and the sum rounds there once more than fma: one unit at most.
        assert_close(out[11], (wide * wide + wide).to(dtype), x)


def assert_close(got, want, x, units=2):
    """Within units in the last place, NaN and infinities equal."""
    assert torch.equal(got.isnan(), want.isnan()), x[got.isnan() != want.isnan()]
    infinite = want.isinf() | got.isinf()
    away = torch.nextafter(want.abs(), torch.full_like(want, float("inf"))) - want.abs()
    near = ((got - want).abs() <= units * away) | want.isnan() | (infinite & (got == want))
    assert bool(near.all()), (x[~near][:5], got[~near][:5], want[~near][:5])


@triton.jit
def device_library(x, y, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + i)
    b = tl.load(y + i)
    tl.store(out + i, libdevice.tanh(a))
    tl.store(out + n + i, libdevice.erfc(a))
    tl.store(out + 2 * n + i, libdevice.log1p(a))
    tl.store(out + 3 * n + i, libdevice.expm1(a))
    tl.store(out + 4 * n + i, libdevice.pow(a, b))
    tl.store(out + 5 * n + i, libdevice.rint(a))
    tl.store(out + 6 * n + i, libdevice.trunc(a))
    tl.store(out + 7 * n + i, libdevice.fmod(a, b))
    tl.store(out + 8 * n + i, libdevice.isnan(a).to(out.dtype.element_ty))
    tl.store(out + 9 * n + i, libdevice.isinf(a).to(out.dtype.element_ty))
    tl.store(out + 10 * n + i, libdevice.div_rn(a, b))
    tl.store(out + 11 * n + i, libdevice.rsqrt(a))
    tl.store(out + 12 * n + i, libdevice.atan2(a, b))
    tl.store(out + 13 * n + i, libdevice.hypot(a, b))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_device_library(dtype):
    x, y = floats(dtype, N, 12), floats(dtype, N, 13)
    out = torch.empty(14, N, dtype=dtype)
    device_library[(N // B,)](x, y, out, N, B=B)
    a, b = x.double(), y.double()
    with np.errstate(all="ignore"):
        remainder = torch.from_numpy(np.fmod(x.numpy(), y.numpy()))
    close = [a.tanh(), torch.special.erfc(a), a.log1p(), a.expm1(), a.pow(b), a.round(), a.trunc()]
    for row, want in zip(out, close, strict=False):
        assert_close(row, want.to(dtype), x, 4)
    assert_same(out[7], remainder, x, y)
    assert_same(out[8], x.isnan().to(dtype), x)
    assert_same(out[9], x.isinf().to(dtype), x)
    assert_same(out[10], x / y, x, y)
    assert_close(out[11], a.rsqrt().to(dtype), x)
    assert_close(out[12], torch.atan2(a, b).to(dtype), x)
    assert_close(out[13], torch.hypot(a, b).to(dtype), x)


@triton.jit
def high_product(x, y, out, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.umulhi(tl.load(x + i), tl.load(y + i)))


@pytest.mark.parametrize(("dtype", "width"), [(np.uint32, 32), (np.uint64, 64)])
def test_high_half_of_products(dtype, width):
    x, y = (np.random.default_rng(seed).integers(0, 2**width, B, dtype=dtype) for seed in (1, 2))
    out = torch.from_numpy(np.zeros(B, dtype))
    high_product[(1,)](torch.from_numpy(x), torch.from_numpy(y), out, B=B)
    want = [int(a) * int(b) >> width for a, b in zip(x, y, strict=True)]
    np.testing.assert_array_equal(out.numpy(), np.array(want, dtype))


@triton.jit
def precise(x, y, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(x + i)
    b = tl.load(y + i)
    tl.store(out + i, tl.math.div_rn(a, b))
    tl.store(out + n + i, tl.math.sqrt_rn(a))


def test_precise_division_and_root_are_correctly_rounded():
    x, y = floats(torch.float32, B, 14), floats(torch.float32, B, 15)
    out = torch.empty(2, B)
    precise[(1,)](x, y, out, B, B=B)
    assert_same(out[0], x / y, x, y)
    with np.errstate(invalid="ignore"):
        assert_same(out[1], torch.from_numpy(np.sqrt(x.numpy())), x)


@triton.jit
def booleans(x, y, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(x + i)
    b = tl.load(y + i)
    tl.store(out + i, a & b)
    tl.store(out + n + i, a | b)
    tl.store(out + 2 * n + i, a ^ b)
    tl.store(out + 3 * n + i, ~a)
    tl.store(out + 4 * n + i, a < b)
    tl.store(out + 5 * n + i, tl.where(a, b, a))


def test_booleans():
    x = torch.tensor([False, False, True, True])
    y = torch.tensor([False, True, False, True])
    out = torch.empty(6, 4, dtype=torch.bool)
    booleans[(1,)](x, y, out, 4, B=4)
    want = [x & y, x | y, x ^ y, ~x, ~x & y, torch.where(x, y, x)]
    for row, expected in zip(out, want, strict=True):
        assert_same(row, expected, x, y)
