"""SwiGLU: y = silu(gate) * up. Interesting: pairs whose product overflows or underflows, deep negative gates."""

import torch
import triton
import triton.language as tl

from fuzz import size, target, tensor

N = size("N", 1, 262144)


@triton.jit(do_not_specialize=["stride_gate", "stride_up", "n"])
def swiglu_kernel(y, gate, up, stride_gate, stride_up, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    g = tl.load(gate + offsets * stride_gate, mask=mask, other=0.0).to(tl.float32)
    u = tl.load(up + offsets * stride_up, mask=mask, other=0.0).to(tl.float32)
    small = tl.exp(-tl.abs(g))
    silu = tl.where(g < 0, g * small, g) / (1.0 + small)
    tl.store(y + offsets, (silu * u).to(y.dtype.element_ty), mask=mask)


def reference(gate, up):
    small = torch.exp(-gate.abs())
    return dict(y=torch.where(gate < 0, gate * small, gate) / (1 + small) * up)


@target(
    gate=tensor(N),
    up=tensor(N),
    batch=N,
    constants=(-88.75, -89.0, -95.0, -1.2785),
    rejects=dict(short_up=lambda gate, up: dict(up=up[:-1])),
    reference=reference,
    linear=("up",),
)
def swiglu(gate, up):
    if gate.shape != up.shape or gate.dim() != 1:
        raise ValueError(f"gate and up must be vectors of one length, not {tuple(gate.shape)} and {tuple(up.shape)}")
    n = gate.numel()
    block = 128 if n <= 128 else 1024
    y = torch.empty(n, dtype=gate.dtype, device=gate.device)
    swiglu_kernel[(triton.cdiv(n, block),)](y, gate, up, gate.stride(0), up.stride(0), n, BLOCK=block)
    return dict(y=y)


swiglu.planted(
    "silu_of_up",
    oracle="accuracy",
    outputs=("y",),
    meaning="gate and up change places",
    change=(
        ("g = tl.load(gate + offsets * stride_gate", "g = tl.load(up + offsets * stride_up"),
        ("u = tl.load(up + offsets * stride_up", "u = tl.load(gate + offsets * stride_gate"),
    ),
)
swiglu.planted(
    "silu_in_bfloat16",
    oracle="accuracy",
    outputs=("y",),
    meaning="silu(gate) is rounded to bfloat16 before it is multiplied",
    change=("(silu * u)", "(silu.to(tl.bfloat16).to(tl.float32) * u)"),
)
