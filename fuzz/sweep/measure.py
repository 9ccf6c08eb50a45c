"""Measures parts of a sweep in a worker: the kernel on all their values, each against the correctly rounded one.

A GPU computes many parts at once, and everything that is counted, where the kernel's results are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from fuzz.backends.guarded_memory import DTYPE_NAMES
from fuzz.model.dtypes import Doubles
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.outcome import Outcome
from fuzz.model.recipes.torch_values import to_bits
from fuzz.oracles.comparison.elements import SYMPTOMS
from fuzz.sweep.count_errors import ComparedValues, bin_errors, count_values, find_violations, worst_values
from fuzz.sweep.handler import answer_by_outcome
from fuzz.sweep.kernel import SweptKernel
from fuzz.sweep.plan import PART, SweepPlan
from fuzz.sweep.ranks import rank_of
from fuzz.sweep.sweep_counts import SweepCounts, find_runs
from fuzz.worker.channel import LastResponse

STRETCH = 1 << 13
"""Values of a large plan of which the one with the largest error is judged by the contract, and drawn."""


def make_handler(plan: SweepPlan) -> Callable[[int], SweepCounts | Outcome | LastResponse]:
    """The worker's handler, request -> counts of one part of the plan, or of several on a GPU."""
    kernel = SweptKernel.load(plan)
    return answer_by_outcome(kernel.backend, partial(measure_part, kernel))


def measure_part(kernel: SweptKernel, request: int) -> SweepCounts:
    """Everything that is counted of a request. Raises as `SweptKernel.run` does."""
    plan = kernel.plan
    tensors = kernel.make_tensors(kernel.swept_values(request))
    output = kernel.run(tensors)
    inputs = {name: tensor.double() for name, tensor in tensors.items()}
    kind = named_dtype(DTYPE_NAMES[output.dtype])
    low, high, decided_count = kernel.rounding.rounded(inputs, kind, PART if plan.large else 0)
    compared = ComparedValues(inputs, output, low, high, kind)
    counts, error, wrong = count_values(kernel, compared)
    counts.other["decided"] = decided_count
    if wrong.any():
        _set_runs(counts, inputs[plan.swept[0]].cpu().numpy(), wrong.cpu().numpy())
    if plan.large:
        starts = torch.arange(0, len(error), STRETCH, device=error.device)
        worst = starts + error.nan_to_num(0.0, torch.inf).view(-1, STRETCH).argmax(1)
        compared, error, wrong = compared.select(worst), error[worst], wrong[worst]
        tensors = {name: values[worst] for name, values in tensors.items()}
        counts.other["judged"] = len(worst)
    bits = [to_bits(tensors[name]) for name in plan.swept]
    shares = torch.from_numpy(rank_of(bits[0], plan.kind).astype(np.float64) / (1 << plan.kind.bits))
    counts.bins = bin_errors(shares.to(error.device), compared.inputs[plan.swept[0]], error, wrong)
    violations = find_violations(kernel, compared)
    counts.symptoms = Counter(SYMPTOMS[symptom - 1] for symptom in violations.symptoms.tolist())
    counts.worst = worst_values(plan, request, bits, violations)
    return counts


def _set_runs(counts: SweepCounts, x: Doubles, wrong: np.ndarray) -> None:
    """Runs of wrong signs along the first argument; of pairs a value counts where any of its pairs is wrong."""
    starts = np.flatnonzero(np.concatenate([[True], (x[1:] != x[:-1]) & ~(np.isnan(x[1:]) & np.isnan(x[:-1]))]))
    counts.sign_runs = find_runs(x[starts], np.logical_or.reduceat(wrong, starts))
    counts.first, counts.last = float(x[0]), float(x[-1])
