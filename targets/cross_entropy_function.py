"""Cross entropy as an autograd function: the forward makes the gradient as well, the backward scales it.

Interesting: what stands before it keeps its output, which the forward must not write over.
"""

import torch
import triton
import triton.language as tl

from fuzz import indices, size, target, tensor

N, V = size("N", 1, 1024), size("V", 1, 8192)
BLOCK = 64
IGNORED = tl.constexpr(-100)


@triton.jit(do_not_specialize=["label_stride", "n"])
def count_kernel(count, labels, label_stride, n, BLOCK: tl.constexpr):
    counts = tl.zeros([BLOCK], dtype=tl.int32)
    for start in range(0, n, BLOCK):
        rows = start + tl.arange(0, BLOCK).to(tl.int64)
        label = tl.load(labels + rows * label_stride, mask=rows < n, other=IGNORED).to(tl.int64)
        counts += tl.where(label != IGNORED, 1, 0)
    tl.store(count, tl.sum(counts))


@triton.jit(do_not_specialize=["row", "column", "label_stride", "grad_row", "grad_column", "v"])
def rows_kernel(
    losses, dlogits, logits, labels, row, column, label_stride, grad_row, grad_column, v, BLOCK: tl.constexpr
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    label = tl.load(labels + program * label_stride).to(tl.int64)
    logits += program * row
    dlogits += program * grad_row
    if label == IGNORED:
        tl.store(losses + program, 0.0)
        for start in range(0, v, BLOCK):
            columns = start + tl.arange(0, BLOCK).to(tl.int64)
            tl.store(dlogits + columns * grad_column, 0.0, mask=columns < v)
        return
    tops = tl.full([BLOCK], float("-inf"), dtype=tl.float32)
    for start in range(0, v, BLOCK):
        columns = start + tl.arange(0, BLOCK).to(tl.int64)
        value = tl.load(logits + columns * column, mask=columns < v, other=float("-inf"))
        tops = tl.maximum(tops, value.to(tl.float32))
    top = tl.max(tops)
    sums = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, v, BLOCK):
        columns = start + tl.arange(0, BLOCK).to(tl.int64)
        shifted = tl.load(logits + columns * column, mask=columns < v, other=float("-inf")).to(tl.float32) - top
        sums += tl.exp(shifted)
    log_sum = tl.log(tl.sum(sums))
    hit = tl.load(logits + label * column).to(tl.float32) - top
    tl.store(losses + program, log_sum - hit)
    for start in range(0, v, BLOCK):
        columns = start + tl.arange(0, BLOCK).to(tl.int64)
        mask = columns < v
        shifted = tl.load(logits + columns * column, mask=mask, other=0.0).to(tl.float32) - top
        part = tl.exp(shifted - log_sum) - tl.where(columns == label, 1.0, 0.0)
        tl.store(dlogits + columns * grad_column, part, mask=mask)


@triton.jit(do_not_specialize=["n"])
def mean_kernel(loss, losses, count, n, BLOCK: tl.constexpr):
    totals = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        rows = start + tl.arange(0, BLOCK)
        totals += tl.load(losses + rows, mask=rows < n, other=0.0)
    tl.store(loss, tl.sum(totals) / tl.load(count))


@triton.jit(do_not_specialize=["row", "column", "n", "v"])
def scaled_kernel(scaled, dlogits, dloss, count, row, column, n, v, BLOCK: tl.constexpr):
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = places < n * v
    part = tl.load(dlogits + places // v * row + places % v * column, mask=mask).to(tl.float32)
    tl.store(scaled + places, part * (tl.load(dloss).to(tl.float32) / tl.maximum(tl.load(count), 1)), mask=mask)


class CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, labels):
        n, v = logits.shape
        losses = torch.empty(n, dtype=torch.float32, device=logits.device)
        loss = torch.empty((), dtype=logits.dtype, device=logits.device)
        count = torch.empty((), dtype=torch.int32, device=logits.device)
        dlogits = torch.empty((n, v), dtype=torch.float32, device=logits.device)
        count_kernel[(1,)](count, labels, labels.stride(0), n, BLOCK=BLOCK)
        rows_kernel[(n,)](
            losses, dlogits, logits, labels, *logits.stride(), labels.stride(0), *dlogits.stride(), v, BLOCK=BLOCK
        )  # fmt: skip
        mean_kernel[(1,)](loss, losses, count, n, BLOCK=BLOCK)
        ctx.save_for_backward(dlogits, count)
        ctx.dtype = logits.dtype
        return loss

    @staticmethod
    def backward(ctx, dloss):
        dlogits, count = ctx.saved_tensors
        n, v = dlogits.shape
        scaled = torch.empty((n, v), dtype=ctx.dtype, device=dlogits.device)
        grid = (triton.cdiv(n * v, BLOCK),)
        scaled_kernel[grid](scaled, dlogits, dloss, count, *dlogits.stride(), n, v, BLOCK=BLOCK)
        return scaled, None


