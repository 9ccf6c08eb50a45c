"""Batch-invariant matrix product: one block size and one order of the sum over K, whatever the batch is.

Interesting: few rows and many, K beside a multiple of the block; a row alone has the bits that it has among others.
"""

import torch
import triton
import triton.language as tl

from fuzz import size, target, tensor

M, N, K = size("M", 1, 1024), size("N", 1, 1024), size("K", 1, 4096)
ROWS, COLUMNS, INNER = 16, 32, 16


@triton.jit(do_not_specialize=["a_row", "a_column", "b_row", "b_column", "m", "n", "k"])
def invariant_kernel(
    c, a, b, a_row, a_column, b_row, b_column, m, n, k, ROWS: tl.constexpr, COLUMNS: tl.constexpr, INNER: tl.constexpr
):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS).to(tl.int64)[:, None]
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS).to(tl.int64)[None, :]
    total = tl.zeros([ROWS, COLUMNS], dtype=tl.float32)
    for start in range(0, k, INNER):
        inner = start + tl.arange(0, INNER).to(tl.int64)
        left = tl.load(a + rows * a_row + inner[None, :] * a_column, mask=(rows < m) & (inner[None, :] < k), other=0.0)
        right = tl.load(
            b + inner[:, None] * b_row + columns * b_column, mask=(inner[:, None] < k) & (columns < n), other=0.0
        )
        part = tl.dot(left.to(tl.float32), right.to(tl.float32), input_precision="ieee")
        total += part
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
def matmul_invariant(a, b):
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(f"shapes do not fit: a {tuple(a.shape)}, b {tuple(b.shape)}")
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    grid = (triton.cdiv(m, ROWS), triton.cdiv(n, COLUMNS))
    invariant_kernel[grid](
        c, a, b, a.stride(0), a.stride(1), b.stride(0), b.stride(1), m, n, k,
        ROWS=ROWS, COLUMNS=COLUMNS, INNER=INNER,
    )  # fmt: skip
    return dict(c=c)


matmul_invariant.planted(
    "split_by_batch",
    oracle="invariance",
    outputs=("c",),
    meaning="of up to 8 rows the halves of K are summed apart, as split-K does, so that the sum has another order",
    change=(
        (
            "    total = tl.zeros([ROWS, COLUMNS], dtype=tl.float32)\n",
            "    total = tl.zeros([ROWS, COLUMNS], dtype=tl.float32)\n    late = total\n    half = tl.where(m > 8, k, k // 2)\n",
        ),
        (
            "        total += part\n",
            "        total += tl.where(start < half, part, 0.0)\n        late += tl.where(start < half, 0.0, part)\n",
        ),
        ("total.to(c.dtype", "(total + late).to(c.dtype"),
    ),
)
matmul_invariant.planted(
    "one_row_by_another_path",
    oracle="invariance",
    outputs=("c",),
    meaning="a single row goes through torch, as a launcher does that has a path of its own for vectors",
    change=(
        "    grid = (triton",
        "    if m == 1:\n        return dict(c=(a.double() * b.double().T).sum(1)[None].to(a.dtype))\n    grid = (triton",
    ),
)
matmul_invariant.planted(
    "last_block_lost",
    oracle="accuracy",
    outputs=("c",),
    meaning="the loop over K leaves out the last block unless it is full",
    change=("for start in range(0, k, INNER):", "for start in range(0, k // INNER * INNER, INNER):"),
)
