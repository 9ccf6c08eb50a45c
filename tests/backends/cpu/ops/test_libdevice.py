"""Functions of libdevice that are made of others, against mpmath, exact fractions and integers."""

import operator
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch
from bit_values import bit_patterns, integers

from fuzz.backends import cpu

HEAD = """import triton
import triton.language as tl
from triton.language.extra import libdevice
@triton.jit
def kernel(x, y, z, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(x + i)
    b = tl.load(y + i)
    c = tl.load(z + i)
"""


def evaluate(folder, calls, x, y, z, dtype):
    """One row of results for each call, such as `erfinv(a)`."""
    lines = [f"    tl.store(out + {row} * n + i, libdevice.{call}.to(out.dtype.element_ty))" for row, call in
             enumerate(calls)]  # fmt: skip
    file = folder / "calls.py"
    file.write_text(HEAD + "\n".join(lines) + "\n")
    space = {}
    exec(compile(file.read_text(), str(file), "exec"), space)
    out = torch.empty(len(calls), len(x), dtype=dtype)
    space["kernel"][(1,)](x, y, z, out, len(x), B=len(x))
    return out


def log10_values(low, high, signs=True):
    """256 values spread over magnitudes."""
    x = 10.0 ** torch.linspace(low, high, 256, dtype=torch.float64)
    return torch.where(torch.arange(256) % 2 == 0, x, -x) if signs else x


SMALL, LINE = log10_values(-8, -0.001), torch.linspace(-25, 25, 256, dtype=torch.float64)
HALF = log10_values(-30, -0.31, signs=False)
FUNCTIONS = [
    ("sinpi(a)", lambda x, y, z: mpmath.sinpi(x), LINE), ("cospi(a)", lambda x, y, z: mpmath.cospi(x), LINE),
    ("rhypot(a, b)", lambda x, y, z: 1 / mpmath.hypot(x, y), LINE),
    ("norm3d(a, b, c)", lambda x, y, z: mpmath.sqrt(x * x + y * y + z * z), LINE),
    ("rcbrt(a)", lambda x, y, z: mpmath.sign(x) / mpmath.cbrt(abs(x)), LINE),
    ("cyl_bessel_i0(a)", lambda x, y, z: mpmath.besseli(0, x), LINE),
    ("cyl_bessel_i1(a)", lambda x, y, z: mpmath.besseli(1, x), torch.cat([LINE[::2], SMALL[::2]])),
    ("erfinv(a)", lambda x, y, z: mpmath.erfinv(x), SMALL),
    ("erfcinv(a)", lambda x, y, z: inverse(lambda t: mpmath.erfc(t), x, mpmath.sqrt(-mpmath.log(x))), HALF),
    ("erfcx(a)", lambda x, y, z: mpmath.exp(x * x) * mpmath.erfc(x), LINE.clamp(min=-8)),
    ("normcdf(a)", lambda x, y, z: mpmath.ncdf(x), LINE.clamp(-9, 9)),
    ("normcdfinv(a)", lambda x, y, z: inverse(mpmath.ncdf, x, -mpmath.sqrt(-2 * mpmath.log(x))), HALF),
    ("j0(a)", lambda x, y, z: mpmath.besselj(0, x), LINE.abs() / 20),
]  # fmt: skip


def inverse(function, value, start):
    return mpmath.findroot(lambda t: mpmath.log(function(t)) - mpmath.log(value), start)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("number", range(len(FUNCTIONS)), ids=lambda number: FUNCTIONS[number][0])
def test_functions(tmp_path, number, dtype):
    call, function, x = FUNCTIONS[number]
    x, y, z = (side.to(dtype) for side in (x, torch.linspace(0.5, 3, 256), torch.linspace(-3, 1, 256)))
    got = evaluate(tmp_path, [call], x, y, z, dtype)[0]
    with mpmath.workdps(30):
        for value, *operands in zip(*(side[::13].tolist() for side in (got, x, y, z)), strict=True):
            want = function(*map(mpmath.mpf, operands))
            error = abs(value - want) / abs(want) if want else abs(mpmath.mpf(value))
            assert error < (1.3e-7 if dtype == torch.float32 else 1e-12), (operands, value, want)


@pytest.mark.parametrize("call", ["erfcinv(a)", "normcdfinv(a)"])
def test_inverses_where_erfc_underflows(tmp_path, call):
    x = torch.tensor([5e-324, 1e-323, 1e-310, 2.2e-308, 1e-307, 1e-200, 1e-40, 1e-29], dtype=torch.float64)
    function = next(function for name, function, _ in FUNCTIONS if name == call)
    got = evaluate(tmp_path, [call], x, x, x, torch.float64)[0]
    with mpmath.workdps(30):
        for value, tail in zip(got.tolist(), x.tolist(), strict=True):
            want = function(mpmath.mpf(tail), None, None)
            assert abs(value - want) < 1e-15 * abs(want), (tail, value, want)


