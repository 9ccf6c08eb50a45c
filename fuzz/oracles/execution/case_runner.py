"""Runs cases, and replicas of a plan together where the launches of one of them can be replayed for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from fuzz.backends.base import Backend, RunOrder
from fuzz.backends.execute import CompletedCall, FatalError, run
from fuzz.backends.launch_trace.torch_operations import NotRepeatable
from fuzz.backends.launch_trace.trace import LaunchTrace, TraceResult, matches_single_run, record_trace
from fuzz.model.case import SEED_STRIDE, Argument, Case, ListedPlan
from fuzz.model.dims import resolve
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.outcome import CallResult, NotRun, Outcome, Returned
from fuzz.model.recipes import Recipe
from fuzz.model.recipes.torch_values import from_bits, tensors
from fuzz.oracles.comparison.bits import Outputs
from fuzz.oracles.execution.examination import Examination, ExpectedByCall, ReplicaOutputs, ReplicaStack, Values
from fuzz.target.spec import Launcher, Target
from fuzz.worker.profile import measured

LARGEST_ARGUMENTS = 1 << 26
"""Bytes that the arguments of replicas may have together."""
LARGEST_STACK = 1 << 24
"""Elements that the arguments and outputs of replicas may have together: only a run shows how large outputs are."""


class Unattributed(Exception):
    """The device failed while several replicas ran; each has to run in a new process to show which of them did it."""


KEPT_ELEMENTS = 1 << 16
"""Elements of the largest case of which the reference's values are kept."""


@dataclass(frozen=True)
class CaseRunner:
    """Runs cases of one target by one launcher on one backend."""

    target: Target
    launcher: Launcher
    backend: Backend
    _last: list[tuple[Case, ExpectedByCall]] = field(default_factory=list)
    """The last case of `run_again`, and what has been evaluated of the reference for it."""

    def run(self, case: Case) -> Examination:
        return self._examination(case, run(self.target, self.launcher, case.calls, self.backend))

    def not_run(self, case: Case) -> Examination:
        """A case whose launcher is not called."""
        return self._examination(case, NotRun("not called"))

    def run_again(self, case: Case) -> Examination:
        """The same for one case after another: where it is the last one again, its reference is not evaluated again."""
        exam = self.run(case)
        if case.elements() <= KEPT_ELEMENTS:
            for last, expected in self._last:
                # Equal cases may differ: an option is 0.0 in one and -0.0 in the other.
                if last == case and repr(last) == repr(case):
                    exam.expected = expected
            self._last[:] = [(case, exam.expected)]
        return exam

    def run_replicas(self, plan: Case, count: int) -> list[Examination]:
        """The first `count` replicas of a plan: together, and alone those that do harm to memory.

        Fewer, at least two, where all are too large together. Only the first replica where they cannot run together,
        which the run of the first shows. Raises FatalError where the first one ends the process, Unattributed where
        another one does.
        """
        if count == 1 or len(plan.calls) > 1:
            return [self.run(plan)]
        kept: list[CompletedCall] = []
        call = plan.last
        first = run(self.target, self.launcher, plan.calls, self.backend, completed=kept)
        alone = [self._examination(plan, first)]
        if not isinstance(first, Returned) or first.calls[0].aliases:
            return alone
        size = call.elements() + sum(output.numel() for output in first.calls[0].outputs.values())
        count = min(count, LARGEST_STACK // max(size, 1))
        if count < 2:
            return alone
        values = plan_values(plan, count, self.backend.device)
        trace, replayed = record_and_replay(self.backend, kept[0], values, first.calls[0].outputs)
        if replayed is None:
            return alone
        stack = ReplicaStack(values, replayed.outputs, {call.structure: trace})
        # Launches are traced of the first replica, but counted for all of them together.
        result = CallResult(
            ReplicaOutputs(stack, 0), kernels=first.calls[0].kernels, counted=kept[0].session.read_counters()
        )
        outcome = Returned((result,))
        try:
            return [
                self._examination(plan, outcome, stack, row) if intact else self.run(plan.replica(row))
                for row, intact in enumerate(replayed.intact.tolist())
            ]
        except FatalError as fatal:
            raise Unattributed from fatal

    def _examination(
        self, plan: Case, outcome: Outcome, stack: ReplicaStack | None = None, row: int = 0
    ) -> Examination:
        return Examination(self.target, self.launcher, plan, self.backend, outcome, stack=stack, row=row)


def record_and_replay(
    backend: Backend, ran: CompletedCall, values: Values, outputs: Outputs, orders: Sequence[RunOrder] = ()
) -> tuple[LaunchTrace | None, TraceResult | None]:
    """The trace of a run of the first replica, and what it gives for all of them.

    (None, None) where launches cannot be replayed, or do not give the first replica the outputs of its run.
    """
    trace = None if sum(part.nbytes for part in values.values()) > LARGEST_ARGUMENTS else record_trace(ran)
    replayed = replay_launches(backend, trace, values, orders) if trace else None
    return (trace, replayed) if replayed is not None and matches_single_run(replayed, 0, outputs) else (None, None)


@measured("launch")
def replay_launches(
    backend: Backend, trace: LaunchTrace, values: Values, orders: Sequence[RunOrder] = ()
) -> TraceResult | None:
    """Replays the launches for all replicas, None where they cannot. Raises Unattributed where the device fails."""
    try:
        return trace.replay(values, orders)
    except NotRepeatable as error:
        if error.__cause__ and backend.is_fatal(error.__cause__):
            raise Unattributed from error
        return None
    except Exception as error:
        if backend.is_fatal(error):
            raise Unattributed from error
        raise


def plan_values(plan: Case, count: int, device: str) -> Values:
    """The values of each tensor in the first replicas of a plan of one call."""
    call = plan.last
    if isinstance(plan, ListedPlan):
        return {name: listed_values(plan.listed[:count], name, device) for name in call.tensors}
    return {
        name: replica_values(value, call.dims, count, device, plan.shares(value))
        for name, value in call.tensors.items()
    }


@measured("generation")
def listed_values(cases: Sequence[Case], name: str, device: str) -> torch.Tensor:
    """The values of a tensor in each of some cases, (len(cases), *stored shape)."""
    bits = np.stack([case.last.tensors[name].bits(case.last.dims) for case in cases])
    return from_bits(bits, named_dtype(cases[0].last.tensors[name].dtype), device)


@measured("generation")
def replica_values(
    value: Argument, dims: Mapping[str, int], count: int, device: str, shared: bool = False
) -> torch.Tensor:
    """The values of an argument in the first replicas, (count, *stored shape); the same in all where `shared`."""
    shape = value.layout.stored(resolve(value.shape, dims))
    if isinstance(value.values, Recipe) and not shared:
        seeds = [value.values.seed + number * SEED_STRIDE for number in range(count)]
        return tensors(value.values, seeds, shape, value.dtype, device)
    one = from_bits(value.bits(dims), named_dtype(value.dtype), device)
    return one.expand(count, *shape).contiguous()
