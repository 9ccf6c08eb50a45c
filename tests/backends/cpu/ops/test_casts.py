"""Every cast, exactly: round to nearest even once, NaN stays NaN, subnormals are kept, out of range as on a GPU."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from bit_values import BITS, assert_same, bit_patterns, floats, integers

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTS = [torch.int8, torch.int16, torch.int32, torch.int64]
NARROW = [torch.float16, torch.bfloat16]
N = 4096


@triton.jit
def cast(x, out, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i).to(out.dtype.element_ty))


def run(x, dtype):
    out = torch.empty(x.shape, dtype=dtype)
    cast[(x.numel() // 1024,)](x, out, B=1024)
    return out


@pytest.mark.parametrize("to", FLOATS)
@pytest.mark.parametrize("source", NARROW)
def test_all_16_bit_values(source, to):
    x = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(source)
    assert_same(run(x, to), x.to(to), x)


@pytest.mark.parametrize("to", NARROW)
def test_ten_million_float32_bit_patterns(to):
    x = bit_patterns(torch.float32, 10240 * 1024, 1)
    assert_same(run(x, to), x.to(to), x)


@pytest.mark.parametrize("to", NARROW)
def test_float32_ties_and_their_neighbours(to):
    """Every value halfway between two neighbours, and one unit beside it, is the whole of the rounding."""
    drop = 16 if to == torch.bfloat16 else 13
    high = torch.arange(0, 1 << (32 - drop), dtype=torch.int64) << drop
    half = 1 << (drop - 1)
    words = torch.cat([high + low for low in (0, 1, half - 1, half, half + 1, 2 * half - 1)])
    x = words.to(torch.int32).view(torch.float32)
    x = x[: x.numel() // 1024 * 1024]
    assert_same(run(x, to), x.to(to), x)


@pytest.mark.parametrize("to", NARROW)
def test_float64_rounds_once(to):
    x = torch.cat([bit_patterns(torch.float64, 1 << 18, 2), double_ties(to, 1 << 18)])
    got = run(x, to)
    assert_same(got, nearest(x, to), x)
    if to == torch.float16:
        with np.errstate(over="ignore"):
            assert_same(got, torch.from_numpy(x.numpy().astype(np.float16)), x)


def double_ties(to, count):
    """Doubles a hair beside the middle of two neighbours: rounding to float32 first would lose the hair."""
    value = bit_patterns(to, count, 3).double()
    value = torch.where(value.isfinite(), value, torch.ones_like(value))
    middle = (value + next_away(value, to)) / 2
    hair = torch.tensor([0.0, 2.0**-40, -(2.0**-40), 2.0**-50])[torch.arange(count) % 4].double()
    return middle * (1 + hair)


def next_away(value, to):
    narrow = value.to(to)
    bits = narrow.view(torch.int16)
    return (bits + 1).view(to).double().nan_to_num(0.0, 0.0, 0.0)


def nearest(x, to):
    """Rounding by definition: of the neighbours of the twice rounded value, the nearest, ties to even."""
    guess = x.to(to)
    bits = guess.view(torch.int16).to(torch.int32)
    best = guess.clone()
    for step in (-1, 1):
        other = (bits + step).to(torch.int16).view(to)
        usable = other.isfinite() & guess.isfinite() & (other.signbit() == guess.signbit())
        error, known = (other.double() - x).abs(), (best.double() - x).abs()
        even = (other.view(torch.int16) & 1) == 0
        better = usable & ((error < known) | ((error == known) & even))
        best = torch.where(better, other, best)
    return best


@pytest.mark.parametrize("source", [torch.float32, torch.float64])
@pytest.mark.parametrize("to", [torch.float32, torch.float64])
def test_wide_floats(source, to):
    x = floats(source, N, 4)
    assert_same(run(x, to), x.to(to), x)


@pytest.mark.parametrize("source", INTS)
@pytest.mark.parametrize("to", INTS)
def test_integers(source, to):
    x = integers(source, N, 5)
    assert_same(run(x, to), x.to(to), x)


@pytest.mark.parametrize("source", [np.uint8, np.uint16, np.uint32, np.uint64])
@pytest.mark.parametrize("to", [torch.int16, torch.int64, torch.float16, torch.bfloat16, torch.float32])
def test_unsigned(source, to):
    words = np.random.default_rng(6).integers(0, np.iinfo(source).max, N, dtype=source, endpoint=True)
    got = run(torch.from_numpy(words), to)
    if to in INTS:
        assert_same(got, torch.from_numpy(words.astype(str(to).removeprefix("torch."))))
    else:
        assert_same(got, exact_float(words.astype(object), to))


@pytest.mark.parametrize("source", INTS)
@pytest.mark.parametrize("to", FLOATS)
def test_integers_to_floats_round_once(source, to):
    x = integers(source, N, 7)
    assert_same(run(x, to), exact_float(x.numpy().astype(object), to), x)


def exact_float(values, to):
    """Python's own rounding of integers to double is exact; narrower ones by their digits."""
    digits = {torch.float16: 11, torch.bfloat16: 8, torch.float32: 24, torch.float64: 53}[to]
    return torch.tensor([float(rounded(int(value), digits)) for value in values], dtype=torch.float64).to(to)


def rounded(value, digits):
    size = max(abs(value).bit_length() - digits, 0)
    low, kept = abs(value) & ((1 << size) - 1), abs(value) >> size
    half = 1 << (size - 1) if size else 1
    kept += low > half or (low == half and kept & 1)
    return (kept << size) * (1 if value >= 0 else -1)


