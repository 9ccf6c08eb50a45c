"""The kernels that Triton's tutorials teach (triton-lang/triton, python/tutorials), written anew by their titles."""

import torch
import triton
import triton.language as tl

from fuzz import option, size, target, tensor

M, N, K = size("M", 1, 512), size("N", 1, 2048), size("K", 1, 512)
H, D = size("H", 1, 4), size("D", 1, 64)
BLOCK = 256


@triton.jit
def add_kernel(out, a, b, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < n
    tl.store(out + places, tl.load(a + places, mask=inside) + tl.load(b + places, mask=inside), mask=inside)


@target(a=tensor(N), b=tensor(N), accumulate="inputs", layout="envelope", reference=lambda a, b: dict(out=a + b))
def tutorial_add(a, b):
    """01: the sum of two vectors."""
    if a.dtype != b.dtype:
        raise TypeError("a and b need one dtype")
    a, b = a.contiguous(), b.contiguous()
    out = torch.empty_like(a)
    add_kernel[(triton.cdiv(len(a), BLOCK),)](out, a, b, len(a), BLOCK=BLOCK)
    return dict(out=out)


@triton.jit
def softmax_kernel(out, x, stride, rows, n, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0)):
        value = tl.load(x + row * stride + columns, mask=columns < n, other=-float("inf")).to(tl.float32)
        grown = tl.exp(value - tl.max(value, axis=0))
        share = grown / tl.sum(grown, axis=0)
        tl.store(out + row * n + columns, share.to(out.dtype.element_ty), mask=columns < n)


def softmax_reference(x):
    grown = torch.exp(x - x.amax(-1, keepdim=True))
    return dict(y=grown / grown.sum(-1, keepdim=True))


@target(x=tensor(M, N), layout="envelope", batch=M, reference=softmax_reference)
def tutorial_softmax(x):
    """02: softmax of rows that fit into a block, by programs that each take several rows."""
    x = x.contiguous()
    rows, n = x.shape
    out = torch.empty_like(x)
    softmax_kernel[(min(rows, 8),)](out, x, x.stride(0), rows, n, BLOCK=triton.next_power_of_2(n))
    return dict(y=out)


@triton.jit
def matmul_kernel(
    c, a, b, m, n, k, a_row, a_column, b_row, b_column, LEAKY: tl.constexpr, TILE: tl.constexpr, GROUP: tl.constexpr
):
    program, tall, wide = tl.program_id(0), tl.cdiv(m, TILE), tl.cdiv(n, TILE)
    group = program // (GROUP * wide)
    height = tl.minimum(tall - group * GROUP, GROUP)
    tile_row = group * GROUP + (program % (GROUP * wide)) % height
    tile_column = (program % (GROUP * wide)) // height
    rows = (tile_row * TILE + tl.arange(0, TILE)).to(tl.int64)
    columns = (tile_column * TILE + tl.arange(0, TILE)).to(tl.int64)
    total = tl.zeros((TILE, TILE), dtype=tl.float32)
    for start in range(0, k, TILE):
        inner = (start + tl.arange(0, TILE)).to(tl.int64)
        left = tl.load(
            a + rows[:, None] * a_row + inner[None, :] * a_column,
            mask=(rows[:, None] < m) & (inner[None, :] < k), other=0.0,
        )  # fmt: skip
        right = tl.load(
            b + inner[:, None] * b_row + columns[None, :] * b_column,
            mask=(inner[:, None] < k) & (columns[None, :] < n), other=0.0,
        )  # fmt: skip
        total = tl.dot(left, right, total, input_precision="ieee")
    if LEAKY:
        total = tl.where(total >= 0, total, 0.01 * total)
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(c.dtype.element_ty), mask=inside)


def matmul_reference(a, b, leaky):
    c = a @ b
    return dict(c=torch.where(c >= 0, c, 0.01 * c) if leaky else c)


@target(a=tensor(M, K), b=tensor(K, N), leaky=option(False, True), layout="envelope", reference=matmul_reference)
def tutorial_matmul(a, b, leaky):
    """03: a matrix product whose programs are grouped by rows of tiles, with a leaky ReLU."""
    if a.dtype != b.dtype:
        raise TypeError("a and b need one dtype")
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    grid = (triton.cdiv(m, 32) * triton.cdiv(n, 32),)
    matmul_kernel[grid](c, a, b, m, n, k, *a.stride(), *b.stride(), LEAKY=leaky, TILE=32, GROUP=4)
    return dict(c=c)


