"""Root-mean-square norm, forward: y = x * rsqrt(mean(x * x) + eps) * weight. Interesting: tiny rows, where eps decides."""

import torch
import triton
import triton.language as tl

from fuzz import option, size, target, tensor

M, N = size("M", 1, 4096), size("N", 1, 8192)
BLOCK = 64


@triton.jit(do_not_specialize=["x_row", "x_column", "weight_column", "n", "eps"])
def rms_norm_kernel(y, x, weight, x_row, x_column, weight_column, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK).to(tl.int64)
        value = tl.load(x + row * x_row + columns * x_column, mask=columns < n, other=0.0).to(tl.float32)
        squares += value * value
    rstd = 1.0 / tl.sqrt(tl.sum(squares) / n + eps)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK).to(tl.int64)
        mask = columns < n
        value = tl.load(x + row * x_row + columns * x_column, mask=mask, other=0.0).to(tl.float32)
        scale = tl.load(weight + columns * weight_column, mask=mask, other=0.0).to(tl.float32)
        result = value * rstd * scale
        tl.store(y + row * n + columns, result.to(y.dtype.element_ty), mask=mask)


def reference(x, weight, eps):
    return dict(y=x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * weight)


@target(
    x=tensor(M, N),
    weight=tensor(N),
    eps=option(1e-5, 1e-6, 1e-12),
    batch=M,
    rejects=dict(short_weight=lambda x, weight, eps: dict(weight=weight[:-1])),
    reference=reference,
    linear=("weight",),
)
def rms_norm(x, weight, eps):
    if x.dim() != 2 or weight.shape != x.shape[1:]:
        raise ValueError(f"shapes do not fit: x {tuple(x.shape)}, weight {tuple(weight.shape)}")
    m, n = x.shape
    y = torch.empty((m, n), dtype=x.dtype, device=x.device)
    rms_norm_kernel[(m,)](y, x, weight, x.stride(0), x.stride(1), weight.stride(0), n, eps, BLOCK=BLOCK)
    return dict(y=y)


rms_norm.planted(
    "eps_outside_sqrt",
    oracle="accuracy",
    outputs=("y",),
    meaning="eps is added to the root instead of under it",
    change=("tl.sqrt(tl.sum(squares) / n + eps)", "(tl.sqrt(tl.sum(squares) / n) + eps)"),
)
rms_norm.planted(
    "tail_lost",
    oracle="accuracy",
    outputs=("y",),
    meaning="the sum of squares stops before the last block unless it is full",
    change=(
        "for start in range(0, n, BLOCK):\n        columns = start + tl.arange(0, BLOCK).to(tl.int64)\n        value",
        "for start in range(0, n // BLOCK * BLOCK, BLOCK):\n        columns = start + tl.arange(0, BLOCK).to(tl.int64)\n        value",
    ),
)
rms_norm.planted(
    "one_plus_weight",
    oracle="accuracy",
    outputs=("y",),
    meaning="the weight is taken for an offset from 1, as another model has it",
    change=("result = value * rstd * scale", "result = value * rstd * (1.0 + scale)"),
)
rms_norm.planted(
    "squares_in_bfloat16",
    oracle="accuracy",
    outputs=("y",),
    meaning="the squares are added up in bfloat16",
    change=("squares += value * value", "squares = (squares + value * value).to(tl.bfloat16).to(tl.float32)"),
)
rms_norm.planted(
    "truncates_to_bfloat16",
    oracle="accuracy",
    outputs=("y",),
    meaning="the low half of the float32 word is cut off instead of rounded to bfloat16",
    change=(
        "result = value * rstd * scale",
        "result = value * rstd * scale\n        if y.dtype.element_ty == tl.bfloat16:\n            result = (result.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)",
    ),
)
rms_norm.planted(
    "eps_lost",
    oracle="accuracy",
    outputs=("y",),
    meaning="eps is not added, so that a row of zeros is divided by 0",
    change=("tl.sqrt(tl.sum(squares) / n + eps)", "tl.sqrt(tl.sum(squares) / n)"),
)
