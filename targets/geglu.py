"""GEGLU, exact form: y = gelu(gate) * up. Interesting: deep negative gates, where 1 + erf(x) cancels to nothing."""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from fuzz import size, target, tensor

N = size("N", 1, 262144)

SQRT_HALF = tl.constexpr(0.7071067811865476)


@triton.jit(do_not_specialize=["stride_gate", "stride_up", "n"])
def geglu_kernel(y, gate, up, stride_gate, stride_up, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    g = tl.load(gate + offsets * stride_gate, mask=mask, other=0.0).to(tl.float32)
    u = tl.load(up + offsets * stride_up, mask=mask, other=0.0).to(tl.float32)
    gelu = g * (0.5 * libdevice.erfc(-g * SQRT_HALF))
    tl.store(y + offsets, (gelu * u).to(y.dtype.element_ty), mask=mask)


def reference(gate, up):
    return dict(y=gate * (0.5 * torch.special.erfc(-gate * SQRT_HALF.value)) * up)


def exact(gate, up):
    """The same in mpmath, whose constants are not those of a double."""
    from mpmath import erfc, sqrt

    return dict(y=gate * erfc(-gate / sqrt(2)) / 2 * up)


@target(
    gate=tensor(N),
    up=tensor(N),
    batch=N,
    constants=(-0.7517, -5.5, -13.1),
    rejects=dict(short_up=lambda gate, up: dict(up=up[:-1])),
    reference=reference,
    linear=("up",),
    exact=exact,
)
def geglu(gate, up):
    if gate.shape != up.shape or gate.dim() != 1:
        raise ValueError(f"gate and up must be vectors of one length, not {tuple(gate.shape)} and {tuple(up.shape)}")
    n = gate.numel()
    block = 128 if n <= 128 else 1024
    y = torch.empty(n, dtype=gate.dtype, device=gate.device)
    geglu_kernel[(triton.cdiv(n, block),)](y, gate, up, gate.stride(0), up.stride(0), n, BLOCK=block)
    return dict(y=y)


geglu.planted(
    "cdf_by_one_plus_erf",
    oracle="accuracy",
    outputs=("y",),
    meaning="1 + erf(x) cancels for negative x",
    change=("libdevice.erfc(-g * SQRT_HALF)", "(1.0 + tl.math.erf(g * SQRT_HALF))"),
)
geglu.planted(
    "sigmoid_form",
    oracle="accuracy",
    outputs=("y",),
    meaning="gate * sigmoid(1.702 * gate), where the exact form is promised",
    change=("(0.5 * libdevice.erfc(-g * SQRT_HALF))", "(1.0 / (1.0 + tl.exp(-1.702 * g)))"),
)
