"""One replica of a plan that ran, alone or together with other replicas, as oracles see it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import repeat
from operator import attrgetter, is_
from typing import NamedTuple

import numpy as np
import torch

from fuzz.backends.base import Backend
from fuzz.backends.execute import CompletedCall, Words, run
from fuzz.backends.guarded_memory import read_words
from fuzz.backends.launch_trace.trace import LaunchTrace
from fuzz.model.case import Call, Case
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.outcome import Outcome, Returned
from fuzz.model.recipes.torch_values import from_bits
from fuzz.oracles.comparison.bits import Outputs
from fuzz.reference.envelope import Expected, Precision, working_precision
from fuzz.target.spec import Launcher, Target

Values = Mapping[str, torch.Tensor]
"""Stored values by tensor name, with a dim of replicas in front."""
ExpectedByCall = dict[int, dict[int, Mapping[str, Expected]]]
"""What has been evaluated of the reference, by call and stage of the envelope."""


@dataclass(frozen=True)
class ReplicaStack:
    """Replicas of a plan that ran together: values (replicas, *stored shape) and outputs (replicas, *shape) by name.

    `traces` holds the launch trace by call structure, None where the launches of a call cannot be replayed.
    """

    values: Values
    outputs: Outputs
    traces: dict[object, LaunchTrace | None] = field(default_factory=dict)

    @cached_property
    def words(self) -> Mapping[str, np.ndarray]:
        """The words of the values, on the host."""
        return {name: read_words(tensor) for name, tensor in self.values.items()}


@dataclass(frozen=True)
class ReplicaOutputs(Mapping[str, torch.Tensor]):
    """The outputs of one replica of a stack; each is taken out of the stack on access."""

    stack: ReplicaStack
    row: int

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.stack.outputs[name][self.row]

    def __iter__(self) -> Iterator[str]:
        return iter(self.stack.outputs)

    def __len__(self) -> int:
        return len(self.stack.outputs)


class ScreenedReference(NamedTuple):
    """What screening evaluated of the reference for a call at a stage of the envelope; a replica is a row of it."""

    stage: int
    expected: Mapping[str, Expected]
    row: int

    def of_replica(self) -> dict[str, Expected]:
        """The values that the replica would get alone."""
        return {name: one.of_replica(self.row) for name, one in self.expected.items()}


@dataclass
class Examination:
    """A target's launcher (the good one or a planted bug), a case, a backend, and the outcome of running the case.

    The case is replica `row` of `plan`; a case that ran alone is its own plan.
    `stack` holds the replicas that ran together; then `outcome` describes all of them.
    `screened` is what screening evaluated for the last call of a case in which nothing disagrees; `diverged` says
    that it could not evaluate the reference for this one and others at once.
    """

    target: Target
    launcher: Launcher
    plan: Case
    backend: Backend
    outcome: Outcome
    worst: float = 0.0
    stack: ReplicaStack | None = None
    row: int = 0
    screened: ScreenedReference | None = field(default=None, init=False)
    diverged: bool = field(default=False, init=False)

    @property
    def cleared(self) -> bool:
        """Whether the accuracy of the case was screened together with other replicas, and nothing disagrees."""
        return self.screened is not None

    @cached_property
    def expected(self) -> ExpectedByCall:
        """What was evaluated of the reference."""
        return {}

    @cached_property
    def uncleared(self) -> dict[int, list[ScreenedReference]]:
        """What screening evaluated in the stages that did not clear a call, by call."""
        return {}

    @cached_property
    def case(self) -> Case:
        return self.plan.replica(self.row)

    @cached_property
    def precision(self) -> Precision:
        dtypes = (value.dtype for call in self.plan.calls for value in call.tensors.values())
        precision = working_precision(self.backend.arithmetic, self.target.accumulate, dtypes, self.target.dot)
        return replace(precision, largest=sys.float_info.max) if self.target.range == "full" else precision

    @cached_property
    def returned(self) -> Returned:
        assert isinstance(self.outcome, Returned)
        if self.stack is None:
            return self.outcome
        return Returned((replace(self.outcome.calls[0], outputs=ReplicaOutputs(self.stack, self.row)),))

    @property
    def outputs(self) -> Outputs:
        """The outputs of the last call."""
        return self.returned.calls[-1].outputs

    def words(self, name: str) -> np.ndarray:
        """The words of a tensor of the last call, of its stored shape; read only."""
        if self.stack is not None:
            words: np.ndarray = self.stack.words[name][self.row]
            return words
        return self.case.last.tensors[name].bits(self.case.last.dims)

    def rerun(
        self, call: Call, order: int | None = None, words: Words | None = None, kept: list[CompletedCall] | None = None
    ) -> Outputs | None:
        """The outputs of a call that runs alone, with the given words and order of programs.

        None where the run does harm to memory: that is a case of its own for the oracles of memory.
        """
        outcome = run(self.target, self.launcher, (call,), self.backend, order, words, completed=kept)
        if not isinstance(outcome, Returned):
            return None
        result = outcome.calls[-1]
        return None if result.accesses or result.writes or result.unwritten or result.aliases else result.outputs


def common_stack(exams: Sequence[Examination]) -> ReplicaStack | None:
    """The stack in which all of these replicas ran, if it is one."""
    stack = exams[0].stack if exams else None
    return stack if all(map(is_, map(attrgetter("stack"), exams), repeat(stack))) else None


def stacked_values(exams: Sequence[Examination]) -> Values:
    """The values of the last call of a case, or of replicas of one stack: (len(exams), *stored shape) by tensor.

    Those of a case that ran alone are on the host.
    """
    stack = exams[0].stack
    if stack is not None:
        return select_rows(stack.values, [exam.row for exam in exams])
    (exam,) = exams
    tensors = exam.plan.last.tensors
    return {name: from_bits(exam.words(name)[None], named_dtype(value.dtype)) for name, value in tensors.items()}


def stacked_outputs(exams: Sequence[Examination]) -> Outputs:
    """The outputs of the last call of a case, or of replicas of one stack: (len(exams), *shape) by name."""
    stack = exams[0].stack
    if stack is not None:
        return select_rows(stack.outputs, [exam.row for exam in exams])
    (exam,) = exams
    return {name: output[None] for name, output in exam.outputs.items()}


def select_rows(tensors: Mapping[str, torch.Tensor], rows: Sequence[int]) -> Mapping[str, torch.Tensor]:
    """Some rows of every tensor; their numbers are transferred once."""
    first = next(iter(tensors.values()), None)
    if first is None or list(rows) == list(range(len(first))):
        return tensors
    index = torch.tensor(rows).to(first.device)
    return {name: tensor.index_select(0, index) for name, tensor in tensors.items()}
