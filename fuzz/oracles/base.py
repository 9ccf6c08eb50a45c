"""What an oracle looks at: one case, what happened when it ran, and ways to run it again."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np
import torch

from fuzz.backends.base import Backend
from fuzz.backends.execute import Ran, run
from fuzz.backends.memory import NAMES, words_of
from fuzz.model.case import Call, Case
from fuzz.model.dtypes import decimal, hexword
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.finding import Element, Finding
from fuzz.model.outcome import Outcome, Returned
from fuzz.reference.envelope import Precision, precision, working
from fuzz.target.spec import Launcher, Target

SHOWN = 4
"""Elements that a finding shows."""


T = TypeVar("T")
Outputs = Mapping[str, torch.Tensor]
Pairs = Mapping[str, tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class Rerun:
    """What an oracle asks for: the last call again, or another one, with other words or its programs in other order.

    `pairs` makes of the first outputs and those of the rerun what has to be the same bits, also where both have a dim
    of replicas in front. `step` tells reruns apart that an oracle asks for in turn.
    """

    call: Call | None = None
    order: int | None = None
    words: Mapping[str, np.ndarray] | None = None
    pairs: Callable[[Outputs, Outputs], Pairs] | None = None
    step: str = ""


Asking = Generator[Rerun, Outputs | None, Finding | None]
"""An examination that asks for reruns and is sent their outputs, None where there is nothing left to compare."""


@dataclass(frozen=True)
class Several:
    """A rerun of several replicas that ran together: of those at `places` among the ones that are asked about.

    `values` are (len(places), *stored shape) by tensor; `rerun` is what each would ask for alone, without words.
    """

    rerun: Rerun
    places: Sequence[int]
    values: Outputs


def together(first: Outputs, again: Outputs) -> Pairs:
    """Every output with itself."""
    return {name: (first[name], again[name]) for name in first}


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
        return {name: words_of(tensor) for name, tensor in self.values.items()}


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
        return precision(self.backend.name, working(declared, dtypes), self.target.dot, declared == "inputs")

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
        return self.case.last.tensors[name].words(self.case.last.dims)

    def shared(self, what: str, make: Callable[[], T]) -> T:
        """What is alike in all replicas of a plan, made once for those that ran together."""
        if self.stack is None:
            return make()
        if what not in self.stack.made:
            self.stack.made[what] = make()
        made: T = self.stack.made[what]
        return made

    def rerun(self, asked: Rerun, kept: list[Ran] | None = None) -> Outputs | None:
        """Outputs of the last call again, or of another one, alone; None where memory was not left as it should be.

        A run that writes or reads outside its buffers is a case of its own for the oracles of memory.
        """
        calls = (asked.call or self.case.last,)
        outcome = run(self.target, self.launcher, calls, self.backend, asked.order, asked.words, kept=kept)
        if not isinstance(outcome, Returned):
            return None
        result = outcome.calls[-1]
        return None if result.accesses or result.writes or result.unwritten or result.aliases else result.outputs


def values_of(exams: Sequence[Examination]) -> Outputs:
    """The values of replicas of one stack, (len(exams), *stored shape) by tensor."""
    stack = exams[0].stack
    assert stack is not None
    return chosen(stack.values, [exam.row for exam in exams])


def chosen(tensors: Outputs, rows: Sequence[int]) -> Outputs:
    """Some rows of tensors, by one transfer of their numbers."""
    first = next(iter(tensors.values()), None)
    if first is None or list(rows) == list(range(len(first))):
        return tensors
    index = torch.tensor(rows).to(first.device)
    return {name: tensor.index_select(0, index) for name, tensor in tensors.items()}


def answered(exam: Examination, asking: Asking) -> Finding | None:
    """What an examination comes to whose reruns are run one at a time."""
    try:
        asked = next(asking)
        while True:
            asked = asking.send(exam.rerun(asked))
    except StopIteration as end:
        found: Finding | None = end.value
        return found


class Oracle(Protocol):
    """One question asked of a case. `always` oracles examine every case, the others a share."""

    name: str
    always: bool

    def applies(self, target: Target, case: Case) -> bool:
        """Whether the question makes sense for this case."""

    def examine(self, exam: Examination) -> Finding | None:
        """The disagreement, or None. The outcome is Returned, except for the fault oracle."""


def element(output: str, index: tuple[int, ...], got: torch.Tensor, want: str, **more: Any) -> Element:
    """One element of a tensor, spelled for people."""
    kind = named_dtype(NAMES[got.dtype])
    word = int(words_of(got[index].reshape(1))[0])
    return Element(output, index, decimal(word, kind), hexword(word, kind), want, **more)


def differing(before: torch.Tensor, after: torch.Tensor) -> np.ndarray:
    """Indices (n, rank) of the elements whose bits differ; NaNs of any payload are equal."""
    return (~same_bits(before, after)).nonzero().cpu().numpy()


def same_bits(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    """Element by element; NaNs of any payload are equal."""
    if not before.is_floating_point():
        return before == after
    same = (before == after) & (torch.signbit(before) == torch.signbit(after))
    return same | (before.isnan() & after.isnan())


def compare_values(oracle: str, what: str, pairs: Pairs, bounds: Outputs) -> Finding | None:
    """A finding where two runs differ by more than twice the bound, so that not both of them can be inside it.

    Where the bound is infinite both may be anything, NaN too.
    """
    drifted = {}
    for name, (got, other) in pairs.items():
        difference = (got.double() - other.double()).abs()
        bound = bounds[name]
        alike = (difference <= 2 * bound) | (got == other) | (got.isnan() & other.isnan())
        alike |= ~torch.isfinite(bound)
        if not bool(alike.all()):
            drifted[name] = (torch.where(alike, other, got), other)
    return compare_bits(oracle, what, drifted, "drift")


def compare_bits(oracle: str, what: str, pairs: Pairs, symptom: str = "bits") -> Finding | None:
    """A finding where two runs that must agree bit for bit do not. Pairs are (this run, the other run) by output."""
    outputs, elements, count, total = [], [], 0, 0
    for name, (got, other) in pairs.items():
        places = differing(got, other)
        total += got.numel()
        if len(places):
            outputs.append(name)
            count += len(places)
            for place in places[:SHOWN]:
                index = tuple(int(i) for i in place)
                elements.append(element(name, index, got, element(name, index, other, "").got))
    if not outputs:
        return None
    verb = "differ by more than the envelope allows" if symptom == "drift" else "have other bits"
    message = f"{'+'.join(outputs)}: {count} of {total} elements {verb} {what}"
    return Finding(oracle, tuple(outputs), symptom, message, tuple(elements[:SHOWN]), disagreeing=count, compared=total)
