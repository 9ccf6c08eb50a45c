"""Layer-norm backward: dx, dweight, dbias. Interesting: widths beside a power of two, mean >> std, few rows.

Two kernels, as real ones have: the first walks some rows a program and adds their share of dweight and dbias to a row
of partial sums of its own; the second adds up the partial sums.
"""

import torch
import triton
import triton.language as tl

from fuzz import option, size, target, tensor

M, N = size("M", 1, 4096), size("N", 1, 8192)
PROGRAMS = 64
"""Rows of partial sums, at most."""


@triton.jit
def columns_of(base, row, stride_row, columns, stride_column, mask):
    """A block of one row in float32; offsets in int64, since row * stride passes 2**31."""
    offsets = row.to(tl.int64) * stride_row + columns.to(tl.int64) * stride_column
    return tl.load(base + offsets, mask=mask, other=0.0).to(tl.float32)


@triton.jit(
    do_not_specialize=[
        "dy_row", "dy_column", "x_row", "x_column", "weight_column", "m", "n", "rows", "eps"
    ]
)  # fmt: skip
def rows_kernel(
    dx, partial_weight, partial_bias, dy, x, weight,
    dy_row, dy_column, x_row, x_column, weight_column, m, n, rows, eps, BLOCK: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    for row in range(program * rows, tl.minimum(program * rows + rows, m)):
        total = tl.zeros([BLOCK], dtype=tl.float32)
        for start in range(0, n, BLOCK):
            columns = start + tl.arange(0, BLOCK)
            total += columns_of(x, row, x_row, columns, x_column, columns < n)
        mean = tl.sum(total) / n
        squares = tl.zeros([BLOCK], dtype=tl.float32)
        for start in range(0, n, BLOCK):
            columns = start + tl.arange(0, BLOCK)
            centred = columns_of(x, row, x_row, columns, x_column, columns < n) - mean
            squares += tl.where(columns < n, centred * centred, 0.0)
        rstd = 1.0 / tl.sqrt(tl.sum(squares) / n + eps)
        dots = tl.zeros([BLOCK], dtype=tl.float32)
        sums = tl.zeros([BLOCK], dtype=tl.float32)
        for start in range(0, n, BLOCK):
            columns = start + tl.arange(0, BLOCK)
            mask = columns < n
            xhat = (columns_of(x, row, x_row, columns, x_column, mask) - mean) * rstd
            wdy = columns_of(dy, row, dy_row, columns, dy_column, mask) * columns_of(
                weight, row, 0, columns, weight_column, mask
            )
            dots += tl.where(mask, xhat * wdy, 0.0)
            sums += tl.where(mask, wdy, 0.0)
        c1 = tl.sum(dots) / n
        c2 = tl.sum(sums) / n
        for start in range(0, n, BLOCK):
            columns = start + tl.arange(0, BLOCK)
            mask = columns < n
            xhat = (columns_of(x, row, x_row, columns, x_column, mask) - mean) * rstd
            grad = columns_of(dy, row, dy_row, columns, dy_column, mask)
            wdy = grad * columns_of(weight, row, 0, columns, weight_column, mask)
            result = rstd * (wdy - xhat * c1 - c2)
            tl.store(dx + row.to(tl.int64) * n + columns, result.to(dx.dtype.element_ty), mask=mask)
            place = program.to(tl.int64) * n + columns
            dweight = tl.load(partial_weight + place, mask=mask, other=0.0)
            tl.store(partial_weight + place, dweight + grad * xhat, mask=mask)
            dbias = tl.load(partial_bias + place, mask=mask, other=0.0)
            tl.store(partial_bias + place, dbias + grad, mask=mask)


@triton.jit(do_not_specialize=["n", "programs"])
def partials_kernel(dweight, dbias, partial_weight, partial_bias, n, programs, BLOCK: tl.constexpr):
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < n
    weight_sum = tl.zeros([BLOCK], dtype=tl.float32)
    bias_sum = tl.zeros([BLOCK], dtype=tl.float32)
    for program in range(programs):
        place = program.to(tl.int64) * n + columns
        weight_sum += tl.load(partial_weight + place, mask=mask, other=0.0)
        bias_sum += tl.load(partial_bias + place, mask=mask, other=0.0)
    tl.store(dweight + columns, weight_sum.to(dweight.dtype.element_ty), mask=mask)
    tl.store(dbias + columns, bias_sum.to(dbias.dtype.element_ty), mask=mask)


def reference(dy, x, weight, eps):
    centred = x - x.mean(-1, keepdim=True)
    rstd = 1.0 / torch.sqrt((centred * centred).mean(-1, keepdim=True) + eps)
    xhat = centred * rstd
    wdy = weight * dy
    c1 = (xhat * wdy).mean(-1, keepdim=True)
    c2 = wdy.mean(-1, keepdim=True)
    return dict(dx=rstd * (wdy - xhat * c1 - c2), dweight=(dy * xhat).sum(0), dbias=dy.sum(0))


@target(
    dy=tensor(M, N),
    x=tensor(M, N),
    weight=tensor(N),
    eps=option(1e-5, 1e-6, 1e-12),
    dtypes=("float32", "bfloat16", "float16"),
    batch=M,
    rejects=dict(short_weight=lambda dy, x, weight, eps: dict(weight=weight[:-1])),
    reference=reference,
    linear=("dy",),
)
def layernorm_bw(dy, x, weight, eps):
    if dy.shape != x.shape or x.dim() != 2 or weight.shape != x.shape[1:]:
        raise ValueError(f"shapes do not fit: dy {tuple(dy.shape)}, x {tuple(x.shape)}, weight {tuple(weight.shape)}")
    m, n = x.shape
    block = 64 if n <= 64 else 512
    rows = triton.cdiv(m, PROGRAMS)
    programs = triton.cdiv(m, rows)
    dx = torch.empty((m, n), dtype=x.dtype, device=x.device)
    dweight = torch.empty(n, dtype=weight.dtype, device=x.device)
    dbias = torch.empty(n, dtype=weight.dtype, device=x.device)
    partial = torch.zeros((2, programs, n), dtype=torch.float32, device=x.device)
    rows_kernel[(programs,)](
        dx, partial[0], partial[1], dy, x, weight,
        dy.stride(0), dy.stride(1), x.stride(0), x.stride(1), weight.stride(0), m, n, rows, eps, BLOCK=block,
    )  # fmt: skip
    grid = (triton.cdiv(n, block),)
    partials_kernel[grid](dweight, dbias, partial[0], partial[1], n, programs, BLOCK=block)
    return dict(dx=dx, dweight=dweight, dbias=dbias)


def swapped(result):
    return dict(dx=result["dx"], dweight=result["dbias"], dbias=result["dweight"])


@layernorm_bw.planted("swapped_param_grads", oracle="accuracy", outputs=("dweight", "dbias"))
def swapped_param_grads(dy, x, weight, eps):
    """dweight and dbias change places."""
    return swapped(layernorm_bw(dy, x, weight, eps))


layernorm_bw.planted(
    "one_pass_variance",
    oracle="accuracy",
    outputs=("dx", "dweight"),
    meaning="E[x*x] - mean*mean cancels where the mean is far from 0",
    change=(
        (
            "squares += tl.where(columns < n, centred * centred, 0.0)",
            "squares += tl.where(columns < n, (centred + mean) * (centred + mean), 0.0)",
        ),
        ("tl.sum(squares) / n + eps", "tl.maximum(tl.sum(squares) / n - mean * mean, 0.0) + eps"),
    ),
)
layernorm_bw.planted(
    "mean_divides_by_block",
    oracle="accuracy",
    outputs=("dx", "dweight"),
    meaning="the mean is divided by the next power of two instead of the width",
    change=(
        ("tl.sum(total) / n", "tl.sum(total) / padded"),
        ("rows, eps, BLOCK: tl", "rows, eps, padded, BLOCK: tl"),
        ("rows, eps, BLOCK=block", "rows, eps, triton.next_power_of_2(n), BLOCK=block"),
    ),
)
layernorm_bw.planted(
    "bessel",
    oracle="accuracy",
    outputs=("dx", "dweight"),
    meaning="the variance is divided by N - 1",
    change=("tl.sum(squares) / n + eps", "tl.sum(squares) / (n - 1) + eps"),
)
layernorm_bw.planted(
    "drops_c1",
    oracle="accuracy",
    outputs=("dx",),
    meaning="the term xhat * mean(xhat * wdy) is missing from dx",
    change=("result = rstd * (wdy - xhat * c1 - c2)", "result = rstd * (wdy - c2)"),
)
layernorm_bw.planted(
    "sign_of_c2",
    oracle="accuracy",
    outputs=("dx",),
    meaning="mean(wdy) is added instead of subtracted",
    change=("result = rstd * (wdy - xhat * c1 - c2)", "result = rstd * (wdy - xhat * c1 + c2)"),
)
layernorm_bw.planted(
    "forgets_weight",
    oracle="accuracy",
    outputs=("dx",),
    meaning="the last pass takes dy for weight * dy",
    change=("wdy = grad * columns_of(weight, row, 0, columns, weight_column, mask)", "wdy = grad"),
)
layernorm_bw.planted(
    "tail_unmasked",
    oracle="bounds",
    outputs=("x",),
    meaning="the first pass reads whole blocks, past the end of the row",
    change=(
        "total += columns_of(x, row, x_row, columns, x_column, columns < n)",
        "total += columns_of(x, row, x_row, columns, x_column, columns < start + BLOCK)",
    ),
)
layernorm_bw.planted(
    "last_row_lost",
    oracle="accuracy",
    outputs=("dweight", "dbias"),
    meaning="the reduction over partial sums stops one row early",
    change=("for program in range(programs):", "for program in range(programs - 1):"),
)
layernorm_bw.planted(
    "partial_uninitialised",
    oracle="bounds",
    outputs=("dweight", "dbias"),
    meaning="the partial sums start from whatever the memory held",
    change=("torch.zeros((2, programs, n)", "torch.empty((2, programs, n)"),
)
layernorm_bw.planted(
    "low_precision_accumulate",
    oracle="accuracy",
    outputs=("dweight", "dbias"),
    meaning="the partial sums are kept in bfloat16",
    change=(
        (
            "partial = torch.zeros((2, programs, n), dtype=torch.float32",
            "partial = torch.zeros((2, programs, n), dtype=torch.bfloat16",
        ),
        ("dweight + grad * xhat, mask=mask", "(dweight + grad * xhat).to(tl.bfloat16), mask=mask"),
        ("dbias + grad, mask=mask", "(dbias + grad).to(tl.bfloat16), mask=mask"),
    ),
)
layernorm_bw.planted(
    "assumes_contiguous_dy",
    oracle="bounds",
    outputs=("dy",),
    meaning="dy is read as if it were contiguous, whatever its strides",
    change=("dy.stride(0), dy.stride(1), x.stride(0)", "n, 1, x.stride(0)"),
)
layernorm_bw.planted(
    "writes_dx_into_dy",
    oracle="mutation",
    outputs=("dy",),
    meaning="dx is written over dy",
    change=(
        (
            "dx = torch.empty((m, n), dtype=x.dtype, device=x.device)",
            "dx = dy if dy.is_contiguous() else torch.empty((m, n), dtype=x.dtype, device=x.device)",
        ),
    ),
)
layernorm_bw.planted(
    "block_chosen_by_batch",
    oracle="invariance",
    outputs=("dx",),
    meaning="the column loop's block depends on the number of rows, and with it the order of every sum",
    change=("block = 64 if n <= 64 else 512", "block = 64 if m < 8 else 16"),
)
layernorm_bw.planted(
    "first_n_baked_in",
    oracle="bounds",
    outputs=("dx",),
    meaning="the first width seen stays in use",
    change=(
        ("PROGRAMS = 64", "PROGRAMS = 64\nFIRST = {}"),
        (
            "x.stride(0), x.stride(1), weight.stride(0), m, n, rows",
            "x.stride(0), x.stride(1), weight.stride(0), m, FIRST.setdefault('n', n), rows",
        ),
    ),
)
layernorm_bw.planted(
    "store_past_end",
    oracle="bounds",
    outputs=("dbias",),
    meaning="the bias gradient's last block is stored whole",
    change=(
        "bias_sum.to(dbias.dtype.element_ty), mask=mask)",
        "bias_sum.to(dbias.dtype.element_ty), mask=columns <= n)",
    ),
)
layernorm_bw.planted(
    "int32_offset",
    oracle="bounds",
    outputs=("dy", "x"),
    meaning="row * stride is computed in int32 and overflows past 2**31",
    change=("row.to(tl.int64) * stride_row + columns", "row * stride_row + columns"),
)
layernorm_bw.planted(
    "atomic_order",
    oracle="deterministic",
    outputs=("dweight", "dbias"),
    meaning="programs add their share with float atomics, in any order",
    change=(
        ("programs = triton.cdiv(m, rows)", "programs = triton.cdiv(m, rows)\n    shared = 1"),
        ("torch.zeros((2, programs, n)", "torch.zeros((2, shared, n)"),
        (
            "place = program.to(tl.int64) * n + columns\n            dweight = tl.load(partial_weight + place, mask=mask, other=0.0)",
            "place = columns",
        ),
        (
            "tl.store(partial_weight + place, dweight + grad * xhat, mask=mask)",
            "tl.atomic_add(partial_weight + place, grad * xhat, mask=mask)",
        ),
        (
            "dbias = tl.load(partial_bias + place, mask=mask, other=0.0)\n            tl.store(partial_bias + place, dbias + grad, mask=mask)",
            "tl.atomic_add(partial_bias + place, grad, mask=mask)",
        ),
        ("n, programs, BLOCK=block)", "n, shared, BLOCK=block)"),
    ),
)