@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("to", [*INTS, *(np.uint8, np.uint16, np.uint32, np.uint64)])
def test_floats_to_integers_saturate(source, to):
    x = floats(source, N, 8)
    kind = np.dtype(to) if not isinstance(to, torch.dtype) else np.dtype(str(to).removeprefix("torch."))
    out = torch.from_numpy(np.empty(N, kind))
    cast[(N // 1024,)](x, out, B=1024)
    # PTX converts to 16 bits at least; fewer are cut from those.
    wide = np.iinfo(kind.str.replace("1", "2") if kind.itemsize == 1 else kind)
    # NaN is 0, or the upper bit alone where either type has 64 bits (seen on an H200).
    nan = 1 << (wide.bits - 1) if source == torch.float64 or kind.itemsize == 8 else 0
    found = [nan if value != value else saturated(value, wide) for value in x.double().tolist()]
    want = [value % (1 << 8 * kind.itemsize) for value in found]
    np.testing.assert_array_equal(out.numpy(), np.array(want, np.uint64).astype(kind))


@triton.jit
def there_and_back(x, half, single, double, INTEGER: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(x + i).to(INTEGER)
    tl.store(half + i, a.to(tl.float16))
    tl.store(single + i, a.to(tl.float32))
    tl.store(double + i, a.to(tl.float64))


@pytest.mark.parametrize("source", [torch.float32, torch.float64])
@pytest.mark.parametrize("integer", [tl.int32, tl.int64])
def test_integers_have_no_negative_zero(source, integer):
    """gcc takes two conversions for one truncation, which would keep the sign."""
    x = torch.tensor([-0.3, -0.0, 0.3, -0.99, -1.5, 1.5, 7.0, -7.0], dtype=source)
    rows = [torch.empty(8, dtype=to) for to in (torch.float16, torch.float32, torch.float64)]
    there_and_back[(1,)](x, *rows, INTEGER=integer, B=8)
    for row in rows:
        assert_same(row, x.trunc().to(row.dtype) + 0.0, x)


def saturated(value, limits):
    if abs(value) >= 2.0**62:
        return extreme(value, limits)
    return int(min(max(value, float(limits.min)), float(limits.max)))


def extreme(value, limits):
    if abs(value) == float("inf") or abs(value) >= 2.0**64:
        return int(limits.max if value > 0 else limits.min)
    return min(max(int(value), int(limits.min)), int(limits.max))


@triton.jit
def reinterpret(x, out, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.load(x + i).to(out.dtype.element_ty, bitcast=True))


@pytest.mark.parametrize("dtype", FLOATS)
def test_bitcasts(dtype):
    x = floats(dtype, N, 9)
    x = torch.where(x.isnan(), torch.ones_like(x), x)
    out = torch.empty(N, dtype=BITS[dtype])
    reinterpret[(1,)](x, out, B=N)
    assert_same(out, x.view(BITS[dtype]))
    back = torch.empty(N, dtype=dtype)
    reinterpret[(1,)](out, back, B=N)
    assert_same(back, x)


@triton.jit
def truncate(x, out, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i).to(out.dtype.element_ty, fp_downcast_rounding="rtz"))


@pytest.mark.parametrize("to", NARROW)
def test_rounding_towards_zero(to):
    x = floats(torch.float32, N, 10)
    out = torch.empty(N, dtype=to)
    truncate[(N // 1024,)](x, out, B=1024)
    near = x.to(to)
    beyond = (near.double().abs() > x.double().abs()) & ~x.isnan()
    want = torch.where(beyond, (near.view(torch.int16) - 1).view(to), near)
    assert_same(out, want, x)


@triton.jit
def boolean_casts(x, out, back, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(x + i)
    tl.store(out + i, a.to(out.dtype.element_ty))
    tl.store(back + i, tl.load(out + i).to(tl.int1))


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS])
def test_booleans(dtype):
    x = torch.tensor([False, True, True, False])
    out, back = torch.empty(4, dtype=dtype), torch.empty(4, dtype=torch.bool)
    boolean_casts[(1,)](x, out, back, B=4)
    assert_same(out, x.to(dtype))
    assert_same(back, x)


@triton.jit
def scalars(out, a, b, c, d, e: "fp16", f: "bf16", g: "fp64", h: "u64"):  # noqa: F821
    tl.store(out, a)
    tl.store(out + 1, b)
    tl.store(out + 2, c)
    tl.store(out + 3, d.to(tl.float64))
    tl.store(out + 4, e.to(tl.float64))
    tl.store(out + 5, f.to(tl.float64))
    tl.store(out + 6, g)
    tl.store(out + 7, (h >> 32).to(tl.float64))


def test_scalar_arguments_have_the_type_of_the_signature():
    out = torch.empty(8, dtype=torch.float64)
    scalars[(1,)](out, 7, -(2**40), True, 0.1, 0.1, 0.1, 0.1, 2**64 - 1)
    rounded = [torch.tensor(0.1, dtype=dtype).double().item() for dtype in (torch.float32, *NARROW, torch.float64)]
    assert out.tolist() == [7.0, -(2.0**40), 1.0, *rounded, 2.0**32 - 1]


def test_float_arguments_beyond_float32_are_infinite():
    out = torch.empty(8, dtype=torch.float64)
    scalars[(1,)](out, 2, 3, False, 1e300, -1e300, 1e-300, 1e300, 0)
    assert out.tolist() == [2, 3, 0, float("inf"), float("-inf"), 0, 1e300, 0]
