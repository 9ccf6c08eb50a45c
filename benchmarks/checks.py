"""What each check of the cpu backend costs: times with it over times without, interleaved in one process.

    python benchmarks/checks.py [ROUNDS]

For each kernel and shape, every variant is launched in turn, round after round; a ratio is that of the medians. `off`
is the same kernel compiled without any check; `bounds` is what runs by default; the others are added to `bounds`.
Prints a table in Markdown.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack

import torch
import triton
import triton.language as tl

from fuzz.backends import cpu

VARIANTS: dict[str, tuple[str, ...]] = {
    "off": (),
    "bounds": ("bounds",),
    "unwritten": ("bounds", "unwritten"),
    "conflicts": ("bounds", "conflicts"),
    "races": ("bounds", "races"),
    "overflow": ("bounds", "overflow"),
    "counters": ("bounds", "counters"),
    "fuzzer's": ("bounds", "unwritten", "conflicts", "overflow"),
}


@triton.jit
def softmax(y, x, y_row, x_row, n, B: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, B)
    values = tl.load(x + row * x_row + columns, mask=columns < n, other=-float("inf")).to(tl.float32)
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(y + row * y_row + columns, powers / tl.sum(powers, 0), mask=columns < n)


@triton.jit
def layer_norm_backward(dx, dy, x, w, mean, rstd, stride, n, B: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, B)
    mask = columns < n
    values = tl.load(x + row * stride + columns, mask=mask, other=0).to(tl.float32)
    gradient = tl.load(dy + row * stride + columns, mask=mask, other=0).to(tl.float32)
    weight = tl.load(w + columns, mask=mask, other=0).to(tl.float32)
    scale = tl.load(rstd + row)
    xhat = tl.where(mask, (values - tl.load(mean + row)) * scale, 0.0)
    wdy = tl.where(mask, weight * gradient, 0.0)
    c1 = tl.sum(xhat * wdy, axis=0) / n
    c2 = tl.sum(wdy, axis=0) / n
    tl.store(dx + row * stride + columns, (wdy - (xhat * c1 + c2)) * scale, mask=mask)


@triton.jit
def matmul(
    a, b, c, M, N, K, am, ak, bk, bn, cm, cn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for block in range(tl.cdiv(K, BK)):
        k = block * BK + tl.arange(0, BK)
        mask = (m[:, None] < M) & (k[None, :] < K)
        left = tl.load(a + m[:, None] * am + k[None, :] * ak, mask=mask, other=0.0)
        mask = (k[:, None] < K) & (n[None, :] < N)
        right = tl.load(b + k[:, None] * bk + n[None, :] * bn, mask=mask, other=0.0)
        total = tl.dot(left, right, total, input_precision="ieee")
    tl.store(c + m[:, None] * cm + n[None, :] * cn, total, mask=(m[:, None] < M) & (n[None, :] < N))


def softmax_call(rows: int, columns: int) -> Callable[[], None]:
    x, y = torch.randn(rows, columns), torch.empty(rows, columns)
    block = triton.next_power_of_2(columns)
    return lambda: softmax[(rows,)](y, x, columns, columns, columns, B=block)


def layer_norm_call(rows: int, columns: int) -> Callable[[], None]:
    x, dy, dx = (torch.randn(rows, columns) for _ in range(3))
    weight, mean, rstd = torch.randn(columns), x.mean(1), 1 / x.std(1)
    block = triton.next_power_of_2(columns)
    return lambda: layer_norm_backward[(rows,)](dx, dy, x, weight, mean, rstd, columns, columns, B=block)


def matmul_call(size: int) -> Callable[[], None]:
    a, b, c = (torch.randn(size, size) for _ in range(3))
    grid = (triton.cdiv(size, 16), triton.cdiv(size, 16))
    strides = (*a.stride(), *b.stride(), *c.stride())
    return lambda: matmul[grid](a, b, c, size, size, size, *strides, BM=16, BN=16, BK=16)


CASES = {
    **{f"softmax {m} x {n}": softmax_call(m, n) for m, n in ((1, 64), (8, 64), (64, 64), (8, 1024), (64, 1024))},
    "softmax 64 x 1000": softmax_call(64, 1000),
    **{f"layer norm {m} x {n}": layer_norm_call(m, n) for m, n in ((1, 64), (8, 64), (64, 64), (8, 1024), (64, 1024))},
    "layer norm 64 x 1000": layer_norm_call(64, 1000),
    **{f"matmul {size}": matmul_call(size) for size in (16, 64, 128)},
    "matmul 100": matmul_call(100),
}


def medians(call: Callable[[], None], rounds: int) -> dict[str, float]:
    """Microseconds of one launch under each variant."""
    times: dict[str, list[float]] = {name: [] for name in VARIANTS}
    repeats = 1
    for turn in range(rounds + 1):
        for name, chosen in VARIANTS.items():
            cpu.knobs.instruments = chosen
            call()
            start = time.perf_counter()
            for _ in range(repeats):
                call()
            elapsed = time.perf_counter() - start
            if turn:
                times[name].append(1e6 * elapsed / repeats)
            else:
                repeats = max(repeats, min(200, int(1e-3 / elapsed)))
    return {name: statistics.median(values) for name, values in times.items()}


def main(rounds: int) -> None:
    names = [name for name in VARIANTS if name != "off"]
    print(f"| kernel | off, us | {' | '.join(names)} |")
    print(f"|---|---|{'---|' * len(names)}")
    with ExitStack() as stack:
        stack.enter_context(cpu.active())
        stack.enter_context(cpu.knobs.set(compiler="optimising"))
        for title, call in CASES.items():
            found = medians(call, rounds)
            cells = " | ".join(f"{found[name] / found['off']:.2f}" for name in names)
            print(f"| {title} | {found['off']:.1f} | {cells} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 41)
