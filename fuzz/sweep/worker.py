"""The worker's side of a sweep."""

from __future__ import annotations

from collections.abc import Callable

import torch

from fuzz.sweep.fork_pool import ForkPool, spare_processes
from fuzz.sweep.gpu.all_values import GpuSweep
from fuzz.sweep.kernel import SweptKernel
from fuzz.sweep.measure import measure_part
from fuzz.sweep.plan import SweepPlan
from fuzz.sweep.sweep_counts import SweepCounts
from fuzz.worker.channel import LastResponse


def make_handler(plan: SweepPlan) -> Callable[[int], SweepCounts | LastResponse]:
    """The worker's handler, request -> counts: of a part of the plan, or of a span of large parts on a GPU."""
    kernel = load_kernel(plan)
    return GpuSweep(kernel).measure_span if plan.large else lambda part: measure_part(kernel, part)


def load_kernel(plan: SweepPlan) -> SweptKernel:
    """The plan's kernel. A large sweep has too many doubtful values for one processor to decide: they get a pool."""
    torch.set_num_threads(1)
    kernel = SweptKernel.load(plan)
    if plan.large and spare_processes() > 0:
        kernel.rounding.pool = ForkPool(kernel.rounding.exact, spare_processes())
    return kernel
