"""All 2^32 values or pairs on a GPU: seconds of a sweep with compilation, and of the same one again without.

    python benchmarks/exhaustive_sweeps.py [gelu_bw float32] [gelu_bw bfloat16 pairs] ..

The seconds of each kind of work are from one run more, which waits for the GPU after each; that run takes longer. With
them stands how long the host was busy with each in a run that does not wait, where the GPU works meanwhile: waiting
for it is in `picks`.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from fuzz.sweep import SweepCounts, SweepPlan, make_plan
from fuzz.sweep.gpu.all_values import GpuSweep
from fuzz.sweep.report import format_table
from fuzz.sweep.worker import load_kernel
from fuzz.target.loader import load

SWEEPS = ("gelu_bw float32", "silu float32", "gelu_bw bfloat16 pairs", "geglu bfloat16 pairs", "swiglu bfloat16 pairs")
AGAIN = 4


class Clock:
    """Seconds of each kind of work; with a `wait`, those until it has ended on the GPU too."""

    def __init__(self, wait: Callable[[], None] | None) -> None:
        self.wait, self.spent = wait, Counter[str]()

    @contextmanager
    def __call__(self, work: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        if self.wait:
            self.wait()
        self.spent[work] += time.monotonic() - began  # type: ignore[assignment]

    def told(self) -> str:
        return ", ".join(f"{work} {seconds:.3f}" for work, seconds in self.spent.most_common())


def swept(device: GpuSweep, plan: SweepPlan) -> tuple[float, SweepCounts]:
    """Seconds of a whole sweep, and what it found."""
    device.kernel.rounding.spent = 0.0
    began, total = time.monotonic(), SweepCounts()
    for request in range(plan.requests):
        total.add(device.measure_span(request))
    return time.monotonic() - began, total


def device_of(asked: str) -> GpuSweep:
    name, dtype, *rest = asked.split()
    return GpuSweep(load_kernel(make_plan(load(name), name, dtype=dtype, backend="cuda", pairs="pairs" in rest)))


def timed(asked: str, device: GpuSweep) -> None:
    plan = device.kernel.plan
    first, _ = swept(device, plan)
    seconds = []
    for _ in range(AGAIN):
        took, total = swept(device, plan)
        seconds.append(took)
    print(f"\n{asked}: {first:.1f} s with compilation, then " + ", ".join(f"{one:.3f}" for one in seconds) + " s")
    for wait, heading in ((None, "host busy"), (torch.cuda.synchronize, "one by one")):
        device.timer = clock = Clock(wait)
        took, _ = swept(device, plan)
        print(f"{heading} ({took:.3f} s): {clock.told()}")
    exact = device.kernel.rounding.spent
    pool = device.kernel.rounding.pool.count if device.kernel.rounding.pool else 0
    print(f"arbitrary precision, in decide: {exact:.3f} s by {pool} processes; GPU memory {memory():.1f} GiB")
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
