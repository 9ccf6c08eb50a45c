"""Softmax over the rows of a matrix. Interesting: rows far below 0, where padding with 0 wins the maximum; infinities."""

import torch
import triton
import triton.language as tl

from fuzz import size, target, tensor

M, N = size("M", 1, 4096), size("N", 1, 8192)
BLOCK = 64


@triton.jit(do_not_specialize=["x_row", "x_column", "n"])
def softmax_kernel(y, x, x_row, x_column, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    tops = tl.full([BLOCK], float("-inf"), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK).to(tl.int64)
        value = tl.load(x + row * x_row + columns * x_column, mask=columns < n, other=float("-inf"))
        tops = tl.maximum(tops, value.to(tl.float32))
    top = tl.max(tops)
    sums = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK).to(tl.int64)
        mask = columns < n
        shifted = tl.load(x + row * x_row + columns * x_column, mask=mask, other=0.0).to(tl.float32) - top
        sums += tl.where(mask, tl.exp(shifted), 0.0)
    total = tl.sum(sums)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK).to(tl.int64)
        mask = columns < n
        shifted = tl.load(x + row * x_row + columns * x_column, mask=mask, other=0.0).to(tl.float32) - top
        result = tl.exp(shifted) / total
        tl.store(y + row * n + columns, result.to(y.dtype.element_ty), mask=mask)


def reference(x):
    grown = torch.exp(x - x.amax(-1, keepdim=True))
    return dict(y=grown / grown.sum(-1, keepdim=True))


@target(
    x=tensor(M, N),
    batch=M,
    layout="bitwise",
    nonfinite=("x",),
    rejects=dict(vector=lambda x: dict(x=x[0])),
    reference=reference,
    shifts=("x",),
)
def softmax(x):
    if x.dim() != 2:
        raise ValueError(f"x must be a matrix, not of shape {tuple(x.shape)}")
    m, n = x.shape
    y = torch.empty((m, n), dtype=x.dtype, device=x.device)
    softmax_kernel[(m,)](y, x, x.stride(0), x.stride(1), n, BLOCK=BLOCK)
    return dict(y=y)


softmax.planted(
    "no_max_subtracted",
    oracle="accuracy",
    outputs=("y",),
    meaning="the exponentials overflow, since the maximum is not subtracted",
    change=("top = tl.max(tops)", "top = tl.max(tops) * 0.0"),
)
softmax.planted(
    "max_sees_padding",
    oracle="accuracy",
    outputs=("y",),
    meaning="the maximum is taken over the padding's zeros as well",
    change=('mask=columns < n, other=float("-inf"))', "mask=columns < n, other=0.0)"),
)
softmax.planted(
    "sum_sees_padding",
    oracle="accuracy",
    outputs=("y",),
    meaning="the padding's exponentials are added to the sum",
    change=("sums += tl.where(mask, tl.exp(shifted), 0.0)", "sums += tl.exp(shifted)"),
)
softmax.planted(
    "sum_of_last_block",
    oracle="accuracy",
    outputs=("y",),
    meaning="each block's sum replaces the one before it",
    change=("sums += tl.where(mask", "sums = tl.where(mask"),
)
softmax.planted(
    "sum_in_bfloat16",
    oracle="accuracy",
    outputs=("y",),
    meaning="the sum of exponentials is rounded to bfloat16",
    change=("total = tl.sum(sums)", "total = tl.sum(sums).to(tl.bfloat16).to(tl.float32)"),
)
softmax.planted(
    "max_of_first_block",
    oracle="accuracy",
    outputs=("y",),
    meaning="only the first block's maximum is subtracted",
    change=(
        "tops = tl.maximum(tops, value.to(tl.float32))",
        "tops = tl.maximum(tops, tl.where(start > 0, float('-inf'), value.to(tl.float32)))",
    ),
)
softmax.planted(
    "reciprocal_where_strided",
    oracle="layout",
    outputs=("y",),
    meaning="rows whose elements are not neighbours are multiplied by the reciprocal of their sum",
    change=(
        "result = tl.exp(shifted) / total",
        "result = tl.where(x_column == 1, tl.exp(shifted) / total, tl.exp(shifted) * (1.0 / total))",
    ),
)
