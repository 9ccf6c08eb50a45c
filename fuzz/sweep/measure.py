"""Measures one part of a sweep in a worker: the kernel on all its values, each against the correctly rounded one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from fuzz.backends.memory import DTYPE_NAMES
from fuzz.errors import UsageError, one_line
from fuzz.model.dtypes import Bits, Doubles
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.sweep.contract_violations import find_violations, worst_values
from fuzz.sweep.count_errors import ComparedValues, bin_errors, count_values
from fuzz.sweep.gpu.all_values import GpuSweep
from fuzz.sweep.kernel import SweptKernel
from fuzz.sweep.plan import SweepPlan
from fuzz.sweep.ranks import rank_of
from fuzz.sweep.sweep_counts import SweepCounts, find_runs
from fuzz.worker.channel import LastResponse


def make_handler(plan: SweepPlan) -> Callable[[int], SweepCounts | LastResponse]:
    """The worker's handler, request -> counts: of a part of the plan, or of a span of large parts on a GPU."""
    kernel = SweptKernel.load(plan)
    return GpuSweep(kernel).measure_span if plan.large else partial(measure_part, kernel)


def measure_part(kernel: SweptKernel, part: int) -> SweepCounts | LastResponse:
    """Everything that is counted of one part. Where the kernel raises an error, that is what is counted."""
    bits = kernel.plan.bits(part)
    tensors = kernel.make_tensors(bits)
    try:
        output = kernel.run(tensors).cpu()
    except UsageError:
        raise
    except Exception as error:
        failed = SweepCounts(failed=[(part, one_line(error))])
        return LastResponse(failed) if kernel.backend.is_fatal(error) else failed
    inputs = {name: tensor.cpu().double() for name, tensor in tensors.items()}
    kind = named_dtype(DTYPE_NAMES[output.dtype])
    low, high, decided_count = kernel.rounding.rounded(inputs, kind)
    compared = ComparedValues(inputs, output, low, high, kind)
    counts = count_part(kernel, compared, bits[0])
    counts.other["decided"] = decided_count
    violations = find_violations(kernel, compared)
    counts.symptoms = Counter(violations.names)
    wrong = [words[violations.indices.numpy()] for words in bits]
    counts.worst = worst_values(kernel.plan.kind, wrong, violations, part)
    return counts


def count_part(kernel: SweptKernel, compared: ComparedValues, first: Bits) -> SweepCounts:
    """The counts of a part with bins and runs; `first` are the bits of the first swept argument."""
    counts, error, wrong = count_values(kernel, compared)
    x, kind = compared.inputs[kernel.plan.swept[0]], kernel.plan.kind
    shares = torch.from_numpy(rank_of(first, kind).astype(np.float64) / (1 << kind.bits))
    counts.bins = bin_errors(shares, x, error, wrong)
    _set_runs(counts, x.numpy(), wrong.numpy())
    return counts


def _set_runs(counts: SweepCounts, x: Doubles, wrong: np.ndarray) -> None:
    """Runs of wrong signs along the first argument; of pairs a value counts where any of its pairs is wrong."""
    starts = np.flatnonzero(np.concatenate([[True], (x[1:] != x[:-1]) & ~(np.isnan(x[1:]) & np.isnan(x[:-1]))]))
    wrong_at = np.logical_or.reduceat(wrong, starts)
    counts.sign_runs = find_runs(x[starts], wrong_at)
    counts.first_open, counts.last_open = bool(wrong_at[0]), bool(wrong_at[-1])