@triton.jit
def layer_norm_kernel(out, x, weight, bias, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        total += tl.load(x + row * n + columns, mask=columns < n, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / n
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        value = tl.load(x + row * n + columns, mask=columns < n, other=0.0).to(tl.float32)
        apart = tl.where(columns < n, value - mean, 0.0)
        total += apart * apart
    rstd = 1 / tl.sqrt(tl.sum(total, axis=0) / n + eps)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < n
        value = tl.load(x + row * n + columns, mask=inside, other=0.0).to(tl.float32)
        scale = tl.load(weight + columns, mask=inside).to(tl.float32)
        shift = tl.load(bias + columns, mask=inside).to(tl.float32)
        tl.store(out + row * n + columns, ((value - mean) * rstd * scale + shift).to(out.dtype.element_ty), mask=inside)


def layer_norm_reference(x, weight, bias, eps):
    apart = x - x.mean(-1, keepdim=True)
    return dict(y=apart / torch.sqrt((apart * apart).mean(-1, keepdim=True) + eps) * weight + bias)


@target(
    x=tensor(M, N), weight=tensor(N), bias=tensor(N), eps=option(1e-5, 1e-1), layout="envelope", batch=M,
    reference=layer_norm_reference,
)  # fmt: skip
def tutorial_layer_norm(x, weight, bias, eps):
    """05: layer norm, block by block in three passes."""
    x, weight, bias = x.contiguous(), weight.contiguous(), bias.contiguous()
    out = torch.empty_like(x)
    layer_norm_kernel[(x.shape[0],)](out, x, weight, bias, x.shape[1], eps, BLOCK=BLOCK)
    return dict(y=out)


@triton.jit
def attention_kernel(out, q, k, v, n, d, scale, CAUSAL: tl.constexpr, TILE: tl.constexpr, D: tl.constexpr):
    head, inner = tl.program_id(1).to(tl.int64) * n * d, tl.arange(0, D)
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    places = head + rows[:, None] * d + inner[None, :]
    inside = (rows[:, None] < n) & (inner[None, :] < d)
    query = tl.load(q + places, mask=inside, other=0.0)
    top = tl.full([TILE], -float("inf"), dtype=tl.float32)
    total = tl.zeros([TILE], dtype=tl.float32)
    values = tl.zeros([TILE, D], dtype=tl.float32)
    for start in range(0, n, TILE):
        columns = start + tl.arange(0, TILE)
        others = head + columns[:, None] * d + inner[None, :]
        known = (columns[:, None] < n) & (inner[None, :] < d)
        key = tl.load(k + others, mask=known, other=0.0)
        scores = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
        seen = columns[None, :] < n
        if CAUSAL:
            seen = seen & (columns[None, :] <= rows[:, None])
        scores = tl.where(seen, scores, -float("inf"))
        higher = tl.maximum(top, tl.max(scores, axis=1))
        shrink = tl.exp(top - higher)
        grown = tl.exp(scores - higher[:, None])
        value = tl.load(v + others, mask=known, other=0.0)
        total = total * shrink + tl.sum(grown, axis=1)
        values = values * shrink[:, None] + tl.dot(grown.to(value.dtype), value, input_precision="ieee")
        top = higher
    tl.store(out + places, (values / total[:, None]).to(out.dtype.element_ty), mask=inside)


def attention_reference(q, k, v, causal):
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    grown = torch.exp(scores - scores.amax(-1, keepdim=True))
    return dict(y=grown / grown.sum(-1, keepdim=True) @ v)


@target(
    q=tensor(H, K, D), k=tensor(H, K, D), v=tensor(H, K, D), causal=option(False, True), accumulate="inputs",
    layout="envelope", reference=attention_reference,
)  # fmt: skip
def tutorial_attention(q, k, v, causal):
    """06: attention by an online softmax; shares are rounded to the values' dtype."""
    if not q.dtype == k.dtype == v.dtype:
        raise TypeError("q, k and v need one dtype")
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    heads, n, d = q.shape
    out = torch.empty_like(q)
    grid, padded = (triton.cdiv(n, 16), heads), max(16, triton.next_power_of_2(d))
    attention_kernel[grid](out, q, k, v, n, d, d**-0.5, CAUSAL=causal, TILE=16, D=padded)
    return dict(y=out)
