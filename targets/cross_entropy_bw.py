"""Cross entropy, backward of the mean: dlogits = dloss / count * (softmax - (1 - s) * onehot - s / V), 0 where ignored.

Interesting: labels in later blocks of the vocabulary, ignored labels, logits far from 0.
"""

import torch
import triton
import triton.language as tl

from fuzz import indices, option, size, target, tensor

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


@triton.jit(do_not_specialize=["row_stride", "column_stride", "label_stride", "v", "smoothing"])
def dlogits_kernel(
    dlogits, dloss, count, logits, labels, row_stride, column_stride, label_stride, v, smoothing, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(labels + row * label_stride).to(tl.int64)
    if label == IGNORED:
        for start in range(0, v, BLOCK):
            columns = start + tl.arange(0, BLOCK).to(tl.int64)
            tl.store(dlogits + row * v + columns, tl.zeros([BLOCK], dtype=dlogits.dtype.element_ty), mask=columns < v)
        return
    tops = tl.full([BLOCK], float("-inf"), dtype=tl.float32)
    for start in range(0, v, BLOCK):
        columns = start + tl.arange(0, BLOCK).to(tl.int64)
        value = tl.load(logits + row * row_stride + columns * column_stride, mask=columns < v, other=float("-inf"))
        tops = tl.maximum(tops, value.to(tl.float32))
    top = tl.max(tops)
    sums = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, v, BLOCK):
        columns = start + tl.arange(0, BLOCK).to(tl.int64)
        mask = columns < v
        shifted = (
            tl.load(logits + row * row_stride + columns * column_stride, mask=mask, other=0.0).to(tl.float32) - top
        )
        sums += tl.where(mask, tl.exp(shifted), 0.0)
    total = tl.sum(sums)
    scale = tl.load(dloss).to(tl.float32) / tl.load(count)
    for start in range(0, v, BLOCK):
        columns = start + tl.arange(0, BLOCK).to(tl.int64)
        mask = columns < v
        shifted = (
            tl.load(logits + row * row_stride + columns * column_stride, mask=mask, other=0.0).to(tl.float32) - top
        )
        due = tl.where(columns == label, 1.0 - smoothing, 0.0) + smoothing / v
        result = (tl.exp(shifted) / total - due) * scale
        tl.store(dlogits + row * v + columns, result.to(dlogits.dtype.element_ty), mask=mask)


def reference(dloss, logits, labels, smoothing):
    kept = labels != IGNORED.value
    grown = torch.exp(logits - logits.amax(-1, keepdim=True))
    onehot = torch.arange(logits.shape[1], device=logits.device) == labels.unsqueeze(1)
    due = torch.where(onehot, 1.0 - smoothing, 0.0) + smoothing / logits.shape[1]
    result = (grown / grown.sum(-1, keepdim=True) - due) * (dloss / kept.sum())
    return dict(dlogits=torch.where(kept.unsqueeze(1), result, 0.0))


@target(
    dloss=tensor(1),
    logits=tensor(N, V),
    labels=indices(N, below=V, sentinel=-100),
    smoothing=option(0.0, 0.1),
    rejects=dict(short_labels=lambda dloss, logits, labels, smoothing: dict(labels=labels[:-1])),
    reference=reference,
    linear=("dloss",),
)
def cross_entropy_bw(dloss, logits, labels, smoothing):
    if logits.dim() != 2 or labels.shape != logits.shape[:1] or dloss.numel() != 1:
        raise ValueError(f"shapes do not fit: logits {tuple(logits.shape)}, labels {tuple(labels.shape)}")
    n, v = logits.shape
    count = torch.empty((), dtype=torch.int32, device=logits.device)
    dlogits = torch.empty((n, v), dtype=logits.dtype, device=logits.device)
    count_kernel[(1,)](count, labels, labels.stride(0), n, BLOCK=BLOCK)
    dlogits_kernel[(n,)](
        dlogits, dloss, count, logits, labels,
        logits.stride(0), logits.stride(1), labels.stride(0), v, smoothing, BLOCK=BLOCK,
    )  # fmt: skip
    return dict(dlogits=dlogits)


cross_entropy_bw.planted(
    "upstream_gradient_lost",
    oracle="accuracy",
    outputs=("dlogits",),
    meaning="the gradient is not multiplied by the upstream gradient",
    change=("scale = tl.load(dloss).to(tl.float32) / tl.load(count)", "scale = 1.0 / tl.load(count)"),
)
cross_entropy_bw.planted(
    "ignored_in_denominator",
    oracle="accuracy",
    outputs=("dlogits",),
    meaning="the gradient is divided by all rows, the ignored ones too",
    change=("counts += tl.where(label != IGNORED, 1, 0)", "counts += tl.where(rows < n, 1, 0)"),
)
cross_entropy_bw.planted(
    "ignored_rows_unwritten",
    oracle="bounds",
    outputs=("dlogits",),
    meaning="rows of ignored labels are left as the memory was",
    change=("mask=columns < v)\n        return", "mask=columns < 0)\n        return"),
)
cross_entropy_bw.planted(
    "label_within_block",
    oracle="accuracy",
    outputs=("dlogits",),
    meaning="the label is compared with the place in the block, not with the column",
    change=("tl.where(columns == label, 1.0", "tl.where(columns - start == label, 1.0"),
)
cross_entropy_bw.planted(
    "smoothing_lost",
    oracle="accuracy",
    outputs=("dlogits",),
    meaning="the gradient is that of the loss without smoothing",
    change=("1.0 - smoothing, 0.0) + smoothing / v", "1.0, 0.0)"),
)
cross_entropy_bw.planted(
    "total_of_last_block",
    oracle="accuracy",
    outputs=("dlogits",),
    meaning="each block's sum of exponentials replaces the one before it",
    change=("sums += tl.where(mask", "sums = tl.where(mask"),
)
