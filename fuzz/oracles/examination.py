"""One replica of a plan that ran, alone or together with others, as oracles see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from fuzz.backends.base import Backend
from fuzz.backends.execute import CompletedCall, run
from fuzz.backends.memory import read_words
from fuzz.model.case import Case
from fuzz.model.outcome import Outcome, Returned
from fuzz.reference.envelope import Precision, make_precision, working_dtype
from fuzz.target.spec import Launcher, Target

if TYPE_CHECKING:
    from fuzz.oracles.base import Rerun

T = TypeVar("T")
Outputs = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Stack:
    """Replicas of a plan that ran together: values (replicas, *stored shape) and outputs (replicas, *shape) by name.

    `made` is what oracles made for all of them.
    """

    values: Mapping[str, torch.Tensor]
    outputs: Outputs
    made: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def words(self) -> Mapping[str, np.ndarray]:
        """The values' words on the host."""
        return {name: read_words(tensor) for name, tensor in self.values.items()}


@dataclass(frozen=True)
class Row(Mapping[str, torch.Tensor]):
    """The outputs of one replica of a stack, each taken out when it is asked for."""

    stack: Stack
    row: int

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.stack.outputs[name][self.row]

    def __iter__(self) -> Iterator[str]:
        return iter(self.stack.outputs)

    def __len__(self) -> int:
        return len(self.stack.outputs)


@dataclass
class Examination:
    """A target's launcher (the good one or a planted bug), a case, a backend, and the outcome of running it.

    The case is replica `row` of `plan`; mostly it is the plan itself.
    `cleared`: its accuracy has been examined together with other replicas of its plan, and nothing disagrees.
    `stack`: those replicas, where they ran together; it is number `row` of them, and `outcome` is what all of them did.
    """

    target: Target
    launcher: Launcher
    plan: Case
    backend: Backend
    outcome: Outcome
    worst: float = 0.0
    cleared: bool = False
    stack: Stack | None = None
    row: int = 0

    @cached_property
    def case(self) -> Case:
        return self.plan.replica(self.row)

    @property
    def precision(self) -> Precision:
        dtypes = (value.dtype for call in self.plan.calls for value in call.tensors.values())
        declared = self.target.accumulate
        return make_precision(self.backend.name, working_dtype(declared, dtypes), self.target.dot, declared == "inputs")

    @cached_property
    def returned(self) -> Returned:
        assert isinstance(self.outcome, Returned)
        if self.stack is None:
            return self.outcome
        return Returned((replace(self.outcome.calls[0], outputs=Row(self.stack, self.row)),))

    def words(self, name: str) -> np.ndarray:
        """The words of a tensor of the last call, of its stored shape; read only."""
        if self.stack is not None:
            words: np.ndarray = self.stack.words[name][self.row]
            return words
        return self.case.last.tensors[name].bits(self.case.last.dims)

    def shared(self, what: str, make: Callable[[], T]) -> T:
        """What is alike in all replicas of a plan, made once for those that ran together."""
        if self.stack is None:
            return make()
        if what not in self.stack.made:
            self.stack.made[what] = make()
        made: T = self.stack.made[what]
        return made

    def rerun(self, asked: Rerun, kept: list[CompletedCall] | None = None) -> Outputs | None:
        """Outputs of the last call again, or of another one, alone; None where memory was not left as it should be.

        A run that writes or reads outside its buffers is a case of its own for the oracles of memory.
        """
        calls = (asked.call or self.case.last,)
        outcome = run(self.target, self.launcher, calls, self.backend, asked.order, asked.words, completed=kept)
        if not isinstance(outcome, Returned):
            return None
        result = outcome.calls[-1]
        return None if result.accesses or result.writes or result.unwritten or result.aliases else result.outputs
