"""Formats as bits: against numpy's and torch's own conversions, and by hand at the edges."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from exact_ulps import ulps_between

from fuzz.model.dtypes import (
    DTYPES,
    decimal,
    dtype,
    exponent,
    from_bits,
    from_ordinal,
    hex_bits,
    neighbours,
    ordinal,
    significant_bits,
    to_bits,
    ulp,
)

FLOATS = [d for d in DTYPES.values() if d.is_float]
HALVES = [dtype("float16"), dtype("bfloat16")]
EVERY = np.arange(1 << 16, dtype=np.uint16)
F32, F16, BF16, F64 = (dtype(n) for n in ("float32", "float16", "bfloat16", "float64"))


def _bits(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 64, count, dtype=np.uint64)


def _nearest(x: float, d: object) -> int:
    """Round to nearest even by exact rational arithmetic: the definition, slowly."""
    sign, size, top = (1 << d.bits - 1) * (math.copysign(1, x) < 0), Fraction(abs(x)), Fraction(d.largest)
    power = max(math.frexp(abs(x))[1] - 1, 1 - d.bias) if x else 1 - d.bias
    steps = size / Fraction(2) ** (power - d.mantissa)
    rounded = Fraction(round(steps)) * Fraction(2) ** (power - d.mantissa)
    if rounded > top:
        return sign | d.inf_bits
    return sign | int(to_bits(float(rounded), F64)) if d is F64 else sign | _word_of(rounded, d)


def _word_of(value: Fraction, d: object) -> int:
    if value < Fraction(d.smallest_normal):
        return int(value / Fraction(d.smallest_subnormal))
    power = math.frexp(float(value))[1] - 1
    fraction = int((value / Fraction(2) ** power - 1) * (1 << d.mantissa))
    return (power + d.bias) << d.mantissa | fraction


def test_table_agrees_with_torch() -> None:
    for d in FLOATS:
        info = torch.finfo(getattr(torch, d.name))
        assert (d.largest, d.smallest_normal, d.unit) == (info.max, info.tiny, info.eps / 2)
        assert d.bits == info.bits and from_bits(1, d) == d.smallest_subnormal
        assert from_bits(d.largest_bits, d) == d.largest and from_bits(d.one_bits, d) == 1
    for name in ("int8", "int16", "int32", "int64", "uint8"):
        assert DTYPES[name].largest_bits == torch.iinfo(getattr(torch, name)).max


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="float8.*float64, float32.*bool"):
        dtype("float8")


@pytest.mark.parametrize("d", HALVES, ids=lambda d: d.name)
def test_every_word_of_a_half_goes_there_and_back(d) -> None:
    values = from_bits(EVERY, d)
    theirs = torch.from_numpy(EVERY.view(np.int16)).view(getattr(torch, d.name)).double().numpy()
    np.testing.assert_array_equal(values, theirs)
    back = to_bits(values, d)
    nan = np.isnan(values)
    assert (back[~nan] == EVERY[~nan]).all() and (back[nan] == d.nan_bits).all()
    assert (np.signbit(values) == (EVERY >= 1 << 15))[~nan].all()


def test_conversions_agree_with_numpy_on_random_doubles() -> None:
    x = np.concatenate(
        [_bits(500_000, 1).view(np.float64), np.ldexp(_bits(500_000, 2) / 2.0**64, np.arange(500_000) % 300 - 160)]
    )
    with np.errstate(all="ignore"):
        for d, native in ((F32, np.float32), (F16, np.float16)):
            theirs = x.astype(native)
            mine = to_bits(x, d)
            nan = np.isnan(x)
            np.testing.assert_array_equal(mine[~nan], theirs.view(d.unsigned)[~nan])
            assert (mine[nan] == d.nan_bits).all()


def test_bfloat16_agrees_with_torch_on_random_floats() -> None:
    x = _bits(1_000_000, 3).astype(np.uint32).view(np.float32)
    x = x[~np.isnan(x)]
    theirs = torch.from_numpy(x).bfloat16().view(torch.int16).numpy().view(np.uint16)
    np.testing.assert_array_equal(to_bits(x.astype(np.float64), BF16), theirs)


@pytest.mark.parametrize("d", FLOATS, ids=lambda d: d.name)
def test_conversion_is_one_rounding_by_the_definition(d) -> None:
    rng = np.random.default_rng(4)
    powers = rng.integers(-d.bias - d.mantissa - 2, d.bias + 2, 1500)
    near_ties = (rng.integers(1 << d.mantissa, 2 << d.mantissa, 1500) + 0.5) / 2.0**d.mantissa
    nudged = np.nextafter(near_ties, rng.choice([-np.inf, np.inf, 1.5], 1500))
    with np.errstate(over="ignore"):
        x = np.ldexp(np.concatenate([near_ties, nudged, -rng.random(1500)]), np.tile(powers, 3))
    x = x[np.isfinite(x)]
    expected = [_nearest(float(v), d) for v in x]
    assert to_bits(x, d).tolist() == expected


def test_double_rounding_cases_of_bfloat16() -> None:
    """Just above a tie, by less than float32 can hold: through float32 these would go to the even neighbour below."""
    tie = 1 + 2.0**-8
    cases = [
        tie + 2.0**-40,
        tie - 2.0**-40,
        tie,
        -(tie + 2.0**-52),
        1 + 3 * 2.0**-8 - 2.0**-50,
        2.0**-134 * (1 + 2.0**-40),
    ]
    assert [hex_bits(w, BF16) for w in to_bits(cases, BF16)] == [
        "0x3f81",
        "0x3f80",
        "0x3f80",
        "0xbf81",
        "0x3f81",
        "0x0001",
    ]
    with np.errstate(under="ignore"):
        twice = torch.tensor(cases[0], dtype=torch.float64).float().bfloat16().item()
    assert twice == 1.0  # what the conversion above must not do


def test_special_values() -> None:
    for d in FLOATS:
        bits = to_bits([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, d.largest, -d.largest], d).tolist()
        s = d.sign_mask
        assert bits == [0, s, d.inf_bits, s | d.inf_bits, d.nan_bits, d.nan_bits, d.largest_bits, s | d.largest_bits]
    assert hex_bits(to_bits(np.nan, F32), F32) == "0x7fc00000" and hex_bits(to_bits(np.nan, BF16), BF16) == "0x7fc0"
    threshold = F16.largest + 16
    assert to_bits([threshold, np.nextafter(threshold, 0)], F16).tolist() == [F16.inf_bits, F16.largest_bits]
    assert to_bits(1e308, BF16) == BF16.inf_bits and to_bits(5e-324, F32) == 0


def test_integers_round_and_saturate() -> None:
    x = [-np.inf, -128.5, -128.6, -0.5, 0.5, 1.5, 2.5, 127.4, 127.5, 1e30, np.nan]
    assert from_bits(to_bits(x, dtype("int8")), dtype("int8")).tolist() == [
        -128,
        -128,
        -128,
        0,
        0,
        2,
        2,
        127,
        127,
        127,
        0,
    ]
    assert from_bits(to_bits(x, dtype("uint8")), dtype("uint8")).tolist() == [0, 0, 0, 0, 0, 2, 2, 127, 128, 255, 0]
    big = from_bits(to_bits([2.0**63, -(2.0**63), 2.0**62, 1e300], dtype("int64")), dtype("int64")).tolist()
    assert big == [2**63 - 1, -(2**63), 2**62, 2**63 - 1]
    assert from_bits(to_bits(np.array([300, -300, 7]), dtype("int8")), dtype("int8")).tolist() == [127, -128, 7]
    assert to_bits([0.0, -0.0, 0.1, np.nan], dtype("bool")).tolist() == [0, 0, 1, 1]


def test_ulp_at_binade_edges() -> None:
    for d in FLOATS:
        eps = 2 * d.unit
        assert ulp([1.0, -1.0, np.nextafter(2.0, 0), 2.0, np.nextafter(1.0, 0)], d).tolist() == [
            eps,
            eps,
            eps,
            2 * eps,
            eps / 2,
        ]
        small = d.smallest_subnormal
        assert ulp([0.0, small, d.smallest_normal, 1.5 * d.smallest_normal], d).tolist() == [small] * 4
        assert ulp(2 * d.smallest_normal, d) == 2 * small
        top = d.largest - from_bits(d.largest_bits - 1, d)
        assert (ulp([d.largest, np.inf, -np.inf], d) == top).all() and np.isnan(ulp(np.nan, d))
    assert ulp(1e300, F32) == 2.0**104 and ulp(5e-324, F32) == 2.0**-149
    assert ulp([0, 5, 1e9], dtype("int32")).tolist() == [1, 1, 1]


def test_ulps_between() -> None:
    w = to_bits(1.0, F32)
    assert ulps_between([w, w + 1, w - 1], [1.0, 1.0, 1.0], F32).tolist() == [0, 1, 0.5]
    assert ulps_between(w, 1 + 2.0**-24, F32) == 0.5
    inf, nan, top = F32.inf_bits, F32.nan_bits, F32.largest_bits
    got = ulps_between([nan, inf, inf, inf, nan, 0, top], [np.nan, np.inf, 1e300, -np.inf, 1.0, np.nan, np.inf], F32)
    assert got.tolist() == [0, 0, 0, np.inf, np.inf, np.inf, np.inf]
    assert ulps_between(inf, F32.largest, F32) == np.inf
    assert ulps_between(top, F32.largest + 2.0**104, F32) == 1
    assert ulps_between(to_bits([3], dtype("int8")), [5.0], dtype("int8")).tolist() == [2]
    assert ulps_between([0, 3], [2.0**-149, 0.0], F32).tolist() == [1, 3]


@pytest.mark.parametrize("d", HALVES, ids=lambda d: d.name)
def test_ordinals_follow_the_order_of_values(d) -> None:
    values = from_bits(EVERY, d)
    kept = ~np.isnan(values)
    order = np.argsort(ordinal(EVERY, d)[kept], kind="stable")
    assert (np.diff(values[kept][order]) >= 0).all()
    steps = np.diff(np.sort(ordinal(EVERY, d)[kept]))
    assert sorted(set(steps.tolist())) == [0, 1] and (steps == 0).sum() == 1  # both zeros are one
    back = from_ordinal(ordinal(EVERY, d)[kept], d)
    assert (back[EVERY[kept] != d.sign_mask] == EVERY[kept][EVERY[kept] != d.sign_mask]).all()


def test_ordinals_of_wide_formats() -> None:
    for d in FLOATS:
        bits = np.array([d.sign_mask | d.inf_bits, d.sign_mask, 0, 1, d.inf_bits, d.nan_bits], dtype=d.unsigned)
        assert ordinal(bits, d).tolist() == [-d.inf_bits, 0, 0, 1, d.inf_bits, d.nan_bits]
        assert from_ordinal([-(2**62) * 2, 2**63 - 1], d).tolist() == [d.sign_mask | d.inf_bits, d.inf_bits]
    assert ordinal([0x80, 0xFF, 0, 0x7F], dtype("int8")).tolist() == [-128, -1, 0, 127]
    assert from_ordinal([-128, -1, 300], dtype("int8")).tolist() == [0x80, 0xFF, 0x7F]


def test_neighbours() -> None:
    assert neighbours(0x3F80, 1, BF16) == [0x3F7F, 0x3F80, 0x3F81]
    assert neighbours(0, 1, BF16) == [0x8001, 0, 1] and neighbours(0x8000, 1, BF16) == [0x8001, 0x8000, 1]
    assert neighbours(0x7F7F, 3, BF16) == [0x7F7C, 0x7F7D, 0x7F7E, 0x7F7F, 0x7F80]
    assert neighbours(0x7F, 1, dtype("int8")) == [0x7E, 0x7F] and neighbours(0, 1, dtype("bool")) == [0, 1]


def _bits_of(value: float) -> int:
    numerator = abs(Fraction(value).numerator)
    return len(bin(numerator).rstrip("0")) - 2 if numerator else 0


@pytest.mark.parametrize("d", HALVES, ids=lambda d: d.name)
def test_sizes_of_every_half(d) -> None:
    values = from_bits(EVERY, d)
    finite = np.isfinite(values)
    expected = [_bits_of(v) for v in values[finite]]
    assert significant_bits(EVERY, d)[finite].tolist() == expected
    assert (significant_bits(EVERY, d)[~finite] == d.mantissa + 2).all()
    nonzero = finite & (values != 0)
    assert (exponent(EVERY, d)[nonzero] == np.frexp(values[nonzero])[1] - 1).all()
    assert (exponent(EVERY, d)[~finite] == d.bias + 1).all()
    assert (exponent([0, d.sign_mask], d) == -d.bias - d.mantissa).all()


def test_sizes_of_integers() -> None:
    d = dtype("int64")
    bits = np.array([0, 1, -1, 12, -(2**63), 2**63 - 1, 2**60 + 1], dtype=np.int64).view(np.uint64)
    assert significant_bits(bits, d).tolist() == [0, 1, 1, 2, 1, 63, 61]
    assert exponent(bits, d).tolist() == [-1, 0, 0, 3, 63, 62, 60]
    assert significant_bits([1, 0], dtype("bool")).tolist() == [1, 0]


def test_decimals_read_back_and_are_short() -> None:
    for d in HALVES:
        for pattern in EVERY[::37].tolist():
            text = decimal(pattern, d)
            nan = np.isnan(from_bits(pattern, d))
            assert to_bits(float(text), d) == (d.nan_bits if nan else pattern), text
    spelled = [decimal(w, BF16) for w in (0, 0x8000, 0x3F80, 0x3DCD, 0x7F80, 0xFF80, 0x7FC0, 0x4049, 1)]
    assert spelled == ["0.0", "-0.0", "1.0", "0.1", "inf", "-inf", "nan", "3.14", "9e-41"]
    assert decimal(int(to_bits(0.1, F32)), F32) == "0.1" and decimal(int(to_bits(0.1, F64)), F64) == "0.1"
    for pattern in _bits(3000, 5).astype(np.uint32).tolist():
        value = np.uint32(pattern).view(np.float32)
        if np.isfinite(value):
            assert float(decimal(pattern, F32)) == float(str(value))
    assert [decimal(0x80, dtype("int8")), decimal(1, dtype("bool")), decimal(255, dtype("uint8"))] == [
        "-128",
        "1",
        "255",
    ]


def test_hexwords_have_fixed_width() -> None:
    assert [hex_bits(1, d) for d in (F64, F32, BF16, dtype("bool"))] == [
        "0x" + "0" * 15 + "1",
        "0x00000001",
        "0x0001",
        "0x01",
    ]


def test_scalars_are_welcome() -> None:
    for d in DTYPES.values():
        one = to_bits(1.0, d)
        assert one.shape == () and from_bits(one, d) == 1 and ordinal(one, d) == d.one_bits
        assert significant_bits(one, d) == 1 and exponent(one, d) == 0 and decimal(int(one), d) in ("1.0", "1")
