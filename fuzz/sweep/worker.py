"""Service: the worker's side of a sweep."""

from __future__ import annotations

from collections.abc import Callable

import torch

from fuzz.backends import backend as named_backend
from fuzz.reference.envelope import precision
from fuzz.sweep.counts import Tally
from fuzz.sweep.exact_values import Truth
from fuzz.sweep.fork_pool import Hands, spare
from fuzz.sweep.measure import Bench, measured
from fuzz.sweep.on_device import Device
from fuzz.sweep.plan import Plan
from fuzz.target.loader import load, planted
from fuzz.worker.process import Final


def service(plan: Plan) -> Callable[[int], Tally | Final]:
    """The worker's handler, request -> tally: a part of the plan, or a span of large parts on a GPU."""
    bench = benched(plan)
    if plan.large:
        return Device(bench).spanned
    return lambda part: measured(bench, part)


def benched(plan: Plan) -> Bench:
    """The plan's bench. For a GPU, whose values are too many for one processor to decide the doubtful, with hands."""
    torch.set_num_threads(1)
    target = load(plan.text)
    launcher = planted(target, plan.planted)[1] if plan.planted else target.launcher
    arithmetic = precision(plan.backend, target.accumulate, target.dot)
    truth = Truth(target, plan.output, arithmetic, plan.options)
    if plan.large and spare() > 0:
        truth.hands = Hands(truth.exact, spare())
    return Bench(plan, target, launcher, named_backend(plan.backend), truth)
