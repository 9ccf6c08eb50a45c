"""All 2^32 values or pairs on a GPU: seconds of a sweep with compilation, and of the same one again without.

    python benchmarks/exhaustive_sweeps.py [gelu_bw float32] [gelu_bw bfloat16 pairs] ..

Two runs more say where the time goes: Python's profiler, how long the host was busy with each kind of work, where
waiting for the GPU is in `_find_doubtful`; and torch's, how long the GPU took for each of its kernels.
"""

from __future__ import annotations

import cProfile
import pstats
import sys
import time

import torch

from fuzz.sweep.gpu.all_values import GpuSweep
from fuzz.sweep.kernel import SweptKernel
from fuzz.sweep.plan import SweepPlan, make_plan
from fuzz.sweep.report import format_table
from fuzz.sweep.sweep_counts import SweepCounts
from fuzz.target.loader import load

SWEEPS = ("gelu_bw float32", "silu float32", "gelu_bw bfloat16 pairs", "geglu bfloat16 pairs", "swiglu bfloat16 pairs")
AGAIN = 4


def swept(device: GpuSweep, plan: SweepPlan) -> tuple[float, SweepCounts]:
    """Seconds of a whole sweep, and what it found."""
    device.kernel.rounding.seconds_spent = 0.0
    began, total = time.monotonic(), SweepCounts()
    for request in range(plan.requests):
        total.add(device.measure_span(request))
    return time.monotonic() - began, total


def device_of(asked: str) -> GpuSweep:
    name, dtype, *rest = asked.split()
    return GpuSweep(SweptKernel.load(make_plan(load(name), name, dtype=dtype, backend="cuda", pairs="pairs" in rest)))


def timed(asked: str, device: GpuSweep) -> None:
    plan = device.kernel.plan
    first, _ = swept(device, plan)
    seconds = []
    for _ in range(AGAIN):
        took, total = swept(device, plan)
        seconds.append(took)
    print(f"\n{asked}: {first:.1f} s with compilation, then " + ", ".join(f"{one:.3f}" for one in seconds) + " s")
    with cProfile.Profile() as host:
        swept(device, plan)
    pstats.Stats(host).sort_stats("cumulative").print_stats("all_values")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as kernels:
        swept(device, plan)
    print(kernels.key_averages().table(sort_by="self_device_time_total", row_limit=12))
    exact = device.kernel.rounding.spent
    pool = device.kernel.rounding.pool.count if device.kernel.rounding.pool else 0
    print(f"arbitrary precision, in _decide: {exact:.3f} s by {pool} processes; GPU memory {memory():.1f} GiB")
    print(format_table(plan, total), flush=True)
    if device.kernel.rounding.pool:
        device.kernel.rounding.pool.stop()


def memory() -> float:
    """The most that torch held at a time, in GiB."""
    most = torch.cuda.max_memory_allocated() / 2**30
    torch.cuda.reset_peak_memory_stats()
    return most


def main() -> None:
    # All of them before the GPU is touched: they fork.
    devices = {asked: device_of(asked) for asked in sys.argv[1:] or SWEEPS}
    print(torch.cuda.get_device_name(), torch.__version__)
    for asked, device in devices.items():
        timed(asked, device)


if __name__ == "__main__":
    main()
