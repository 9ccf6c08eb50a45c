"""Runs the last call of replicas again with something changed: all reruns of one call at once, where it can be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import torch

from fuzz.backends.base import RunOrder
from fuzz.backends.execute import CompletedCall
from fuzz.backends.guarded_memory import as_words
from fuzz.backends.launch_trace.trace import TraceResult
from fuzz.model.case import Call
from fuzz.model.finding import Finding
from fuzz.model.recipes.torch_values import to_bits
from fuzz.oracles.comparison.bits import Outputs, Pairs
from fuzz.oracles.execution.case_runner import LARGEST_ARGUMENTS, record_and_replay, replay_launches
from fuzz.oracles.execution.examination import Examination, Values, select_rows
from fuzz.worker.child.serve import reordering


@dataclass(frozen=True)
class Rerun:
    """A call that runs again, for some of the replicas that are examined.

    `rows` are their indices among the replicas, `values` (len(rows), *stored shape) by tensor, `order` permutes the
    order of programs. `pairs` makes of the stacked outputs of the first run and of the rerun what must be the same
    bits. `compare` gives the finding of one replica whose pairs have different bits, None where that is allowed.
    Where `compare` allows what lies within twice the error bounds, `bound_of` gives the bound of a pair from that of
    its output, (rows, *shape); it is None where bits are promised. `wrong` gives the indices of those of several
    replicas of a stack for which it is not allowed that they differ, None where it never is.
    """

    rows: Sequence[int]
    values: Values
    call: Call
    pairs: Callable[[Outputs, Outputs], Pairs]
    compare: Callable[[Examination, Pairs], Finding | None]
    order: int | None = None
    bound_of: Callable[[torch.Tensor], torch.Tensor] | None = None
    wrong: Callable[[Sequence[Examination]], Sequence[int]] | None = None

    @property
    def run_order(self) -> RunOrder:
        launch = self.call.launch
        return RunOrder(self.order, (launch and launch.reduction_order) or 0)

    def select(self, places: Sequence[int]) -> Rerun:
        """The rerun of those at these places of `rows` only."""
        if len(places) == len(self.rows):
            return self
        return replace(self, rows=[self.rows[place] for place in places], values=select_rows(self.values, places))

    @property
    def size(self) -> int:
        """Bytes of all values."""
        return sum(part.nbytes for part in self.values.values())

    def parts(self) -> list[Rerun]:
        """Reruns of some of the rows each, as many as memory for the arguments of replicas may hold, or of one row."""
        count = max(1, len(self.rows) * LARGEST_ARGUMENTS // max(self.size, 1))
        places = range(len(self.rows))
        return [self.select(places[first : first + count]) for first in places[::count]]


def pair_outputs(first: Outputs, again: Outputs) -> Pairs:
    """Every output of the first run with that of the rerun."""
    return {name: (first[name], again[name]) for name in first}


def same_bound(bound: torch.Tensor) -> torch.Tensor:
    """The bound of `pair_outputs`."""
    return bound


Request = tuple[Sequence[Examination], Rerun]
"""A rerun and the replicas of which it has the rows."""


def run_again(requests: Sequence[Request]) -> Iterator[Iterator[tuple[Sequence[int], Outputs]]]:
    """(rows, their outputs) of each rerun: replicas that can be replayed together, then the others one by one.

    All are of one plan. A replica whose rerun does harm to memory is left out.
    """
    replayed = _replay_all(requests)
    for number, (exams, rerun) in enumerate(requests):
        if _is_replayable(exams, rerun) and rerun.size > LARGEST_ARGUMENTS:
            yield _results_by_parts(exams, rerun)
        else:
            yield _results(exams, rerun, replayed.get(number))


def _is_replayable(exams: Sequence[Examination], rerun: Rerun) -> bool:
    """Whether replicas of it may run together: those of a stack."""
    return exams[0].stack is not None and len(rerun.rows) > 0


def _results_by_parts(exams: Sequence[Examination], rerun: Rerun) -> Iterator[tuple[Sequence[int], Outputs]]:
    for part in rerun.parts():
        with _noting_order(exams, [part]):
            replayed = _replay(rerun.call.structure, [(exams, part)])
        yield from _results(exams, part, next(iter(replayed), None))


def _results(
    exams: Sequence[Examination], rerun: Rerun, replayed: TraceResult | None
) -> Iterator[tuple[Sequence[int], Outputs]]:
    alone: Sequence[int] = range(len(rerun.rows))
    if replayed is not None:
        together = np.flatnonzero(replayed.intact).tolist()
        if together:
            yield [rerun.rows[place] for place in together], select_rows(replayed.outputs, together)
        alone = np.flatnonzero(~replayed.intact).tolist()
    for place in alone:
        row = rerun.rows[place]
        with _noting_order(exams, [rerun]):
            outputs = exams[row].rerun(rerun.call, rerun.order, words_of(rerun.values, place))
        if outputs is not None:
            yield [row], {name: output[None] for name, output in outputs.items()}


def _replay_all(requests: Sequence[Request]) -> dict[int, TraceResult]:
    """By the number of a request what its replicas give together; those whose launches cannot be replayed are missing,
    and those that are too large by themselves.

    Reruns of calls of one structure run at once, as many as memory for the arguments of replicas may hold.
    """
    groups: dict[object, list[int]] = {}
    for number, (exams, rerun) in enumerate(requests):
        if _is_replayable(exams, rerun) and rerun.size <= LARGEST_ARGUMENTS:
            groups.setdefault(rerun.call.structure, []).append(number)
    found: dict[int, TraceResult] = {}
    for structure, numbers in groups.items():
        while numbers:
            sizes = accumulate(requests[number][1].size for number in numbers)
            count = sum(size <= LARGEST_ARGUMENTS for size in sizes)
            chosen, numbers = numbers[:count], numbers[count:]
            with _noting_order(requests[0][0], [requests[number][1] for number in chosen]):
                replayed = _replay(structure, [requests[number] for number in chosen])
            found.update(zip(chosen, replayed, strict=False))
    return found


def _noting_order(exams: Sequence[Examination], reruns: Sequence[Rerun]) -> AbstractContextManager[None]:
    """Notes for a block, where programs of some of the reruns run in another order, that these may wait for ever."""
    permuted = exams[0].backend.permutes_programs and any(rerun.order is not None for rerun in reruns)
    return reordering() if permuted else nullcontext()


def _replay(structure: object, requests: Sequence[Request]) -> list[TraceResult]:
    """What each of the reruns gives, all of calls of one structure; none where they cannot be replayed."""
    exams, rerun = requests[0]
    exam = exams[rerun.rows[0]]
    assert exam.stack is not None
    counts = [len(one.rows) for _, one in requests]
    if structure in exam.stack.traces:
        trace = exam.stack.traces[structure]
        replayed = replay_launches(exam.backend, trace, *_joined(requests)) if trace else None
    elif sum(counts) == 1:
        return []
    else:
        kept: list[CompletedCall] = []
        outputs = exam.rerun(rerun.call, rerun.order, words_of(rerun.values, 0), kept)
        if outputs is None:
            return []
        values, orders = _joined(requests)
        trace, replayed = record_and_replay(exam.backend, kept[0], values, outputs, orders)
        exam.stack.traces[structure] = trace
    return [] if replayed is None else replayed.split(counts)


def _joined(requests: Sequence[Request]) -> tuple[Values, list[RunOrder]]:
    """The values and orders of the replicas of all reruns, one rerun after the other."""
    orders = [order for _, rerun in requests for order in [rerun.run_order] * len(rerun.rows)]
    parts = [rerun.values for _, rerun in requests]
    if len(parts) == 1:
        return parts[0], orders
    return {name: torch.cat([as_words(part[name]) for part in parts]) for name in parts[0]}, orders


def words_of(values: Values, place: int) -> dict[str, np.ndarray]:
    """The words of the replica at this place, by tensor."""
    return {name: to_bits(part[place]) for name, part in values.items()}
