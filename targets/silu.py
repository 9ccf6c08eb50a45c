"""SiLU: y = x * sigmoid(x). Interesting: x below -88.7, where exp(-x) overflows though x * exp(x) is no zero yet."""

import torch
import triton
import triton.language as tl

from fuzz import size, target, tensor

N = size("N", 1, 262144)

FAR = tl.constexpr(-200.0)


@triton.jit(do_not_specialize=["stride", "n"])
def silu_kernel(y, x, stride, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    v = tl.load(x + offsets * stride, mask=mask, other=0.0).to(tl.float32)
    small = tl.exp(-tl.abs(v))
    # At -inf the product would be NaN.
    scaled = tl.where(v < 0, tl.where(v < FAR, 0.0, v * small), v)
    tl.store(y + offsets, (scaled / (1.0 + small)).to(y.dtype.element_ty), mask=mask)


def reference(x):
    small = torch.exp(-x.abs())
    scaled = torch.where(x < 0, torch.where(x < -1000.0, 0.0, x * small), x)
    return dict(y=scaled / (1 + small))


@target(
    x=tensor(N),
    batch=N,
    nonfinite=("x",),
    constants=(-88.75, -89.0, -95.0, -1.2785),
    rejects=dict(matrix=lambda x: dict(x=x.expand(2, -1))),
    reference=reference,
)
def silu(x):
    if x.dim() != 1:
        raise ValueError(f"x must be a vector, not of shape {tuple(x.shape)}")
    n = x.numel()
    block = 128 if n <= 128 else 1024
    y = torch.empty(n, dtype=x.dtype, device=x.device)
    silu_kernel[(triton.cdiv(n, block),)](y, x, x.stride(0), n, BLOCK=block)
    return dict(y=y)


silu.planted(
    "exp_overflows",
    oracle="accuracy",
    outputs=("y",),
    meaning="x / (1 + exp(-x)): the exponential overflows below -88.7, where the result is no zero yet",
    change=("scaled / (1.0 + small)", "v / (1.0 + tl.exp(-v))"),
)
silu.planted(
    "sigmoid_saturates",
    oracle="accuracy",
    outputs=("y",),
    meaning="the sigmoid sticks at 2^-10, so that the result grows again below x = -6.9",
    change=("scaled / (1.0 + small)", "v * tl.maximum(1.0 / (1.0 + tl.exp(-v)), 0.0009765625)"),
)
