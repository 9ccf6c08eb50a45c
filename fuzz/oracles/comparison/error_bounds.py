"""Gives the error bounds of outputs, within which two runs may differ where a target promises no bits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch

from fuzz.backends.guarded_memory import DTYPE_NAMES
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.oracles.comparison.batch_rows import select_expected
from fuzz.oracles.comparison.bits import Outputs, Pairs, within_bound
from fuzz.oracles.comparison.elements import error_bounds
from fuzz.oracles.comparison.expected import STAGES, THOROUGH, evaluate_reference
from fuzz.oracles.execution.examination import Examination, ScreenedReference
from fuzz.reference.envelope import Expected, Precision


def output_bounds(exam: Examination) -> Iterator[Outputs]:
    """How far each element of the last call's outputs may be from the exact value: whole numbers not at all, or where
    rounding decides them anywhere.

    The bounds of one stage after another up to THOROUGH: they only grow. The first stage is the first one that has been
    evaluated, alone or by screening, if one has.
    """
    last = len(exam.plan.calls) - 1
    first = exam.screened.stage if exam.screened else min(exam.expected.get(last, ()), default=0)
    for stage in range(first, STAGES.index(THOROUGH) + 1):
        expected = evaluate_reference(exam, last, stage)
        yield {name: bound_of_output(one, exam.outputs[name], exam.precision) for name, one in expected.items()}


def bound_of_output(expected: Expected, output: torch.Tensor, precision: Precision) -> torch.Tensor:
    """The bound of each element that is expected, on the output's device; replicas may be stacked."""
    bound = torch.where(expected.spread > 0, math.inf, 0.0)
    if output.is_floating_point():
        bound = error_bounds(expected, named_dtype(DTYPE_NAMES[output.dtype]), precision)[2]
    return bound.to(output.device)


def screened_bounds(exams: Sequence[Examination]) -> Iterator[tuple[list[int], Outputs]]:
    """(places of replicas, the first of their `output_bounds`, stacked) for those that were screened at one stage."""
    together: dict[int, list[tuple[int, ScreenedReference]]] = {}
    for place, exam in enumerate(exams):
        if exam.screened:
            together.setdefault(id(exam.screened.expected), []).append((place, exam.screened))
    for group in together.values():
        first, rows = exams[group[0][0]], [screened.row for _, screened in group]
        yield (
            [place for place, _ in group],
            {
                name: bound_of_output(select_expected(one, rows), first.outputs[name], first.precision)
                for name, one in group[0][1].expected.items()
            },
        )


def drifting_places(
    exams: Sequence[Examination], pairs: Pairs, places: Sequence[int], bound_of: Callable[[torch.Tensor], torch.Tensor]
) -> list[int]:
    """Those of `places` whose pairs may differ by more than twice the bounds, as far as screening has evaluated them.

    Exams and pairs, (len(exams), *shape) each, are of replicas of one plan. `bound_of` gives the bound of a pair from
    that of its output, both stacked.
    """
    allowed: set[int] = set()
    for group, bounds in screened_bounds([exams[place] for place in places]):
        some = [places[number] for number in group]
        agrees = torch.ones(len(some), dtype=torch.bool)
        for name, pair in pairs.items():
            got, other = (one[some] for one in pair)
            within = within_bound(got, other, bound_of(bounds[name]))
            agrees &= within.reshape(len(some), math.prod(within.shape[1:])).all(1).cpu()
        allowed.update(place for place, same in zip(some, agrees.tolist(), strict=True) if same)
    return [place for place in places if place not in allowed]
