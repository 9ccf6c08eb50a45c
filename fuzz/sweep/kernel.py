"""Runs the swept kernel on all values of a part at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fuzz.backends import BACKENDS
from fuzz.backends import backend as named_backend
from fuzz.backends.base import Backend
from fuzz.backends.execute import check_outputs
from fuzz.backends.guarded_memory import TORCH_DTYPES
from fuzz.errors import TargetError
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.recipes.torch_values import from_bits
from fuzz.oracles.examine import load_launcher
from fuzz.reference.envelope import make_precision
from fuzz.sweep.correct_rounding import CorrectRounding
from fuzz.sweep.fork_pool import ForkPool, spare_processes
from fuzz.sweep.handler import launching
from fuzz.sweep.plan import PART, SweepPlan
from fuzz.target.spec import Launcher, Target
from fuzz.worker.protocol import WorkerConfig


@dataclass
class SweptKernel:
    """A plan with its target loaded: runs the kernel; `rounding` knows the correctly rounded results."""

    plan: SweepPlan
    target: Target
    launcher: Launcher
    backend: Backend

    def __post_init__(self) -> None:
        plan, target = self.plan, self.target
        arithmetic = make_precision(BACKENDS[plan.backend].arithmetic, target.accumulate, target.dot)
        self.rounding = CorrectRounding(target, plan.output, arithmetic, plan.base.options, pairs=plan.pairs)

    @classmethod
    def load(cls, plan: SweepPlan) -> SweptKernel:
        """The plan's target, or its planted bug, on its backend.

        A large sweep has too many doubtful values for one processor to decide: they get a pool.
        """
        launcher = load_launcher(WorkerConfig(plan.text, plan.planted, plan.backend))
        kernel = cls(plan, *launcher, named_backend(plan.backend))
        if plan.large and spare_processes() > 0:
            kernel.rounding.pool = ForkPool(kernel.rounding.exact, spare_processes())
        return kernel

    def swept_values(self, request: int) -> list[Tensor]:
        """The values of each swept argument in a request; those of a large plan are made on its device."""
        plan, kind, device = self.plan, self.plan.kind, self.backend.device
        if not plan.large:
            return [from_bits(bits, kind, device) for bits in plan.bits(request)]
        size, half = plan.together * PART, 1 << (kind.bits - 1)
        flat = torch.arange(request * size, (request + 1) * size, device=device)
        ranks = [flat >> kind.bits, flat & (2 * half - 1)] if plan.pairs else [flat]
        # As `ranks.bits_at` has them, in signed integers.
        bits = (torch.where(rank < half, -1 - rank, rank - half) for rank in ranks)
        return [each.to(getattr(torch, f"int{kind.bits}")).view(TORCH_DTYPES[kind.name]) for each in bits]

    def make_tensors(self, values: Sequence[Tensor]) -> dict[str, Tensor]:
        """Every tensor argument, in the order of the declaration, with these values of those that are swept."""
        swept, device = dict(zip(self.plan.swept, values, strict=True)), self.backend.device
        tensors = {}
        for name, argument in self.plan.base.arguments.items():
            held = from_bits(argument.bits(self.plan.base.dims), named_dtype(argument.dtype), device)
            tensors[name] = swept[name] if name in swept else held.repeat(len(values[0]))
        return tensors

    def run(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """The output that is looked at, finished. TargetError where it does not fit; raises as `launching` does."""
        with launching(self.backend):
            outputs = check_outputs(self.target, self.launcher(**tensors, **self.rounding.scalars(tensors)))
        name = self.rounding.output = self.rounding.output or next(iter(outputs))
        if name not in outputs:
            raise TargetError(f"target {self.target.name!r} has no output {name!r}; it returns {', '.join(outputs)}")
        output = outputs[name]
        if output.shape != next(iter(tensors.values())).shape or output.dtype.itemsize > 4:
            what = "no 16-bit or 32-bit float of its inputs' shape"
            raise TargetError(f"output {name!r} of target {self.target.name!r} is {what}")
        return output.detach()
