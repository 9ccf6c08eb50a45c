"""Inline assembly with several elements to a register, blocks in braces and instructions on bytes."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from bit_values import assert_same, floats
from triton.language.extra.cuda.utils import convert_fp8e4b15_to_float16

from fuzz.backends import cpu

N = 64


def words(seed: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    info = torch.iinfo(dtype)
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(info.min, info.max, (N,), generator=generator, dtype=torch.int64).to(dtype)


@triton.jit
def shift_bytes(x, out, B: tl.constexpr):
    i = tl.arange(0, B)
    asm: tl.constexpr = "and.b32 $0, $1, 0x1F1F1F1F; shl.b32 $0, $0, 3;"
    tl.store(out + i, tl.inline_asm_elementwise(asm, "=r,r", [tl.load(x + i)], dtype=tl.int8, is_pure=True, pack=4))


def test_four_bytes_to_a_register():
    x = words(1, torch.int8)
    out = torch.empty_like(x)
    shift_bytes[(1,)](x, out, B=N)
    assert torch.equal(out, (x & 0x1F) << 3)


@triton.jit
def widen_and_compare(x, y, wide, greater, B: tl.constexpr):
    i = tl.arange(0, B)
    a, b = tl.inline_asm_elementwise(
        """
        {
            .reg .b8 part<4>;  // the bytes of x
            mov.b32 {part0, part1, part2, part3}, $8;
            cvt.u32.u8 $0, part0; cvt.u32.u8 $1, part1; cvt.u32.u8 $2, part2; cvt.u32.u8 $3, part3;
        }
        cvt.rn.f32.s32 $4, $0; cvt.rn.f32.s32 $5, $1; cvt.rn.f32.s32 $6, $2; cvt.rn.f32.s32 $7, $3;
        max.f32 $4, $4, $9; max.f32 $5, $5, $10; max.f32 $6, $6, $11; max.f32 $7, $7, $12;
        """,
        "=r,=r,=r,=r,=r,=r,=r,=r,r,r,r,r,r", [tl.load(x + i), tl.load(y + i)],
        dtype=(tl.int32, tl.float32), is_pure=True, pack=4,
    )  # fmt: skip
    tl.store(wide + i, a)
    tl.store(greater + i, b)


def test_blocks_in_braces_and_several_results():
    x, y = words(2, torch.uint8), torch.randn(N) * 200
    wide, greater = torch.empty(N, dtype=torch.int32), torch.empty(N)
    widen_and_compare[(1,)](x, y, wide, greater, B=N)
    assert torch.equal(wide, x.int()) and torch.equal(greater, torch.maximum(x.float(), y))


@triton.jit
def on_words(x, y, z, out, ASM: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    arguments = [tl.load(x + i), tl.load(y + i), tl.load(z + i)]
    tl.store(out + i, tl.inline_asm_elementwise(ASM, "=r,r,r,r", arguments, dtype=tl.int32, is_pure=True, pack=1))


def permuted(a: int, b: int, selector: int) -> int:
    parts = (b << 32 | a).to_bytes(8, "little")
    picks = [selector >> 4 * k & 15 for k in range(4)]
    return int.from_bytes([255 * (parts[p & 7] >> 7) if p & 8 else parts[p & 7] for p in picks], "little")


@pytest.mark.parametrize(
    ("asm", "of"),
    [
        ("shf.l.wrap.b32 $0, $1, $2, $3;", lambda a, b, c: (b << 32 | a) << c % 32 >> 32),
        ("shf.r.clamp.b32 $0, $1, $2, $3;", lambda a, b, c: (b << 32 | a) >> min(c, 32)),
        ("prmt.b32 $0, $1, $2, $3;", permuted),
        ("lop3.b32 $0, $1, $2, $3, 0xca;", lambda a, b, c: a & b | ~a & c),
        ("{ .reg .b16 h<2>; mov.b32 {h0, h1}, $1; mov.b32 $0, {h1, h0}; }", lambda a, b, c: a << 16 | a >> 16),
        ("and.b32 $0, $1, 0b10000001110000001000000111000000;", lambda a, b, c: a & 0x81C081C0),
        ("add.u32 $0, $1, 0B101U;", lambda a, b, c: a + 5),
        ("add.s32 $0, $1, -017;", lambda a, b, c: a - 15),
        ("cvt.s32.s8 $0, $1;", lambda a, b, c: (a & 255) - 2 * (a & 128)),
    ],
)
def test_instructions_on_words(asm, of):
    x, y, z = words(3), words(4), words(5)
    z[:8] = torch.tensor([0, 1, 31, 32, 33, 63, 0x7531, -1])
    out = torch.empty_like(x)
    on_words[(1,)](x, y, z, out, asm, B=N)
    rows = zip(x.tolist(), y.tolist(), z.tolist(), strict=True)
    want = [of(*(value & 0xFFFFFFFF for value in row)) & 0xFFFFFFFF for row in rows]
    assert [value & 0xFFFFFFFF for value in out.tolist()] == want


@triton.jit
def on_floats(x, y, out, ASM: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    arguments = [tl.load(x + i), tl.load(y + i)]
    tl.store(out + i, tl.inline_asm_elementwise(ASM, "=r, r,r ", arguments, dtype=tl.float32, is_pure=True, pack=1))


@pytest.mark.parametrize("flushes", [False, True])
@pytest.mark.parametrize("modifiers", [".NaN", ".xorsign.abs", ".NaN.xorsign.abs"])
@pytest.mark.parametrize("name", ["min", "max"])
def test_extrema_with_nan_and_the_product_of_signs(name: str, modifiers: str, flushes: bool):
    special = floats(torch.float32, 64, seed=7)
    x, y = (one.flatten().contiguous() for one in torch.meshgrid(special, special, indexing="ij"))
    out = torch.empty_like(x)
    opcode = f"{name}{'.ftz' * flushes}{modifiers}.f32"
    on_floats[(1,)](x, y, out, f"{{\n {opcode} $0, $1, $2;\n}}", B=4096)
    a, b = x.numpy(), y.numpy()
    if flushes:
        a, b = (np.where(np.abs(one) < 2.0**-126, np.copysign(np.float32(0), one), one) for one in (a, b))
    signs = np.signbit(a) ^ np.signbit(b)
    if "xorsign" in modifiers:
        a, b = np.abs(a), np.abs(b)
    # -0 is less than +0, for which numpy has no order.
    less = (a < b) | ((a == b) & np.signbit(a))
    want = np.where(less == (name == "min"), a, b)
    want = np.where(np.isnan(a), b, np.where(np.isnan(b), a, want))
    if "xorsign" in modifiers:
        want = np.copysign(want, np.where(signs, -1, 1)).astype(np.float32)
    if "NaN" in modifiers:
        want = np.where(np.isnan(a) | np.isnan(b), np.float32(np.nan), want)
    assert_same(out, torch.from_numpy(want), x, y)


@triton.jit
def decode(x, out, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, convert_fp8e4b15_to_float16(tl.load(x + i)))


@triton.jit
def on_halves(x, y, z, out, ASM: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    arguments = [tl.load(x + i), tl.load(y + i), tl.load(z + i)]
    tl.store(
        out + i, tl.inline_asm_elementwise(ASM, "=r,r,r,r", arguments, dtype=x.dtype.element_ty, is_pure=True, pack=2)
    )


@pytest.mark.parametrize(
    ("instruction", "of"),
    [
        ("add.{t} {0}, {1}, {2}", lambda x, y, z: x + y),
        ("sub.rn.{t} {0}, {1}, {2}", lambda x, y, z: x - y),
        ("mul.{t} {0}, {1}, {2}", lambda x, y, z: x * y),
        ("fma.rn.{t} {0}, {1}, {2}, {3}", lambda x, y, z: (x.double() * y.double() + z.double()).to(x.dtype)),
        ("neg.{t} {0}, {1}", lambda x, y, z: -x),
        ("abs.{t} {0}, {1}", lambda x, y, z: x.abs()),
        ("min.{t} {0}, {1}, {2}", lambda x, y, z: torch.fmin(x, y)),
        ("max.{t} {0}, {1}, {2}", lambda x, y, z: torch.fmax(x, y)),
        ("min.NaN.{t} {0}, {1}, {2}", lambda x, y, z: torch.minimum(x, y)),
        ("max.NaN.{t} {0}, {1}, {2}", lambda x, y, z: torch.maximum(x, y)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("together", [True, False])
def test_numbers_of_half_precision(instruction, of, dtype, together):
    kind = {torch.float16: "f16", torch.bfloat16: "bf16"}[dtype]
    if together:
        asm = instruction.format("$0", "$1", "$2", "$3", t=f"{kind}x2") + ";"
    else:
        asm = "{ .reg .b16 a<2>, b<2>, c<2>, d<2>; mov.b32 {a0, a1}, $1; mov.b32 {b0, b1}, $2; mov.b32 {c0, c1}, $3; "
        asm += "".join(instruction.format(f"d{k}", f"a{k}", f"b{k}", f"c{k}", t=kind) + "; " for k in range(2))
        asm += "mov.b32 $0, {d0, d1}; }"
    x, y, z = (words(seed, torch.int16).view(dtype) for seed in (5, 6, 7))
    x[:4], y[1:6] = float("nan"), torch.tensor([float("inf"), -0.0, 0.0, float("nan"), 1.0])
    out = torch.empty_like(x)
    on_halves[(1,)](x, y, z, out, ASM=asm, B=N)
    wanted = of(x, y, z)
    assert torch.equal(out.isnan(), wanted.isnan())
    assert torch.equal(torch.where(out.isnan(), 0, out), torch.where(wanted.isnan(), 0, wanted))


def test_a_fused_product_of_half_precision_is_rounded_once():
    """The product lies halfway between two numbers, and what is added decides: it is too small for float64's sum."""
    x = torch.full((N,), 1 + 2.0**-4, dtype=torch.bfloat16)
    y, z = torch.full_like(x, 1 + 2.0**-4), torch.full_like(x, 2.0**-80)
    out = torch.empty_like(x)
    on_halves[(1,)](x, y, z, out, ASM="fma.rn.bf16x2 $0, $1, $2, $3;", B=N)
    assert out.unique().tolist() == [1 + 2.0**-3 + 2.0**-7]
    on_halves[(1,)](x, y, -z, out, ASM="fma.rn.bf16x2 $0, $1, $2, $3;", B=N)
    assert out.unique().tolist() == [1 + 2.0**-3]


