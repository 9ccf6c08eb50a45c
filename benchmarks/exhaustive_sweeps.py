"""All 2^32 values or pairs on a GPU: seconds of a sweep, of the same one again, and where they go.

    python benchmarks/exhaustive_sweeps.py [gelu_bw float32] [gelu_bw bfloat16 pairs] ..

Two runs of some requests more say where the time goes: Python's profiler, how long the host was busy with each kind of
work; and torch's, how long the GPU took for each of its kernels.
"""

from __future__ import annotations

import cProfile
import pstats
import sys
import time

import torch

from fuzz.sweep.kernel import SweptKernel
from fuzz.sweep.measure import measure_part
from fuzz.sweep.plan import make_plan
from fuzz.sweep.report import format_table
from fuzz.sweep.sweep_counts import SweepCounts
from fuzz.target.loader import load

SWEEPS = ("gelu_bw float32", "silu float32", "gelu_bw bfloat16 pairs", "geglu bfloat16 pairs", "swiglu bfloat16 pairs")
PROFILED = 16
"""Requests that are profiled."""


def swept(kernel: SweptKernel, requests: int) -> tuple[float, SweepCounts]:
    """Seconds of so many requests, and what they found."""
    kernel.rounding.seconds_spent = 0.0
    began, total = time.monotonic(), SweepCounts()
    for request in range(requests):
        total.add(measure_part(kernel, request))
    return time.monotonic() - began, total


def kernel_of(asked: str) -> SweptKernel:
    name, dtype, *rest = asked.split()
    return SweptKernel.load(make_plan(load(name), name, dtype=dtype, backend="cuda", pairs="pairs" in rest))


def timed(asked: str, kernel: SweptKernel) -> None:
    plan = kernel.plan
    first, _ = swept(kernel, plan.requests)
    again, total = swept(kernel, plan.requests)
    exact = kernel.rounding.seconds_spent
    print(f"\n{asked}: {first:.2f} s, then {again:.2f} s, {exact:.2f} s of them arbitrary precision")
    with cProfile.Profile() as host:
        swept(kernel, PROFILED)
    pstats.Stats(host).sort_stats("cumulative").print_stats("fuzz/sweep")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as kernels:
        swept(kernel, PROFILED)
    print(kernels.key_averages().table(sort_by="self_device_time_total", row_limit=12))
    print(f"GPU memory {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")
    torch.cuda.reset_peak_memory_stats()
    print(format_table(plan, total), flush=True)
    if kernel.rounding.pool:
        kernel.rounding.pool.shutdown(cancel_futures=True)


def main() -> None:
    # All of them before the GPU is touched: they fork.
    kernels = {asked: kernel_of(asked) for asked in sys.argv[1:] or SWEEPS}
    print(torch.cuda.get_device_name(), torch.__version__)
    for asked, kernel in kernels.items():
        timed(asked, kernel)


if __name__ == "__main__":
    main()