REPORTED = torch.tensor(
    [
        [-0.9247, -0.4253, -2.6438, 0.1452, -0.1209, -0.5797, -0.6229, -0.3284],
        [-1.0745, -0.3631, -1.6711, 2.2655, 0.3117, -0.1842, 1.2866, 1.1820],
        [-0.1271, 1.2169, 1.4353, 1.0605, -0.4941, -1.4244, -0.7244, -1.2973],
        [0.0697, -0.0074, 1.8969, 0.6878, -0.0779, -0.8373, 1.3506, -0.2879],
        [-0.5965, -0.3283, -0.9086, -0.8059, -0.7407, -0.0504, 0.5435, 1.5150],
        [0.0141, 0.4532, 1.6349, 0.7124, -0.1806, 1.0252, -1.4622, -0.7554],
        [-0.1836, 0.3824, 0.3918, -0.0830, 0.8971, -1.1123, 0.1116, 0.4863],
        [-0.5499, -0.3231, -0.5469, 0.9049, 0.2837, 0.1210, 0.4730, -1.0823],
    ]
)
"""What stands before the softmax before the logits, in the report of a gradient written over them (Liger #272)."""


def reference(logits, labels):
    kept = labels != IGNORED.value
    hit = torch.log_softmax(logits, -1).gather(1, torch.where(kept, labels, 0).long().unsqueeze(1)).squeeze(1)
    losses = torch.where(kept, -hit, 0.0)
    return dict(loss=losses.sum() / kept.sum())


@target(
    logits=tensor(N, V),
    labels=indices(N, below=V, sentinel=-100),
    differentiable=dict(loss=tensor()),
    rejects=dict(short_labels=lambda logits, labels: dict(labels=labels[:-1])),
    reference=reference,
    seeds=dict(reported=dict(N=8, V=8, logits=torch.softmax(REPORTED, -1), labels=[4, 6, 7, 2, 2, 6, 5, 5])),
)
def cross_entropy_function(logits, labels):
    if logits.dim() != 2 or labels.shape != logits.shape[:1]:
        raise ValueError(f"shapes do not fit: logits {tuple(logits.shape)}, labels {tuple(labels.shape)}")
    return dict(loss=CrossEntropy.apply(logits, labels))


cross_entropy_function.planted(
    "gradient_over_input",
    oracle="mutation",
    outputs=("logits",),
    meaning="the forward writes the gradient over the logits, which what stands before them may have kept",
    change=(
        ("dlogits = torch.empty((n, v), dtype=torch.float32, device=logits.device)", "dlogits = logits"),
        ("losses, dlogits, logits, labels, row", "losses, dlogits, logits, labels, count, row"),
        ("losses, dlogits, logits, labels, *logits", "losses, dlogits, logits, labels, count, *logits"),
        ("dlogits + columns * grad_column, part, mask", "dlogits + columns * grad_column, part / tl.load(count), mask"),
        (" / tl.maximum(tl.load(count), 1))", ")"),
    ),
)
cross_entropy_function.planted(
    "scales_what_it_saved",
    oracle="autograd",
    outputs=("dlogits",),
    meaning="the backward scales the gradient that it saved in place, so that a second one is scaled twice",
    change=(
        ("return scaled, None", "dlogits.copy_(scaled)\n        return scaled, None"),
        ("ctx.save_for_backward(dlogits, count)", "ctx.kept = dlogits, count"),
        ("dlogits, count = ctx.saved_tensors", "dlogits, count = ctx.kept"),
    ),
)
cross_entropy_function.planted(
    "saves_behind_autograd",
    oracle="autograd",
    outputs=("dlogits",),
    meaning="the backward computes from logits kept as an attribute, and does not see that they were written over",
    change=(
        ("ctx.save_for_backward(dlogits, count)", "ctx.kept = logits, labels, losses, count"),
        (
            "dlogits, count = ctx.saved_tensors\n        n, v = dlogits.shape",
            "logits, labels, losses, count = ctx.kept\n        n, v = logits.shape\n"
            "        dlogits = torch.empty((n, v), dtype=torch.float32, device=logits.device)\n"
            "        strides = *logits.stride(), labels.stride(0), *dlogits.stride()\n"
            "        rows_kernel[(n,)](losses, dlogits, logits, labels, *strides, v, BLOCK=BLOCK)",
        ),
    ),
)
cross_entropy_function.planted(
    "label_lost",
    oracle="accuracy",
    outputs=("dlogits",),
    meaning="the label's own part of the gradient is lost",
    change=("- tl.where(columns == label, 1.0, 0.0)", "- 0.0"),
)
