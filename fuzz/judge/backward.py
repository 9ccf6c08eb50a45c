"""Draws cases of a problem in which the solution is differentiated, where it can be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fuzz.judge.input_domain import declared_case, ordinary_case
from fuzz.judge.problem import ProblemDescription
from fuzz.judge.processes.isolated_worker import IsolatedWorker
from fuzz.judge.processes.requests import OutputComparison, SolutionReport
from fuzz.model.case import Case
from fuzz.model.recipes import recipe
from fuzz.search.engines.random import RandomEngine
from fuzz.target.spec import Target

CASES = 8
"""Cases whose gradients are compared."""


def backward_cases(
    worker: IsolatedWorker, target: Target, description: ProblemDescription, dims: Mapping[str, int], seed: int
) -> Iterator[Case]:
    """Cases at the first dims and at others, with the problem's values and with normal ones.

    None where the solution is not differentiable: where it returns no
    gradient, or launches a kernel outside of autograd's functions, which then does not know of it. None either where
    the reference has no gradient that can be trusted.
    """
    if not target.cotangents:
        return
    first = declared_case(target, description, dict(dims), seed)
    if not has_gradients(worker, first):
        return
    yield first
    engine = RandomEngine(target, seed)
    for number in range(1, CASES):
        other = {**dims, **engine.case(number).last.dims} if number % 2 else dict(dims)
        case = declared_case(target, description, other, seed + 64 * number)
        if number % 4 > 1:
            case = ordinary_case(target, description, case.last, seed + 64 * number, recipe("normal"))
        yield case


def has_gradients(worker: IsolatedWorker, case: Case) -> bool:
    """Whether a solution returns gradients, autograd follows its kernels, and the problem's own can be computed."""
    ran = worker.run(case)
    if not isinstance(ran, SolutionReport) or ran.is_cut or not ran.outputs:
        return False
    if not any(f"d{name}" in ran.outputs[-1] for name in case.last.arguments):
        return False
    compared = worker.compare(case, ran.outputs[-1])
    return isinstance(compared, OutputComparison) and not compared.refusal
