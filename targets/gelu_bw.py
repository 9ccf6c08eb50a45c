"""GELU backward, exact form: dx = dy * (cdf(x) + x * pdf(x)).

Interesting: deep negatives, where 1 + erf(x) cancels to nothing, and x beside -3.7, where a saturating erf flips the
sign of the result.
"""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from fuzz import size, target, tensor

N = size("N", 1, 262144)

SQRT_HALF = tl.constexpr(0.7071067811865476)
PDF_AT_ZERO = tl.constexpr(0.3989422804014327)
FAR = tl.constexpr(40.0)


@triton.jit(do_not_specialize=["stride_dy", "stride_x", "n"])
def gelu_bw_kernel(dx, dy, x, stride_dy, stride_x, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    v = tl.load(x + offsets * stride_x, mask=mask, other=0.0).to(tl.float32)
    grad = tl.load(dy + offsets * stride_dy, mask=mask, other=0.0).to(tl.float32)
    cdf = 0.5 * libdevice.erfc(-v * SQRT_HALF)
    pdf = PDF_AT_ZERO * tl.exp(-0.5 * v * v)
    # The density vanishes long before FAR; at an infinity 0 * inf would be NaN.
    slope = tl.where(tl.abs(v) < FAR, v * pdf, 0.0)
    tl.store(dx + offsets, (grad * (cdf + slope)).to(dx.dtype.element_ty), mask=mask)


def reference(dy, x):
    cdf = 0.5 * torch.special.erfc(-x * SQRT_HALF.value)
    pdf = PDF_AT_ZERO.value * torch.exp(-0.5 * x * x)
    return dict(dx=dy * (cdf + torch.where(x.abs() < FAR.value, x * pdf, 0.0)))


def exact(dy, x):
    """The same in mpmath, whose constants are not those of a double."""
    from mpmath import erfc, npdf, sqrt

    return dict(dx=dy * (erfc(-x / sqrt(2)) / 2 + (x * npdf(x) if abs(x) < FAR.value else 0)))


@target(
    dy=tensor(N),
    x=tensor(N),
    dtypes=("float32", "bfloat16", "float16"),
    batch=N,
    nonfinite=("dy", "x"),
    constants=(-3.7, -3.71875, -2.6, -0.7517, 8.3, -13.1),
    rejects=dict(short_x=lambda dy, x: dict(x=x[:-1])),
    reference=reference,
    linear=("dy",),
    exact=exact,
)
def gelu_bw(dy, x):
    if dy.shape != x.shape or x.dim() != 1:
        raise ValueError(f"dy and x must be vectors of one length, not {tuple(dy.shape)} and {tuple(x.shape)}")
    n = x.numel()
    block = 128 if n <= 128 else 1024
    dx = torch.empty(n, dtype=x.dtype, device=x.device)
    gelu_bw_kernel[(triton.cdiv(n, block),)](dx, dy, x, dy.stride(0), x.stride(0), n, BLOCK=block)
    return dict(dx=dx)


gelu_bw.planted(
    "erf_saturates",
    oracle="accuracy",
    outputs=("dx",),
    meaning="erf sticks one bfloat16 step short of -1, so the sign is wrong from x = -3.64 down",
    change=(
        "cdf = 0.5 * libdevice.erfc(-v * SQRT_HALF)",
        "cdf = 0.5 * (1.0 + tl.maximum(tl.math.erf(v * SQRT_HALF), -0.99609375, tl.PropagateNan.ALL))",
    ),
)
gelu_bw.planted(
    "cdf_by_one_plus_erf",
    oracle="accuracy",
    outputs=("dx",),
    meaning="1 + erf(x) cancels for negative x",
    change=(
        "cdf = 0.5 * libdevice.erfc(-v * SQRT_HALF)",
        "cdf = 0.5 * (1.0 + tl.math.erf(v * SQRT_HALF))",
    ),
)
gelu_bw.planted(
    "pdf_without_x",
    oracle="accuracy",
    outputs=("dx",),
    meaning="the density is added without its factor x",
    change=("v * pdf, 0.0)\n    tl.store", "pdf, 0.0)\n    tl.store"),
)
gelu_bw.planted(
    "tanh_form",
    oracle="accuracy",
    outputs=("dx",),
    meaning="the derivative of the tanh approximation, where the exact form is promised",
    change=(
        (
            "cdf = 0.5 * libdevice.erfc(-v * SQRT_HALF)",
            "th = libdevice.tanh(0.7978845608028654 * (v + 0.044715 * v * v * v))\n    cdf = 0.5 * (1.0 + th)",
        ),
        (
            "pdf = PDF_AT_ZERO * tl.exp(-0.5 * v * v)",
            "pdf = 0.5 * (1.0 - th * th) * 0.7978845608028654 * (1.0 + 0.134145 * v * v)",
        ),
    ),
)