def test_tritons_own_conversion_is_that_of_the_backend():
    x = torch.arange(256, dtype=torch.int32).to(torch.uint8)
    out = torch.empty(256, dtype=torch.float16)
    decode[(1,)](triton.reinterpret(x, dtype=tl.float8e4b15), out, B=256)
    want = (x.int() & 0x80) << 8 | (x.int() & 0x7F) << 7
    assert torch.equal(out.view(torch.int16), want.to(torch.uint16).view(torch.int16))


@pytest.mark.parametrize(
    "asm",
    [
        "mov.b32 {a, b}, $1;",
        "cvt.rz.f32.s32 $0, $1;",
        "max.NaN.f64 $0, $1, $2;",
        "and.b32 $0, $1, 09;",
        "prmt.b64 $0, $1, $2, $3;",
        "ld.global.b32 $0, [$1];",
    ],
)
def test_others_are_refused_with_their_text(asm):
    x = words(6)
    with pytest.raises(cpu.UnsupportedOperation, match="elementwise_inline_asm"):
        on_words[(1,)](x, x, x, x.clone(), asm, B=N)


@triton.jit
def differs(x, out, B: tl.constexpr):
    i = tl.arange(0, B)
    asm: tl.constexpr = "{ .reg .pred p; setp.ne.f32 p, $1, $1; selp.b32 $0, 1, 0, p; }"
    tl.store(out + i, tl.inline_asm_elementwise(asm, "=r,f", [tl.load(x + i)], dtype=tl.int32, is_pure=True, pack=1))


def test_an_ordered_comparison_is_false_of_nan():
    out = torch.empty(4, dtype=torch.int32)
    differs[(1,)](torch.tensor([1.0, float("nan"), 0.0, float("inf")]), out, B=4)
    assert out.tolist() == [0, 0, 0, 0]


@triton.jit
def guarded_parts(x, out, B: tl.constexpr):
    i = tl.arange(0, B)
    asm: tl.constexpr = """
    {
        .reg .pred p; .reg .b16 lo, hi; .reg .b32 t;
        mov.b32 t, 0x00010002;
        mov.b32 {lo, hi}, t;
        setp.lt.s32 p, $1, 0;
        @p mov.b32 {lo, hi}, $1;
        mov.b32 $0, {lo, hi};
    }
    """
    tl.store(out + i, tl.inline_asm_elementwise(asm, "=r,r", [tl.load(x + i)], dtype=tl.int32, is_pure=True, pack=1))


def test_a_guard_covers_all_parts_of_a_register():
    x = words(8)
    out = torch.empty_like(x)
    guarded_parts[(1,)](x, out, B=N)
    assert torch.equal(out, torch.where(x < 0, x, 0x00010002)) and 0 < int((x < 0).sum()) < N
