"""Matrix product with float32 accumulation. Interesting: K beside a multiple of the block, transposed operands."""

import torch
import triton
import triton.language as tl

from fuzz import size, target, tensor

M, N, K = size("M", 1, 1024), size("N", 1, 1024), size("K", 1, 4096)


@triton.jit(do_not_specialize=["a_row", "a_column", "b_row", "b_column", "m", "n", "k"])
def matmul_kernel(
    c, a, b, a_row, a_column, b_row, b_column, m, n, k, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)[:, None]
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)[None, :]
    total = tl.zeros([BLOCK, BLOCK], dtype=tl.float32)
    for start in range(0, k, BLOCK_K):
        inner = start + tl.arange(0, BLOCK_K).to(tl.int64)
        left = tl.load(a + rows * a_row + inner[None, :] * a_column, mask=(rows < m) & (inner[None, :] < k), other=0.0)
        right = tl.load(
            b + inner[:, None] * b_row + columns * b_column, mask=(inner[:, None] < k) & (columns < n), other=0.0
        )
        if left.dtype != right.dtype:
            left, right = left.to(tl.float32), right.to(tl.float32)
        total = tl.dot(left, right, total, input_precision="ieee")
    tl.store(c + rows * n + columns, total.to(c.dtype.element_ty), mask=(rows < m) & (columns < n))


def reference(a, b):
    return dict(c=a @ b)


@target(
    a=tensor(M, K),
    b=tensor(K, N),
    rows=dict(c=M),
    rejects=dict(short_b=lambda a, b: dict(b=b[:-1])),
    reference=reference,
    linear=("a", "b"),
)
def matmul(a, b):
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(f"shapes do not fit: a {tuple(a.shape)}, b {tuple(b.shape)}")
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    grid = (triton.cdiv(m, 16), triton.cdiv(n, 16))
    matmul_kernel[grid](
        c, a, b, a.stride(0), a.stride(1), b.stride(0), b.stride(1), m, n, k, BLOCK=16, BLOCK_K=32
    )  # fmt: skip
    return dict(c=c)


matmul.planted(
    "k_tail_lost",
    oracle="accuracy",
    outputs=("c",),
    meaning="the loop over K leaves out the last block unless it is full",
    change=("for start in range(0, k, BLOCK_K):", "for start in range(0, k // BLOCK_K * BLOCK_K, BLOCK_K):"),
)
matmul.planted(
    "k_off_by_one",
    oracle="accuracy",
    outputs=("c",),
    meaning="the mask stops one short of K",
    change=("mask=(rows < m) & (inner[None, :] < k), other", "mask=(rows < m) & (inner[None, :] < k - 1), other"),
)
matmul.planted(
    "last_k_block_unmasked",
    oracle="bounds",
    outputs=("a", "b"),
    meaning="K is not masked: the last block runs into the next row and past the end",
    change=(
        ("mask=(rows < m) & (inner[None, :] < k), other", "mask=(rows < m) & (inner[None, :] >= 0), other"),
        ("mask=(inner[:, None] < k) & (columns < n), other", "mask=(inner[:, None] >= 0) & (columns < n), other"),
    ),
)
matmul.planted(
    "accumulates_in_bfloat16",
    oracle="accuracy",
    outputs=("c",),
    meaning="the sum is rounded to bfloat16 after each block of K",
    change=('total, input_precision="ieee")', 'total, input_precision="ieee").to(tl.bfloat16).to(tl.float32)'),
)
matmul.planted(
    "operands_in_bfloat16",
    oracle="accuracy",
    outputs=("c",),
    meaning="float32 operands are rounded to bfloat16 before the product",
    change=("total = tl.dot(left, right", "total = tl.dot(left.to(tl.bfloat16), right.to(tl.bfloat16)"),
)
matmul.planted(
    "b_assumed_contiguous",
    oracle="bounds",
    outputs=("b",),
    meaning="b is read as if it were contiguous",
    change=("b.stride(0), b.stride(1), m, n, k", "n, 1, m, n, k"),
)
matmul.planted(
    "last_block_replaces",
    oracle="accuracy",
    outputs=("c",),
    meaning="each block of K replaces the sum of those before it",
    change=("right, total, input_precision", "right, total * 0.0, input_precision"),
)
