"""The worker's side of a sweep."""

from __future__ import annotations

from collections.abc import Callable

import torch

from fuzz.sweep.counts import SweepCounts
from fuzz.sweep.fork_pool import ForkPool, spare
from fuzz.sweep.gpu_sweep import GpuSweep
from fuzz.sweep.measure import KernelRunner, measured
from fuzz.sweep.plan import SweepPlan
from fuzz.worker.channel import LastResponse


def make_handler(plan: SweepPlan) -> Callable[[int], SweepCounts | LastResponse]:
    """The worker's handler, request -> counts: of a part of the plan, or of a span of large parts on a GPU."""
    kernel = load_kernel(plan)
    if plan.large:
        return GpuSweep(kernel).spanned
    return lambda part: measured(kernel, part)


def load_kernel(plan: SweepPlan) -> KernelRunner:
    """The plan's kernel. A GPU has too many doubtful values for one processor to decide: they get a pool."""
    torch.set_num_threads(1)
    kernel = KernelRunner.load(plan)
    if plan.large and spare() > 0:
        kernel.rounding.pool = ForkPool(kernel.rounding.exact, spare())
    return kernel
