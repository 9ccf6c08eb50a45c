"""Service: the worker's side of a sweep."""

from __future__ import annotations

from collections.abc import Callable

import torch

from fuzz.backends import backend as named_backend
from fuzz.reference.envelope import make_precision
from fuzz.sweep.correct_rounding import CorrectRounding
from fuzz.sweep.counts import SweepCounts
from fuzz.sweep.fork_pool import ForkPool, spare
from fuzz.sweep.gpu_sweep import GpuSweep
from fuzz.sweep.measure import KernelRunner, measured
from fuzz.sweep.plan import SweepPlan
from fuzz.target.loader import load, load_planted
from fuzz.worker.process import LastResponse


def make_handler(plan: SweepPlan) -> Callable[[int], SweepCounts | LastResponse]:
    """The worker's handler, request -> tally: a part of the plan, or a span of large parts on a GPU."""
    bench = benched(plan)
    if plan.large:
        return GpuSweep(bench).spanned
    return lambda part: measured(bench, part)


def benched(plan: SweepPlan) -> KernelRunner:
    """The plan's bench. For a GPU, whose values are too many for one processor to decide the doubtful, with hands."""
    torch.set_num_threads(1)
    target = load(plan.text)
    launcher = load_planted(target, plan.planted)[1] if plan.planted else target.launcher
    arithmetic = make_precision(plan.backend, target.accumulate, target.dot)
    truth = CorrectRounding(target, plan.output, arithmetic, plan.options)
    if plan.large and spare() > 0:
        truth.hands = ForkPool(truth.exact, spare())
    return KernelRunner(plan, target, launcher, named_backend(plan.backend), truth)
