"""Runs the swept kernel on all values of a part at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from fuzz.backends import BACKENDS
from fuzz.backends import backend as named_backend
from fuzz.backends.base import Backend
from fuzz.backends.execute import check_outputs
from fuzz.errors import TargetError
from fuzz.model.dtypes import Bits
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.recipes.torch_values import from_bits
from fuzz.oracles.examine import load_launcher
from fuzz.reference.envelope import make_precision
from fuzz.sweep.correct_rounding import CorrectRounding
from fuzz.sweep.fork_pool import ForkPool, spare_processes
from fuzz.sweep.plan import SweepPlan
from fuzz.target.spec import Launcher, Target
from fuzz.worker.protocol import WorkerConfig


@dataclass
class SweptKernel:
    """A plan with its target loaded: runs the kernel; `rounding` knows the correctly rounded results."""

    plan: SweepPlan
    target: Target
    launcher: Launcher
    backend: Backend
    rounding: CorrectRounding

    @classmethod
    def of(cls, plan: SweepPlan, target: Target, launcher: Launcher, backend: Backend) -> SweptKernel:
        arithmetic = make_precision(BACKENDS[plan.backend].arithmetic, target.accumulate, target.dot)
        return cls(plan, target, launcher, backend, CorrectRounding(target, plan.output, arithmetic, plan.options))

    @classmethod
    def load(cls, plan: SweepPlan) -> SweptKernel:
        """The plan's target, or its planted bug, on its backend.

        A large sweep has too many doubtful values for one processor to decide: they get a pool.
        """
        launcher = load_launcher(WorkerConfig(plan.text, plan.planted, plan.backend))
        kernel = cls.of(plan, *launcher, named_backend(plan.backend))
        if plan.large and spare_processes() > 0:
            kernel.rounding.pool = ForkPool(kernel.rounding.exact, spare_processes())
        return kernel

    def make_tensors(self, bits: tuple[Bits, ...]) -> dict[str, Tensor]:
        """Every tensor argument, in the order of the declaration."""
        swept, tensors = dict(zip(self.plan.swept, bits, strict=True)), {}
        for name in self.plan.order:
            dtype, fixed = self.plan.fixed.get(name, (self.plan.dtype, 0))
            kind = named_dtype(dtype)
            given = swept[name] if name in swept else np.full(bits[0].size, fixed, dtype=kind.unsigned)
            tensors[name] = from_bits(given, kind, self.backend.device)
        return tensors

    def run(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """The output that is looked at, finished. TargetError where it does not fit."""
        output = self.launch(tensors)
        self.backend.synchronize()
        return output

    def launch(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """The output while it may still be computed: an error of the kernel is raised where somebody waits for it."""
        with self.backend.uninstrumented():
            outputs = check_outputs(self.target, self.launcher(**tensors, **self.plan.options))
        name = self.rounding.output = self.rounding.output or next(iter(outputs))
        if name not in outputs:
            raise TargetError(f"target {self.target.name!r} has no output {name!r}; it returns {', '.join(outputs)}")
        output = outputs[name]
        if output.shape != next(iter(tensors.values())).shape or output.dtype.itemsize > 4:
            what = "no 16-bit or 32-bit float of its inputs' shape"
            raise TargetError(f"output {name!r} of target {self.target.name!r} is {what}")
        return output.detach()
