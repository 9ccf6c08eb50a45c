"""Runs the last call of replicas again with something changed: all of them at once where that is possible."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from fuzz.backends.execute import CompletedCall
from fuzz.backends.replay.trace import ReplayResult
from fuzz.model.case import Call
from fuzz.model.finding import Finding
from fuzz.model.recipes.torch_values import to_bits
from fuzz.oracles.comparison.bits import Outputs, Pairs
from fuzz.oracles.execution.examination import Examination, Values, select_rows
from fuzz.oracles.execution.replicas import call_structure, record_and_replay, replay


@dataclass(frozen=True)
class Rerun:
    """A call that runs again, for some of the replicas that are examined.

    `rows` are their indices among the replicas, `values` (len(rows), *stored shape) by tensor, `order` permutes the
    order of programs. `pairs` makes of the stacked outputs of the first run and of the rerun what must be the same
    bits. `compare` gives the finding of one replica whose pairs have different bits, None where that is allowed.
    Where `compare` allows what lies within twice the error bounds, `bound_of` gives the bound of a pair from that of
    its output, (rows, *shape); it is None where bits are promised.
    """

    rows: Sequence[int]
    values: Values
    call: Call
    pairs: Callable[[Outputs, Outputs], Pairs]
    compare: Callable[[Examination, Pairs], Finding | None]
    order: int | None = None
    bound_of: Callable[[torch.Tensor], torch.Tensor] | None = None

    def select(self, places: Sequence[int]) -> Rerun:
        """The rerun of those at these places of `rows` only."""
        if len(places) == len(self.rows):
            return self
        return replace(self, rows=[self.rows[place] for place in places], values=select_rows(self.values, places))


def pair_outputs(first: Outputs, again: Outputs) -> Pairs:
    """Every output of the first run with that of the rerun."""
    return {name: (first[name], again[name]) for name in first}


def same_bound(bound: torch.Tensor) -> torch.Tensor:
    """The bound of `pair_outputs`."""
    return bound


def run_again(exams: Sequence[Examination], rerun: Rerun) -> Iterator[tuple[Sequence[int], Outputs]]:
    """(rows, their outputs) of a rerun: replicas that can be replayed together, then the others one by one.

    A replica whose rerun does harm to memory is left out.
    """
    some = [exams[row] for row in rerun.rows]
    replayed = _replay(some, rerun)
    alone: Sequence[int] = range(len(some))
    if replayed is not None:
        together = np.flatnonzero(replayed.intact).tolist()
        if together:
            yield [rerun.rows[place] for place in together], select_rows(replayed.outputs, together)
        alone = np.flatnonzero(~replayed.intact).tolist()
    for place in alone:
        outputs = some[place].rerun(rerun.call, rerun.order, _words(rerun, place))
        if outputs is not None:
            yield [rerun.rows[place]], {name: output[None] for name, output in outputs.items()}


def _replay(exams: Sequence[Examination], rerun: Rerun) -> ReplayResult | None:
    """The rerun of all replicas together; None where the launches of the call cannot be replayed."""
    exam, stack = exams[0], exams[0].stack
    if stack is None:
        return None
    structure = call_structure(rerun.call)
    trace = stack.traces.get(structure)
    if trace is not None:
        return replay(exam.backend, trace, rerun.values, rerun.order)
    if len(exams) == 1 or structure in stack.traces:
        return None
    kept: list[CompletedCall] = []
    outputs = exam.rerun(rerun.call, rerun.order, _words(rerun, 0), kept)
    if outputs is None:
        return None
    trace, replayed = record_and_replay(exam.backend, kept[0], rerun.values, outputs, rerun.order)
    stack.traces[structure] = trace
    return replayed


def _words(rerun: Rerun, place: int) -> dict[str, np.ndarray]:
    return {name: to_bits(values[place]) for name, values in rerun.values.items()}
