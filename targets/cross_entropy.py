"""Cross entropy, forward: a loss for each row and their mean over labels that are not ignored (-100).

Interesting: all labels ignored, logits far from 0, a vocabulary beside a multiple of the block.
"""

import torch
import triton
import triton.language as tl

from fuzz import indices, option, size, target, tensor

N, V = size("N", 1, 1024), size("V", 1, 8192)
BLOCK = 64
IGNORED = tl.constexpr(-100)


@triton.jit(do_not_specialize=["row_stride", "column_stride", "label_stride", "v", "smoothing"])
def losses_kernel(
    losses, logits, labels, row_stride, column_stride, label_stride, v, smoothing, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(labels + row * label_stride).to(tl.int64)
    if label == IGNORED:
        tl.store(losses + row, 0.0)
        return
    tops = tl.full([BLOCK], float("-inf"), dtype=tl.float32)
    for start in range(0, v, BLOCK):
        columns = start + tl.arange(0, BLOCK).to(tl.int64)
        value = tl.load(logits + row * row_stride + columns * column_stride, mask=columns < v, other=float("-inf"))
        tops = tl.maximum(tops, value.to(tl.float32))
    top = tl.max(tops)
    sums = tl.zeros([BLOCK], dtype=tl.float32)
    shifts = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, v, BLOCK):
        columns = start + tl.arange(0, BLOCK).to(tl.int64)
        mask = columns < v
        shifted = (
            tl.load(logits + row * row_stride + columns * column_stride, mask=mask, other=0.0).to(tl.float32) - top
        )
        sums += tl.where(mask, tl.exp(shifted), 0.0)
        shifts += tl.where(mask, shifted, 0.0)
    log_sum = tl.log(tl.sum(sums))
    hit = tl.load(logits + row * row_stride + label * column_stride).to(tl.float32) - top
    smooth = log_sum - tl.sum(shifts) / v
    tl.store(losses + row, (1.0 - smoothing) * (log_sum - hit) + smoothing * smooth)


@triton.jit(do_not_specialize=["label_stride", "n"])
def mean_kernel(loss, losses, labels, label_stride, n, BLOCK: tl.constexpr):
    totals = tl.zeros([BLOCK], dtype=tl.float32)
    counts = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        rows = start + tl.arange(0, BLOCK).to(tl.int64)
        label = tl.load(labels + rows * label_stride, mask=rows < n, other=IGNORED).to(tl.int64)
        totals += tl.load(losses + rows, mask=rows < n, other=0.0)
        counts += tl.where(label != IGNORED, 1.0, 0.0)
    tl.store(loss, tl.sum(totals) / tl.sum(counts))


def reference(logits, labels, smoothing):
    kept = labels != IGNORED.value
    shifted = logits - logits.amax(-1, keepdim=True)
    log_sum = torch.log(torch.exp(shifted).sum(-1))
    hit = shifted.gather(1, torch.where(kept, labels, 0).long().unsqueeze(1)).squeeze(1)
    losses = (1.0 - smoothing) * (log_sum - hit) + smoothing * (log_sum - shifted.mean(-1))
    losses = torch.where(kept, losses, 0.0)
    return dict(losses=losses, loss=losses.sum() / kept.sum())


@target(
    logits=tensor(N, V),
    labels=indices(N, below=V, sentinel=-100),
    smoothing=option(0.0, 0.1),
    rows=dict(losses=N),
    rejects=dict(short_labels=lambda logits, labels, smoothing: dict(labels=labels[:-1])),
    reference=reference,
)
def cross_entropy(logits, labels, smoothing):
    if logits.dim() != 2 or labels.shape != logits.shape[:1]:
        raise ValueError(f"shapes do not fit: logits {tuple(logits.shape)}, labels {tuple(labels.shape)}")
    n, v = logits.shape
    losses = torch.empty(n, dtype=torch.float32, device=logits.device)
    loss = torch.empty((), dtype=torch.float32, device=logits.device)
    losses_kernel[(n,)](
        losses, logits, labels, logits.stride(0), logits.stride(1), labels.stride(0), v, smoothing, BLOCK=BLOCK
    )  # fmt: skip
    mean_kernel[(1,)](loss, losses, labels, labels.stride(0), n, BLOCK=BLOCK)
    return dict(losses=losses, loss=loss)


cross_entropy.planted(
    "ignored_in_denominator",
    oracle="accuracy",
    outputs=("loss",),
    meaning="the mean divides by all rows, the ignored ones too",
    change=("tl.sum(totals) / tl.sum(counts)", "tl.sum(totals) / n"),
)
cross_entropy.planted(
    "no_max_subtracted",
    oracle="accuracy",
    outputs=("losses", "loss"),
    meaning="the logarithm of the sum overflows, since the maximum is not subtracted",
    change=("top = tl.max(tops)", "top = tl.max(tops) * 0.0"),
)
cross_entropy.planted(
    "max_sees_padding",
    oracle="accuracy",
    outputs=("losses", "loss"),
    meaning="the maximum is taken over the padding's zeros as well",
    change=('mask=columns < v, other=float("-inf"))', "mask=columns < v, other=0.0)"),
)
cross_entropy.planted(
    "smoothing_over_others",
    oracle="accuracy",
    outputs=("losses", "loss"),
    meaning="the smoothing is spread over the V - 1 other classes",
    change=("smooth = log_sum - tl.sum(shifts) / v", "smooth = log_sum - tl.sum(shifts) / (v - 1)"),
)
cross_entropy.planted(
    "smoothing_keeps_whole_hit",
    oracle="accuracy",
    outputs=("losses", "loss"),
    meaning="the label's own part is not reduced by the smoothing",
    change=("losses + row, (1.0 - smoothing) * (log_sum - hit)", "losses + row, (log_sum - hit)"),
)
cross_entropy.planted(
    "sentinel_read",
    oracle="bounds",
    outputs=("logits",),
    meaning="an ignored label is used as an index before it is looked at",
    change=(
        "if label == IGNORED:\n        tl.store(losses + row, 0.0)\n        return",
        "if label == -101:\n        return",
    ),
)
