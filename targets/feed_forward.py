"""Feed-forward layer: LayerNorm, Linear, GELU, Linear, LayerNorm, residual. A row's bits do not depend on its batch.

Interesting: one row alone and among many, layer upon layer (`fuzz drift feed_forward`); widths beside a block.
"""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from fuzz import option, size, target, tensor

M, E, H = size("M", 1, 1024), size("E", 1, 1024), size("H", 1, 1024)
EPS = 1e-5
SQRT_HALF = tl.constexpr(0.7071067811865476)


@triton.jit(do_not_specialize=["row", "column", "weight_step", "bias_step", "skip_row", "skip_column", "n"])
def norm_kernel(
    y, x, weight, bias, skip, row, column, weight_step, bias_step, skip_row, skip_column, n, eps,
    SKIP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64)
    sums = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK).to(tl.int64)
        sums += tl.load(x + at * row + columns * column, mask=columns < n, other=0.0).to(tl.float32)
    mean = tl.sum(sums) / n
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK).to(tl.int64)
        apart = tl.load(x + at * row + columns * column, mask=columns < n, other=0.0).to(tl.float32) - mean
        squares += tl.where(columns < n, apart * apart, 0.0)
    deviation = tl.sqrt(tl.sum(squares) / n + eps)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK).to(tl.int64)
        mask = columns < n
        apart = tl.load(x + at * row + columns * column, mask=mask, other=0.0).to(tl.float32) - mean
        scale = tl.load(weight + columns * weight_step, mask=mask, other=0.0).to(tl.float32)
        shift = tl.load(bias + columns * bias_step, mask=mask, other=0.0).to(tl.float32)
        result = apart / deviation * scale + shift
        if SKIP:
            result += tl.load(skip + at * skip_row + columns * skip_column, mask=mask, other=0.0).to(tl.float32)
        tl.store(y + at * n + columns, result.to(y.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["weight_row", "weight_column", "bias_step", "m", "n", "k"])
def linear_kernel(
    y, x, weight, bias, weight_row, weight_column, bias_step, m, n, k, GELU: tl.constexpr, TILE: tl.constexpr,
    INNER: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE).to(tl.int64)[:, None]
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE).to(tl.int64)[None, :]
    total = tl.zeros([TILE, TILE], dtype=tl.float32)
    for start in range(0, k, INNER):
        inner = start + tl.arange(0, INNER).to(tl.int64)
        left = tl.load(x + rows * k + inner[None, :], mask=(rows < m) & (inner[None, :] < k), other=0.0)
        mask = (inner[:, None] < k) & (columns < n)
        right = tl.load(weight + inner[:, None] * weight_row + columns * weight_column, mask=mask, other=0.0)
        total += tl.dot(left, right.to(tl.float32), input_precision="ieee")
    result = total + tl.load(bias + columns * bias_step, mask=columns < n, other=0.0).to(tl.float32)
    if GELU:
        result = result * (0.5 * libdevice.erfc(-result * SQRT_HALF))
    tl.store(y + rows * n + columns, result, mask=(rows < m) & (columns < n))


def normed(x, weight, bias):
    apart = x - x.mean(-1, keepdim=True)
    return apart / torch.sqrt((apart * apart).mean(-1, keepdim=True) + EPS) * weight + bias


def reference(x, weight1, bias1, up, up_bias, down, down_bias, weight2, bias2, residual):
    inner = normed(x, weight1, bias1) @ up + up_bias
    inner = inner * (0.5 * torch.special.erfc(-inner * SQRT_HALF.value))
    y = normed(inner @ down + down_bias, weight2, bias2)
    return dict(y=x + y if residual else y)


@target(
    x=tensor(M, E),
    weight1=tensor(E),
    bias1=tensor(E),
    up=tensor(E, H),
    up_bias=tensor(H),
    down=tensor(H, E),
    down_bias=tensor(E),
    weight2=tensor(E),
    bias2=tensor(E),
    residual=option(True, False),
    batch=M,
    rejects=dict(short_weight=lambda x, weight1, **rest: dict(weight1=weight1[:-1])),
    reference=reference,
)
def feed_forward(x, weight1, bias1, up, up_bias, down, down_bias, weight2, bias2, residual):
    m, e = x.shape
    h = up.shape[1]
    shapes = [tuple(one.shape) for one in (weight1, bias1, up, up_bias, down, down_bias, weight2, bias2)]
    if shapes != [(e,), (e,), (e, h), (h,), (h, e), (e,), (e,), (e,)]:
        raise ValueError(f"weights of shapes {shapes} do not fit x of shape {tuple(x.shape)}")
    first, inner, last = (torch.empty((m, n), dtype=torch.float32, device=x.device) for n in (e, h, e))
    y = torch.empty((m, e), dtype=x.dtype, device=x.device)
    norm_kernel[(m,)](
        first, x, weight1, bias1, x, x.stride(0), x.stride(1), weight1.stride(0), bias1.stride(0), 0, 0, e, EPS,
        SKIP=False, BLOCK=64,
    )  # fmt: skip
    linear_kernel[(triton.cdiv(m, 16), triton.cdiv(h, 16))](
        inner, first, up, up_bias, up.stride(0), up.stride(1), up_bias.stride(0), m, h, e, GELU=True, TILE=16,
        INNER=64,
    )  # fmt: skip
    linear_kernel[(triton.cdiv(m, 16), triton.cdiv(e, 16))](
        last, inner, down, down_bias, down.stride(0), down.stride(1), down_bias.stride(0), m, e, h, GELU=False, TILE=16,
        INNER=64,
    )  # fmt: skip
    norm_kernel[(m,)](
        y, last, weight2, bias2, x, e, 1, weight2.stride(0), bias2.stride(0), x.stride(0), x.stride(1), e, EPS,
        SKIP=residual, BLOCK=64,
    )  # fmt: skip
    return dict(y=y)


feed_forward.planted(
    "few_rows_start_from_bias",
    oracle="invariance",
    outputs=("y",),
    meaning="of up to 8 rows the sum starts from the bias, which is added last otherwise",
    change=(
        (
            "    total = tl.zeros([TILE, TILE], dtype=tl.float32)\n",
            "    shift = tl.load(bias + columns * bias_step, mask=columns < n, other=0.0).to(tl.float32)\n"
            "    total = tl.zeros([TILE, TILE], dtype=tl.float32) + tl.where(m > 8, 0.0, shift)\n",
        ),
        (
            "total + tl.load(bias + columns * bias_step, mask=columns < n, other=0.0).to(tl.float32)",
            "total + tl.where(m > 8, shift, 0.0)",
        ),
    ),
)
feed_forward.planted(
    "residual_of_normed",
    oracle="accuracy",
    outputs=("y",),
    meaning="what is added is the normed input",
    change=("weight2, bias2, x, e, 1, weight2", "weight2, bias2, first, e, 1, weight2"),
)
feed_forward.planted(
    "gelu_by_sigmoid",
    oracle="accuracy",
    outputs=("y",),
    meaning="GELU by sigmoid(1.702 x), where the exact form is promised",
    change=("result * (0.5 * libdevice.erfc(-result * SQRT_HALF))", "result / (1.0 + tl.exp(-1.702 * result))"),
)
