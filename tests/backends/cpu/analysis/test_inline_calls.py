"""Functions that are not inlined, maps over elements, inline PTX, random numbers, constants of several values."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from bit_values import assert_same, bit_patterns

from fuzz.backends import cpu
from fuzz.backends.cpu.translate import translate


@triton.jit(noinline=True)
def early(a, p, n: tl.constexpr):
    if a > 3:
        return a * 2, tl.load(p) + tl.arange(0, n)
    return a + 1, tl.load(p + 1) + tl.arange(0, n)


@triton.jit(noinline=True)
def outer(a, p, n: tl.constexpr):
    b, c = early(a, p, n)
    return b, c + 1


@triton.jit(noinline=True)
def write(p, x):
    if x > 8:
        return
    tl.store(p, x)


@triton.jit
def calling(x, table, out, N: tl.constexpr):
    for i in range(4):
        a, b = outer(tl.load(x + i), table, N)
        c, d = early(tl.load(x + i) - 1, table, N)
        write(out + 4 * N + i, a)
        tl.store(out + i * N + tl.arange(0, N), a * b + c * d)


def test_calls_with_results_early_returns_and_calls_inside():
    x, table = torch.tensor([1.0, 3.0, 4.0, 5.0]), torch.tensor([10.0, 20.0])
    out = torch.zeros(36)
    calling[(1,)](x, table, out, N=8)

    def both(a):
        return (a * 2, 10 + torch.arange(8.0)) if a > 3 else (a + 1, 20 + torch.arange(8.0))

    for i, a in enumerate(x.tolist()):
        (s, t), (u, v) = both(a), both(a - 1)
        assert torch.equal(out[i * 8 : i * 8 + 8], s * (t + 1) + u * v)
        assert out[32 + i] == (s if s <= 8 else 0)


@triton.jit
def hints(x, out, s, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * s + tl.arange(0, N)[None, :]
    p = tl.multiple_of(x + at, (4, 4))
    i = tl.max_contiguous(tl.multiple_of(tl.arange(0, N), 1), N)
    tl.store(out + i, tl.sum(tl.load(p), 1))


def test_hints_to_the_optimiser_change_nothing():
    x, out = torch.arange(16.0).reshape(4, 4), torch.empty(4)
    hints[(1,)](x, out, 4, N=4)
    assert torch.equal(out, x.sum(1))


@triton.jit
def strays(x, y):
    write(x, 1.0)
    write(y + 4, 2.0)


def test_an_access_inside_a_call_is_checked_against_what_that_call_was_given():
    x, y = torch.zeros(8), torch.zeros(4)
    with cpu.observe() as log:
        strays[(1,)](x, y)
    assert [(v.argument, v.offset) for v in log.violations] == [("y", 4)] and x[0] == 1


RECURSION = """module {
  tt.func public @kernel(%a: i32) {
    tt.call @again(%a) : (i32) -> () loc(#loc)
    tt.return loc(#loc)
  } loc(#loc)
  tt.func private @again(%a: i32) {
    tt.call @again(%a) : (i32) -> () loc(#loc)
    tt.return loc(#loc)
  } loc(#loc)
} loc(#loc)
#loc = loc("kernel.py":7:1)
"""


def test_recursion_is_refused():
    with pytest.raises(cpu.UnsupportedOperation, match=r"recursion of function again.*kernel\.py:7"):
        translate(RECURSION)


@triton.jit
def ordered(a, b):
    if a < b:
        return -1
    elif a == b:
        return 0
    return 1


@triton.jit
def paired(a0, a1, b0, b1):
    return a0 + b1, a1 * b0, a0 - b0, a1 - b1


@triton.jit
def maps(x, y, out, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    a = tl.load(x + at)
    b = tl.load(y + at)
    tl.store(out + at, tl.map_elementwise(ordered, a, b))
    c, d = tl.map_elementwise(paired, a, b, pack=2)
    tl.store(out + M * N + at, c)
    tl.store(out + 2 * M * N + at, d)


def test_maps_over_elements_with_branches_and_packs():
    x, y = (torch.randint(-3, 4, (4, 8), dtype=torch.int32) for _ in range(2))
    out = torch.empty(3, 4, 8, dtype=torch.int32)
    maps[(1,)](x, y, out, M=4, N=8)
    assert torch.equal(out[0], torch.sign(x - y))
    a, b = (side.reshape(-1, 2) for side in (x, y))
    first = torch.stack([a[:, 0] + b[:, 1], a[:, 1] * b[:, 0]], 1)
    assert torch.equal(out[1].reshape(-1, 2), first) and torch.equal(out[2], x - y)


@triton.jit
def assembly(x, words, out, more, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(x + i)
    n = tl.load(words + i)
    tl.store(out + i, tl.inline_asm_elementwise("mov.f32 $0, $1;", "=r,r", [a], dtype=tl.float32, is_pure=True, pack=1))
    soft = tl.inline_asm_elementwise(
        "{ .reg .pred p; setp.gt.f32 p, $1, 20.; @p mov.f32 $0, $1; @!p mul.f32 $0, $1, 1.4426950408889634;"
        "@!p ex2.approx.ftz.f32 $0, $0; @!p add.f32 $0, $0, 1.0; @!p lg2.approx.ftz.f32 $0, $0;"
        "@!p mul.f32 $0, $0, 0.6931471805599453; }",
        "=r,r", [a], dtype=tl.float32, is_pure=True, pack=1)  # fmt: skip
    tl.store(out + B + i, soft)
    both = tl.inline_asm_elementwise(
        "{ .reg .b32 t; shl.b32 t, $2, 3; and.b32 $0, t, 0xff; shr.s32 $1, $2, 40; }",
        "=r,=r,r", [n], dtype=(tl.int32, tl.int32), is_pure=True, pack=1)  # fmt: skip
    tl.store(more + i, both[0])
    tl.store(more + B + i, both[1])
    tl.inline_asm_elementwise("griddepcontrol.wait; // dummy $0", "=r", [], dtype=tl.int32, is_pure=False, pack=1)


def test_inline_ptx():
    x = torch.cat([torch.randn(1012) * 8, torch.tensor([0.0, -0.0, 1e-40, 30.0, 1e30, -1e30])])
    x = torch.cat([x, torch.tensor([float("inf"), float("-inf"), 20.0, 19.999998, 88.0, -88.0])])
    words = bit_patterns(torch.int32, 1024)
    out, more = torch.empty(2, 1024), torch.empty(2, 1024, dtype=torch.int32)
    assembly[(1,)](x, words, out, more, B=1024)
    assert_same(out[0], x)
    want = torch.nn.functional.softplus(x.double(), threshold=20)
    np.testing.assert_allclose(out[1].double(), want, rtol=2e-7, atol=2e-7)
    assert torch.equal(more[0], (words << 3) & 0xFF) and torch.equal(more[1], words >> 31)


@triton.jit
def other_assembly(out, ASM: tl.constexpr):
    tl.store(out, tl.inline_asm_elementwise(ASM, "=r", [], dtype=tl.int32, is_pure=True, pack=1))


REFUSED = ["mov.u32 $0, %smid;", "bfi.b32 $0, 1, 2, 3, 4;", "add.u32 $0, 1;", "add.f16 $0, $0, $0;"]


@pytest.mark.parametrize("text", REFUSED)
def test_other_ptx_is_refused_with_its_text(text):
    with pytest.raises(cpu.UnsupportedOperation, match=rf"{text[:8]}.*other_assembly.*:\d+"):
        other_assembly[(1,)](torch.empty(1, dtype=torch.int32), ASM=text)


@triton.jit
def numbers(out, real, seed, B: tl.constexpr):
    i = tl.arange(0, B)
    a, b, c, d = tl.randint4x(seed, i)
    tl.store(out + i, a)
    tl.store(out + B + i, b)
    tl.store(out + 2 * B + i, c)
    tl.store(out + 3 * B + i, d)
    tl.store(out + 4 * B + i, tl.randint(seed, i))
    tl.store(real + i, tl.rand(seed, i))
    tl.store(real + B + i, tl.randn(seed, i))


def philox(seed, offset):
    """Philox4x32-10 (Salmon et al., 2011) in exact integers: four words for the counter (offset, 0, 0, 0)."""
    counter, key = [int(offset), 0, 0, 0], [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]
    for _ in range(10):
        high, low = divmod(counter[0] * 0xD2511F53, 1 << 32)
        upper, lower = divmod(counter[2] * 0xCD9E8D57, 1 << 32)
        counter = [upper ^ counter[1] ^ key[0], lower, high ^ counter[3] ^ key[1], low]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return counter


@pytest.mark.parametrize("seed", [0, 12345, 2**40 + 7])
def test_random_numbers_are_philox(seed):
    out, real = torch.empty(5, 64, dtype=torch.int32), torch.empty(2, 64)
    numbers[(1,)](out, real, seed, B=64)
    words = np.array([philox(seed, i) for i in range(64)], np.uint32).T
    np.testing.assert_array_equal(out.numpy().view(np.uint32)[:4], words)
    np.testing.assert_array_equal(out.numpy()[4], words[0].view(np.int32))
    uniform = [np.where(w.view(np.int32) < 0, -w.view(np.int32) - 1, w.view(np.int32)) for w in words[:2]]
    uniform = [np.float32(4.6566127342e-10) * u.astype(np.float32) for u in uniform]
    np.testing.assert_array_equal(real[0].numpy(), uniform[0])
    radius = np.sqrt(-2 * np.log(np.maximum(uniform[0], 1e-7).astype(np.float64)))
    np.testing.assert_allclose(real[1].numpy(), radius * np.cos(6.283185307179586 * uniform[1]), rtol=2e-5, atol=2e-6)


TABLES = """module {
  tt.func public @kernel(%out: !tt.ptr<TYPE>) {
    %cst = arith.constant dense<VALUES> : tensor<4xTYPE> loc(#loc)
    %i = tt.make_range {end = 4 : i32, start = 0 : i32} : tensor<4xi32> loc(#loc)
    %p = tt.splat %out : !tt.ptr<TYPE> -> tensor<4x!tt.ptr<TYPE>> loc(#loc)
    %q = tt.addptr %p, %i : tensor<4x!tt.ptr<TYPE>>, tensor<4xi32> loc(#loc)
    tt.store %q, %cst : tensor<4x!tt.ptr<TYPE>> loc(#loc)
    tt.return loc(#loc)
  } loc(#loc)
} loc(#loc)
#loc = loc("kernel.py":7:1)
"""


@pytest.mark.parametrize(
    ("element", "text", "want"),
    [("i32", "[1, -2, 3, 4]", "{1, -2, 3, 4}"),
     ("f32", "[1.000000e+00, 0x7F800000, 0xFFC00001]", "{1.0f, __builtin_inff(), f32_bits(0xffc00001u)}"),
     ("i16", '"0x0100FFFF02000300"', "{1, 65535, 2, 3}"),
     ("f8E4M3FN", "[0x38, 0x7F, 3.000000e-01, 448.0]", "{1.0f, NAN, 0.3125f, 448.0f}")],
)  # fmt: skip
def test_constants_of_several_values(element, text, want):
    assert f"[] = {want};" in translate(TABLES.replace("TYPE", element).replace("VALUES", text)).c
