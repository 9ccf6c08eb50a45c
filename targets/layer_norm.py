"""Layer norm as an autograd function: any normalized shape, with weight and bias, with weight alone, or plain.

Interesting: eps of the size of the variance, mean >> std, no leading dims, gradients with layouts of their own.
"""

import math

import torch
import triton
import triton.language as tl

from fuzz import option, size, target, tensor

M = size("M", 1, 2048)
A, B, C = size("A", 1, 64), size("B", 1, 64), size("C", 1, 4096)
BLOCK = 64
PROGRAMS = 32
"""Rows of partial sums, at most."""


@triton.jit
def part(base, row, row_stride, columns, column_stride, mask):
    """A block of one row in float32."""
    place = row.to(tl.int64) * row_stride + columns.to(tl.int64) * column_stride
    return tl.load(base + place, mask=mask, other=0.0).to(tl.float32)


@triton.jit(do_not_specialize=["row_stride", "column_stride", "n", "eps"])
def forward_kernel(
    y, means, rstds, x, weight, bias, row_stride, column_stride, n, eps,
    WEIGHT: tl.constexpr, BIAS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        total += part(x, row, row_stride, columns, column_stride, columns < n)
    mean = tl.sum(total) / n
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        centred = part(x, row, row_stride, columns, column_stride, columns < n) - mean
        squares += tl.where(columns < n, centred * centred, 0.0)
    variance = tl.sum(squares) / n
    rstd = 1.0 / tl.sqrt(variance + eps)
    tl.store(means + row, mean)
    tl.store(rstds + row, rstd)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        mask = columns < n
        value = (part(x, row, row_stride, columns, column_stride, mask) - mean) * rstd
        if WEIGHT:
            value *= part(weight, row, 0, columns, 1, mask)
        if BIAS:
            value += part(bias, row, 0, columns, 1, mask)
        tl.store(y + row.to(tl.int64) * n + columns, value, mask=mask)


@triton.jit(do_not_specialize=["dy_row", "dy_column", "x_row", "x_column", "m", "n", "rows"])
def backward_kernel(
    dx, partial_weight, partial_bias, dy, x, weight, means, rstds, dy_row, dy_column, x_row, x_column, m, n, rows,
    WEIGHT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    partial_weight += program.to(tl.int64) * n
    partial_bias += program.to(tl.int64) * n
    for row in range(program * rows, tl.minimum(program * rows + rows, m)):
        mean, rstd = tl.load(means + row).to(tl.float32), tl.load(rstds + row).to(tl.float32)
        dots = tl.zeros([BLOCK], dtype=tl.float32)
        sums = tl.zeros([BLOCK], dtype=tl.float32)
        hats = tl.zeros([BLOCK], dtype=tl.float32)
        for start in range(0, n, BLOCK):
            columns = start + tl.arange(0, BLOCK)
            mask = columns < n
            xhat = (part(x, row, x_row, columns, x_column, mask) - mean) * rstd
            grad = part(dy, row, dy_row, columns, dy_column, mask)
            tl.store(partial_weight + columns, tl.load(partial_weight + columns, mask=mask) + grad * xhat, mask=mask)
            tl.store(partial_bias + columns, tl.load(partial_bias + columns, mask=mask) + grad, mask=mask)
            if WEIGHT:
                grad *= part(weight, row, 0, columns, 1, mask)
            dots += tl.where(mask, xhat * (grad * rstd), 0.0)
            sums += tl.where(mask, grad * rstd, 0.0)
            hats += tl.where(mask, xhat, 0.0)
        c1 = tl.sum(dots) / n
        # The mean of xhat is not quite 0, where the mean of x is rounded: without it dx is worse than its formula.
        c2 = tl.sum(sums) / n - tl.sum(hats) / n * c1
        for start in range(0, n, BLOCK):
            columns = start + tl.arange(0, BLOCK)
            mask = columns < n
            xhat = (part(x, row, x_row, columns, x_column, mask) - mean) * rstd
            grad = part(dy, row, dy_row, columns, dy_column, mask)
            if WEIGHT:
                grad *= part(weight, row, 0, columns, 1, mask)
            tl.store(dx + row.to(tl.int64) * n + columns, grad * rstd - xhat * c1 - c2, mask=mask)


class LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, normalized_shape, weight, bias, eps):
        n = math.prod(normalized_shape)
        rows = x.reshape(-1, n)
        m = rows.shape[0]
        flat = [None if value is None else value.contiguous() for value in (weight, bias)]
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        means = torch.empty(m, dtype=torch.float32, device=x.device)
        rstds = torch.empty(m, dtype=torch.float32, device=x.device)
        forward_kernel[(m,)](
            y, means, rstds, rows, *(x if value is None else value for value in flat), *rows.stride(), n, eps,
            WEIGHT=weight is not None, BIAS=bias is not None, BLOCK=BLOCK,
        )  # fmt: skip
        ctx.save_for_backward(rows, flat[0], means, rstds)
        ctx.shape, ctx.normalized_shape = x.shape, normalized_shape
        ctx.dtypes = [None if value is None else value.dtype for value in (weight, bias)]
        return y

    @staticmethod
    def backward(ctx, dy):
        x, weight, means, rstds = ctx.saved_tensors
        m, n = x.shape
        dy = dy.reshape(m, n)
        each = triton.cdiv(m, PROGRAMS)
        programs = triton.cdiv(m, each)
        dx = torch.empty((m, n), dtype=x.dtype, device=x.device)
        partial = torch.zeros((2, programs, n), dtype=torch.float32, device=x.device)
        backward_kernel[(programs,)](
            dx, partial[0], partial[1], dy, x, x if weight is None else weight, means, rstds,
            *dy.stride(), *x.stride(), m, n, each, WEIGHT=weight is not None, BLOCK=BLOCK,
        )  # fmt: skip
        dweight, dbias = (
            None if dtype is None else sums.sum(0).to(dtype).view(ctx.normalized_shape)
            for dtype, sums in zip(ctx.dtypes, partial, strict=True)
        )
        return dx.view(ctx.shape), None, dweight, dbias, None


def layer_norm(x, normalized_shape, weight, bias, eps):
    """Over the last dims of x, which must be those of normalized_shape; weight and bias have its shape or are None."""
    if tuple(x.shape[x.dim() - len(normalized_shape) :]) != tuple(normalized_shape):
        raise ValueError(f"normalized_shape {tuple(normalized_shape)} is not how x ends, of shape {tuple(x.shape)}")
    for value in (weight, bias):
        if value is not None and tuple(value.shape) != tuple(normalized_shape):
            raise ValueError(f"a parameter has shape {tuple(value.shape)}, not {tuple(normalized_shape)}")
    return LayerNorm.apply(x, normalized_shape, weight, bias, eps)


def reference(x, weight, bias, eps, affine, normalized, leading, a, b, c):
    centred = x - x.mean(-1, keepdim=True)
    y = centred / torch.sqrt((centred * centred).mean(-1, keepdim=True) + eps)
    y = y * weight if "weight" in affine else y
    return dict(y=y + bias if "bias" in affine else y)


def split(value, dim, normalized, a, b):
    """A view with the dim of A*B*C elements as the last one, two or three dims that are normalized over."""
    return value.unflatten(dim, {1: (-1,), 2: (a, -1), 3: (a, b, -1)}[normalized])


@target(
    name="layer_norm",
    x=tensor(M, A * B * C),
    weight=tensor(A * B * C),
    bias=tensor(A * B * C),
    eps=option(1e-5, 1e-12, 1e-3, 1e-1),
    affine=option("weight, bias", "weight", "none"),
    normalized=option(1, 2, 3),
    leading=option(1, 2, 0),
    a=A, b=B, c=C,
    differentiable=dict(y=tensor(M, A * B * C)),
    rows=dict(y=M, dx=M),
    rejects=dict(mismatched_normalized_shape=lambda c, **others: dict(c=c + 1)),
    reference=reference,
    seeds=dict(
        reported=dict(A=1, B=1, C=2, normalized=3, affine="none", x=[-1.83965693, -1.82964566]),
        reported_with_large_eps=dict(A=1, B=1, C=2, normalized=3, eps=1e-1, x=[-1.83965693, -1.82964566]),
    ),
)  # fmt: skip
def layer_norm_function(x, weight, bias, eps, affine, normalized, leading, a, b, c):
    m, n = x.shape
    shape = {1: (a * b * c,), 2: (a, b * c), 3: (a, b, c)}[normalized]
    weight, bias = split(weight, 0, normalized, a, b), split(bias, 0, normalized, a, b)
    x = split(x, 1, normalized, a, b)
    if leading == 0 and m == 1:
        x = x.squeeze(0)
    if leading == 2:
        x = x.unflatten(0, (-1, 2) if m % 2 == 0 else (-1, 1))
    y = layer_norm(x, shape, weight if "weight" in affine else None, bias if "bias" in affine else None, eps)
    return dict(y=y.reshape(m, n))


layer_norm_function.planted(
    "swapped_param_grads",
    oracle="accuracy",
    outputs=("dweight", "dbias"),
    meaning="the gradients of weight and bias change places",
    change=(
        "return dx.view(ctx.shape), None, dweight, dbias, None",
        "return dx.view(ctx.shape), None, dbias, dweight, None",
    ),
)
layer_norm_function.planted(
    "one_pass_variance",
    oracle="accuracy",
    outputs=("y", "dx", "dweight"),
    meaning="E[x*x] - mean*mean cancels where the mean is far from 0",
    change=(
        (
            "tl.where(columns < n, centred * centred, 0.0)",
            "tl.where(columns < n, (centred + mean) * (centred + mean), 0.0)",
        ),
        ("variance = tl.sum(squares) / n", "variance = tl.maximum(tl.sum(squares) / n - mean * mean, 0.0)"),
    ),
)
layer_norm_function.planted(
    "eps_outside_sqrt",
    oracle="accuracy",
    outputs=("y", "dx", "dweight"),
    meaning="eps is added to the standard deviation, which shows where it is large",
    change=("1.0 / tl.sqrt(variance + eps)", "1.0 / (tl.sqrt(variance) + eps)"),
)
layer_norm_function.planted(
    "mean_of_last_dim",
    oracle="accuracy",
    outputs=("y", "dx"),
    meaning="the normalized shape's last dim alone is normalized over",
    change=("n = math.prod(normalized_shape)", "n = normalized_shape[-1]"),
)
layer_norm_function.planted(
    "statistics_in_low_precision",
    oracle="accuracy",
    outputs=("dx", "dweight"),
    meaning="the backward gets mean and rstd rounded to the dtype of x",
    change=("flat[0], means, rstds)", "flat[0], means.to(x.dtype), rstds.to(x.dtype))"),
)
layer_norm_function.planted(
    "drops_c1",
    oracle="accuracy",
    outputs=("dx",),
    meaning="the gradient through the variance is lost",
    change=("grad * rstd - xhat * c1 - c2", "grad * rstd - c2"),
)
layer_norm_function.planted(
    "contiguous_gradient_assumed",
    oracle="accuracy",
    outputs=(
        "dx",
        "dweight",
        "dbias",
    ),
    meaning="the cotangent is read as if it were contiguous, which that of a sum is not",
    change=("*dy.stride(), *x.stride(), m", "n, 1, *x.stride(), m"),
)
layer_norm_function.planted(
    "shape_not_checked",
    oracle="rejects",
    outputs=("mismatched_normalized_shape",),
    meaning="only the number of normalized dims is looked at",
    change=(
        (
            "tuple(x.shape[x.dim() - len(normalized_shape) :]) != tuple(normalized_shape)",
            "x.dim() < len(normalized_shape)",
        ),
        (
            "value is not None and tuple(value.shape) != tuple(normalized_shape)",
            "value is not None and value.dim() == 0",
        ),
        ("n = math.prod(normalized_shape)", "n = math.prod(x.shape[x.dim() - len(normalized_shape) :])"),
    ),
)
layer_norm_function.planted(
    "param_grads_only_with_dx",
    oracle="autograd",
    outputs=("dweight", "dbias"),
    meaning="parameters get no gradient where x does not require one, as under a frozen layer before",
    change=(
        "for dtype, sums in zip(ctx.dtypes, partial",
        "for dtype, sums in zip(ctx.dtypes if ctx.needs_input_grad[0] else (None, None), partial",
    ),
)
layer_norm_function.planted(
    "gradient_over_cotangent",
    oracle="mutation",
    outputs=("grad y",),
    meaning="dx is written over a contiguous cotangent, which another term of a sum needs as well",
    change=(
        "dx = torch.empty((m, n), dtype=x.dtype, device=x.device)",
        "dx = dy if dy.is_contiguous() else torch.empty((m, n), dtype=x.dtype, device=x.device)",
    ),
)
