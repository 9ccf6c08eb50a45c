"""What an oracle is: a check of a case that ran, which may run it again."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from fuzz.model.case import Call, Case
from fuzz.model.finding import Finding
from fuzz.oracles.comparison.bits import Outputs, Pairs
from fuzz.oracles.examination import Examination
from fuzz.target.spec import Target


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
