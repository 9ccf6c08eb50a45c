"""Whole kernels: softmax, layer norm, matrix products; and what a C compiler once got wrong."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from bit_values import assert_same


@triton.jit
def softmax(x, out, stride, n, B: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, B)
    v = tl.load(x + row * stride + c, mask=c < n, other=-float("inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + row * n + c, e / tl.sum(e, 0), mask=c < n)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("rows", "n"), [(1, 1), (3, 50), (7, 128), (2, 1000)])
def test_softmax(dtype, rows, n):
    x = torch.randn(rows, n + 3).to(dtype)[:, 1 : n + 1]
    out = torch.empty(rows, n, dtype=dtype)
    softmax[(rows,)](x, out, x.stride(0), n, B=triton.next_power_of_2(n))
    want = x.double().softmax(1)
    assert ((out.double() - want).abs() <= want * 4 * torch.finfo(dtype).eps + 1e-7).all()


@triton.jit
def layer_norm_backward(dy, x, w, dx, dw, n, eps, ROWS: tl.constexpr, B: tl.constexpr):
    c = tl.arange(0, B)
    m = c < n
    weight = tl.load(w + c, mask=m, other=0).to(tl.float32)
    total = tl.zeros((B,), tl.float32)
    for k in range(ROWS):
        row = tl.program_id(0) * ROWS + k
        xv = tl.load(x + row * n + c, mask=m, other=0).to(tl.float32)
        g = tl.load(dy + row * n + c, mask=m, other=0).to(tl.float32)
        mean = tl.sum(xv, 0) / n
        centred = tl.where(m, xv - mean, 0.0)
        rstd = tl.rsqrt(tl.sum(centred * centred, 0) / n + eps)
        hat = centred * rstd
        wg = weight * g
        c1 = tl.sum(hat * wg, 0) / n
        c2 = tl.sum(wg, 0) / n
        tl.store(dx + row * n + c, (wg - (hat * c1 + c2)) * rstd, mask=m)
        total += g * hat
    tl.atomic_add(dw + c, total, mask=m)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_layer_norm_backward(dtype):
    rows, n = 12, 100
    x, dy, w = (torch.randn(shape, dtype=torch.float64).to(dtype) for shape in ((rows, n), (rows, n), (n,)))
    dx, dw = torch.empty(rows, n, dtype=dtype), torch.zeros(n)
    layer_norm_backward[(4,)](dy, x, w, dx, dw, n, 1e-5, ROWS=3, B=128)
    wide = [t.double().requires_grad_() for t in (x, w)]
    torch.nn.functional.layer_norm(wide[0], (n,), wide[1], None, 1e-5).backward(dy.double())
    torch.testing.assert_close(dx.double(), wide[0].grad, rtol=2 * torch.finfo(dtype).eps, atol=1e-6)
    torch.testing.assert_close(dw.double(), wide[1].grad, rtol=1e-5, atol=1e-5)


@triton.jit
def matmul(a, b, c, M, N, K, sam, sak, sbk, sbn, scm, scn,
           BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    kind: tl.constexpr = tl.int32 if a.dtype.element_ty == tl.int8 else tl.float32
    total = tl.zeros((BM, BN), dtype=kind)
    for k in range(tl.cdiv(K, BK)):
        rk = k * BK + tl.arange(0, BK)
        left = tl.load(a + rm[:, None] * sam + rk[None, :] * sak, mask=(rm[:, None] < M) & (rk[None, :] < K), other=0)
        right = tl.load(b + rk[:, None] * sbk + rn[None, :] * sbn, mask=(rk[:, None] < K) & (rn[None, :] < N), other=0)
        total = tl.dot(left, right, total, input_precision=PRECISION, out_dtype=kind)
    mask = (rm[:, None] < M) & (rn[None, :] < N)
    tl.store(c + rm[:, None] * scm + rn[None, :] * scn, total.to(c.dtype.element_ty), mask=mask)


def multiply(a, b, dtype, precision="ieee"):
    c = torch.empty(a.shape[0], b.shape[1], dtype=dtype)
    grid = (triton.cdiv(a.shape[0], 16), triton.cdiv(b.shape[1], 32))
    matmul[grid](a, b, c, *c.shape, a.shape[1], *a.stride(), *b.stride(), *c.stride(),
                 BM=16, BN=32, BK=16, PRECISION=precision)  # fmt: skip
    return c


def sequential(a, b):
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        total = total + a[:, k : k + 1] * b[k : k + 1]
    return total


def test_matmul_accumulates_in_order():
    a, b = torch.randn(50, 70), torch.randn(70, 40)
    np.testing.assert_array_equal(multiply(a, b, torch.float32).numpy(), sequential(a.numpy(), b.numpy()))
    transposed = multiply(a.T.contiguous().T, b.T.contiguous().T, torch.float32)
    np.testing.assert_array_equal(transposed.numpy(), sequential(a.numpy(), b.numpy()))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bit_matmul(dtype):
    a, b = torch.randn(20, 33).to(dtype), torch.randn(33, 40).to(dtype)
    want = torch.from_numpy(sequential(a.float().numpy(), b.float().numpy())).to(dtype)
    assert_same(multiply(a, b, dtype), want)


def test_integer_matmul():
    a = torch.randint(-128, 128, (20, 33), dtype=torch.int8)
    b = torch.randint(-128, 128, (33, 40), dtype=torch.int8)
    assert torch.equal(multiply(a, b, torch.int32), (a.long() @ b.long()).int())


def tf32(x):
    return (x.numpy().view(np.uint32) & 0xFFFFE000).view(np.float32)


@pytest.mark.parametrize("precision", [None, "tf32"])
def test_tf32_cuts_operands_where_the_kernel_asks_for_it_or_for_nothing(precision):
    a, b = torch.randn(16, 32), torch.randn(32, 32)
    cut = multiply(a, b, torch.float32, precision).numpy()
    np.testing.assert_array_equal(cut, sequential(tf32(a), tf32(b)))


@triton.jit
def narrow_dot(a, b, c, B: tl.constexpr):
    i = tl.arange(0, B)
    at = i[:, None] * B + i[None, :]
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at), out_dtype=tl.float16))


def test_a_16_bit_accumulator_rounds_after_sixteen_products():
    a, b = torch.randn(16, 16).half(), torch.randn(16, 16).half()
    c = torch.empty(16, 16, dtype=torch.float16)
    narrow_dot[(1,)](a, b, c, B=16)
    total = torch.zeros(16, 16)
    for k in range(16):
        total = total + a[:, k : k + 1].float() * b[k : k + 1].float()
    assert_same(c, total.half())


@triton.jit
def batched_dot(a, b, c, Z: tl.constexpr, B: tl.constexpr):
    z, i = tl.arange(0, Z)[:, None, None], tl.arange(0, B)
    at = z * B * B + i[None, :, None] * B + i[None, None, :]
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at), input_precision="ieee"))


def test_batched_dot():
    a, b = torch.randint(-9, 9, (4, 16, 16)).float(), torch.randint(-9, 9, (4, 16, 16)).float()
    c = torch.empty(4, 16, 16)
    batched_dot[(1,)](a, b, c, Z=4, B=16)
    assert torch.equal(c, a @ b)


@triton.jit
def top_half(x, keep, out, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(x + i)
    top = (a.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)
    tl.store(out + i, tl.where(a != a, a, top))
    first = tl.load(x)
    cut = (first.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)
    tl.store(out + B, tl.where(tl.load(keep) > 0, first, cut))


def test_a_mask_that_gcc_12_drops():
    """`c ? x : float_of(bits_of(x) & 0xffff0000)` gives x at -O1 and above."""
    x = torch.from_numpy(np.array([0x3F80FFFF, 0x7FC01234, 0x12345678, 0xBFFFFFFF], np.uint32).view(np.float32))
    out = torch.empty(5)
    top_half[(1,)](x, torch.zeros(1), out, B=4)
    want = x.numpy().view(np.uint32) & 0xFFFF0000
    np.testing.assert_array_equal(out.numpy().view(np.uint32)[[0, 2, 3, 4]], want[[0, 2, 3, 0]])
    assert out[1].isnan()


@triton.jit
def names(double, int_, exp, INSIDE, run, d0, half, y0, row, right_row, B: tl.constexpr):
    register = tl.arange(0, B)
    scale = tl.load(double + register)
    auto = tl.exp(scale) + tl.sum(scale) + exp + half + run
    tl.store(INSIDE + register, auto + d0 + y0 + row + right_row + int_)


def test_names_that_c_or_the_emitted_text_uses():
    x, out = torch.randn(8), torch.empty(8)
    names[(1,)](x, 2, 3.0, out, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, B=8)
    torch.testing.assert_close(out, x.exp() + x.sum() + 44)