def test_limits(tmp_path):
    x = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.0, 1.5, float("inf"), float("nan")])
    names = ["erfinv(a)", "erfcinv(a)", "normcdfinv(a)", "sinpi(a)", "cospi(a)", "cyl_bessel_i1(a)", "erfcx(a)"]
    got = evaluate(tmp_path, names, x, x, x, torch.float32).tolist()
    inf, nan = float("inf"), float("nan")
    want = [
        [0, -0.0, inf, -inf, nan, nan, nan, nan], [inf, inf, 0, nan, -inf, -0.4769363, nan, nan],
        [-inf, -inf, inf, nan, nan, nan, nan, nan], [0, -0.0, 0, -0.0, 0, -1, nan, nan],
        [1, 1, -1, -1, 1, 0, nan, nan], [0, -0.0, 0.5651591, -0.5651591, 1.5906369, 0.9816664, inf, nan],
        [1, 1, 0.4275836, 5.0089800, 0.2553957, 0.3215854, 0, nan],
    ]  # fmt: skip
    np.testing.assert_allclose(got, want, rtol=1e-6)


def neighbours(value, dtype):
    kind = np.float32 if dtype == torch.float32 else np.float64
    return [Fraction(float(np.nextafter(kind(value), kind(side)))) for side in (-np.inf, np.inf)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_directed_roundings_are_exact(tmp_path, dtype):
    x, y = (torch.randn(64, dtype=torch.float64).to(dtype) * 10 for _ in range(2))
    y[:8] *= 1e-9
    calls = [f"{name}_{mode}(a, b)" for name in ("add", "sub", "mul", "div") for mode in ("rz", "rd", "ru")]
    got = evaluate(tmp_path, calls, x, y, x, dtype)
    operations = [operator.add, operator.sub, operator.mul, operator.truediv]
    for row, call in enumerate(calls):
        for value, a, b in zip(got[row].tolist(), x.tolist(), y.tolist(), strict=True):
            exact = operations[row // 3](Fraction(a), Fraction(b))
            below, above = neighbours(value, dtype)
            down = call[4:6] == "rd" or (call[4:6] == "rz" and exact > 0)
            inside = Fraction(value) <= exact < above if down else below < exact <= Fraction(value)
            assert inside, (call, a, b, value)


def test_integer_functions(tmp_path):
    x, y, z = (integers(torch.int32, 256, seed) for seed in (1, 2, 3))
    calls = ["mulhi(a, b)", "mul24(a, b)", "brev(a)", "hadd(a, b)", "rhadd(a, b)"]
    calls += ["sad(a, b, c.to(tl.uint32, bitcast=True))", "byte_perm(a, b, c)"]
    got = evaluate(tmp_path, calls, x, y, z, torch.int32).tolist()
    a, b, c = (side.tolist() for side in (x, y, z))
    pairs = list(zip(a, b, strict=True))

    def word(value):
        return (value + 2**31) % 2**32 - 2**31

    def low(value):
        return (value + 2**23) % 2**24 - 2**23

    both = [(t & 0xFFFFFFFF) << 32 | s & 0xFFFFFFFF for s, t in pairs]
    bytes_ = [[w >> 8 * k & 255 for k in range(8)] for w in both]
    assert got[0] == [s * t >> 32 for s, t in pairs] and got[1] == [word(low(s) * low(t)) for s, t in pairs]
    assert got[2] == [word(int(f"{s & 0xFFFFFFFF:032b}"[::-1], 2)) for s in a]
    assert got[3] == [s + t >> 1 for s, t in pairs] and got[4] == [s + t + 1 >> 1 for s, t in pairs]
    assert got[5] == [word(abs(s - t) + u) for (s, t), u in zip(pairs, c, strict=True)]
    chosen = [sum(w[u >> 4 * k & 7] << 8 * k for k in range(4)) for w, u in zip(bytes_, c, strict=True)]
    assert got[6] == [word(value) for value in chosen]


def test_conversions_to_integers_round_as_named_and_saturate(tmp_path):
    x = torch.cat([bit_patterns(torch.float32, 192), torch.arange(-16, 16) / 4, torch.tensor([2.0**31, -1e30] * 16)])
    calls = [f"float2{kind}_{mode}(a)" for kind in ("int", "ll") for mode in ("rn", "rz", "rd", "ru")]
    got = evaluate(tmp_path, calls, x, x, x, torch.int64).numpy()
    rounded = [np.rint, np.trunc, np.floor, np.ceil]
    for row in range(8):
        limit = 31 if row < 4 else 63
        for value, real in zip(got[row].tolist(), rounded[row % 4](x.double().numpy()).tolist(), strict=True):
            nan = 0 if limit == 31 else -(2.0**63)
            exact = nan if real != real else min(max(real, -(2.0**limit)), 2.0**limit)
            assert value == min(int(exact), 2**limit - 1)


def test_what_has_no_counterpart_is_refused(tmp_path):
    x = torch.zeros(8, dtype=torch.float64)
    with pytest.raises(cpu.UnsupportedOperation, match=r"__nv_rcp64h.*calls\.py:10"):
        evaluate(tmp_path, ["rcp64h(a)"], x, x, x, torch.float64)
