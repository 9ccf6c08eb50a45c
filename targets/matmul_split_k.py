"""Split-K matrix product: programs share the sum over K, the fewer rows and columns there are the more of them.

So a row's bits depend on the size of its batch: it promises the envelope, and `fuzz drift` measures how far it moves.
Interesting: few rows with a long K, more splits than blocks of K.
"""

import torch
import triton
import triton.language as tl

from fuzz import size, target, tensor

M, N, K = size("M", 1, 1024), size("N", 1, 1024), size("K", 1, 4096)
TILE, INNER, PROGRAMS = 16, 32, 32


@triton.jit(do_not_specialize=["a_row", "a_column", "b_row", "b_column", "m", "n", "k", "blocks"])
def split_kernel(
    parts, a, b, a_row, a_column, b_row, b_column, m, n, k, blocks, TILE: tl.constexpr, INNER: tl.constexpr
):
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE).to(tl.int64)[:, None]
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE).to(tl.int64)[None, :]
    split = tl.program_id(2).to(tl.int64)
    total = tl.zeros([TILE, TILE], dtype=tl.float32)
    for block in range(blocks):
        inner = (split * blocks + block) * INNER + tl.arange(0, INNER).to(tl.int64)
        left = tl.load(a + rows * a_row + inner[None, :] * a_column, mask=(rows < m) & (inner[None, :] < k), other=0.0)
        right = tl.load(
            b + inner[:, None] * b_row + columns * b_column, mask=(inner[:, None] < k) & (columns < n), other=0.0
        )
        total = tl.dot(left.to(tl.float32), right.to(tl.float32), total, input_precision="ieee")
    tl.store(parts + (split * m + rows) * n + columns, total, mask=(rows < m) & (columns < n))


@triton.jit(do_not_specialize=["size", "splits"])
def sum_kernel(c, parts, size, splits, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < size
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for split in range(splits):
        total += tl.load(parts + split.to(tl.int64) * size + offsets, mask=mask, other=0.0)
    tl.store(c + offsets, total.to(c.dtype.element_ty), mask=mask)


def reference(a, b):
    return dict(c=a @ b)


@target(
    a=tensor(M, K),
    b=tensor(K, N),
    rows=dict(c=M),
    invariance="envelope",
    rejects=dict(short_b=lambda a, b: dict(b=b[:-1])),
    reference=reference,
    linear=("a", "b"),
)
def matmul_split_k(a, b):
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(f"shapes do not fit: a {tuple(a.shape)}, b {tuple(b.shape)}")
    (m, k), n = a.shape, b.shape[1]
    tiles = triton.cdiv(m, TILE), triton.cdiv(n, TILE)
    splits = min(triton.cdiv(k, INNER), max(1, PROGRAMS // (tiles[0] * tiles[1])))
    blocks = triton.cdiv(triton.cdiv(k, INNER), splits)
    parts = torch.empty((splits, m, n), dtype=torch.float32, device=a.device)
    split_kernel[(*tiles, splits)](
        parts, a, b, a.stride(0), a.stride(1), b.stride(0), b.stride(1), m, n, k, blocks, TILE=TILE, INNER=INNER
    )  # fmt: skip
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    sum_kernel[(triton.cdiv(m * n, 256),)](c, parts, m * n, splits, BLOCK=256)
    return dict(c=c)


matmul_split_k.planted(
    "tail_of_k_lost",
    oracle="accuracy",
    outputs=("c",),
    meaning="blocks are shared out rounding down, so that the last ones of K are nobody's",
    change=("triton.cdiv(triton.cdiv(k, INNER), splits)", "triton.cdiv(k, INNER) // splits"),
)
matmul_split_k.planted(
    "parts_in_input_dtype",
    oracle="accuracy",
    outputs=("c",),
    meaning="partial sums are kept in the dtype of the operands",
    change=("torch.empty((splits, m, n), dtype=torch.float32,", "torch.empty((splits, m, n), dtype=a.dtype,"),
)
matmul_split_k.planted(
    "last_part_lost",
    oracle="accuracy",
    outputs=("c",),
    meaning="the sum over the splits stops one short where there are several",
    change=("for split in range(splits):", "for split in range(splits - (splits > 1)):"),
)
