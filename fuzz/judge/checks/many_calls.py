"""Makes many calls of one shape with changing values: KernelBench's timing makes 100 of them after a few to warm up."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from fuzz.judge.checks.fingerprints import exchange_two, whole_call
from fuzz.judge.checks.history import Step, find_wrong_step
from fuzz.judge.problem.description import ProblemDescription
from fuzz.judge.problem.input_domain import declared_case, ordinary_case, with_state_of
from fuzz.judge.processes.isolated_worker import IsolatedWorker
from fuzz.judge.processes.requests import Outputs, SolutionReport, same_words
from fuzz.judge.result.judgement import Evidence
from fuzz.model.case import Case
from fuzz.model.recipes import recipe
from fuzz.target.spec import Target
from fuzz.worker.protocol import Report

TIMED, MANY = 100, 136
"""Calls that are timed at most, and calls that are made."""
SMALL_SIZE = 8
"""The largest size of a dim in calls that cost little."""
SECONDS = {False: 40.0, True: 8.0}
"""Seconds after which no more calls are made, by whether they have the dims of the first cases."""
DIFFERING = 16
"""Calls that are compared, where more give other words than the first call with the same values."""
VALUES, OWN_VALUES = (7, 4), (3, 1)
"""Different values that are drawn from the beginning, and those that are new after the timed calls. The last two of the
former are the same numbers in another order."""
MEANING = "one of many calls of one shape, in the same memory, with values that change"


def examine_many_calls(
    worker: IsolatedWorker, target: Target, description: ProblemDescription, own_dims: bool, seed: int
) -> tuple[str, Evidence | None]:
    """What was done in words, and the evidence that one of many calls is wrong though the first is right.

    They have the dims of the first cases with `own_dims`, as long as time allows, else small ones where the solution
    takes them.
    """
    first = dict(description.dims)
    small = first | {one.name: one.clamp(min(first[one.name], SMALL_SIZE)) for one in description.sizes}
    random = Random(seed)
    early, late = OWN_VALUES if own_dims else VALUES
    order = draw_order(random, early, late)
    for dims in [first] if own_dims else [small, first]:
        plain = declared_case(target, description, dims, seed).last
        calls = [
            ordinary_case(target, description, plain, seed + 64 * number, recipe("normal")).last
            for number in range(early + late)
        ]
        calls = [with_state_of(call, calls[0], description) for call in calls]
        whole = whole_call(target, description, calls[0], seed + 64 * len(calls))
        calls[early - 2 : early] = whole, exchange_two(whole, description)
        case = Case(target.name, tuple(calls))
        steps = [Step(number, index > 0, MEANING, is_late=True) for index, number in enumerate(order)]
        ran = run_for(SECONDS[own_dims], worker, case, steps)
        if isinstance(ran, SolutionReport):
            made = order[: len(ran.outputs)]
            shape = " ".join(f"{name}={size}" for name, size in plain.dims.items()) or "the only dims"
            kind = f"{len(made)} calls at {shape}"
            return kind, find_wrong_step(worker, case, steps, ran, find_places(random, made, ran.outputs))
    return "no more calls at one shape", None


def run_for(seconds: float, worker: IsolatedWorker, case: Case, steps: Sequence[Step]) -> SolutionReport | Report:
    """What the solution gives for steps, in a new process, as many as there is time for."""
    seconds = min(seconds, worker.solution.deadline.seconds_left / 2)
    worker.restart()
    timeout = worker.timeout
    worker.timeout = timeout + seconds
    try:
        return worker.run(case, steps=[(step.call, step.same_memory) for step in steps], seconds=seconds)
    finally:
        worker.timeout = timeout


def draw_order(random: Random, early: int, late: int) -> list[int]:
    """Which values each call has, by number: each of the late ones for the first time after the timed calls."""
    before = [random.randrange(early) for _ in range(TIMED)]
    after = [*range(early, early + late), *(random.randrange(early + late) for _ in range(MANY - TIMED - late))]
    random.shuffle(after)
    return [*before, *after]


def find_places(random: Random, order: Sequence[int], outputs: Sequence[Outputs]) -> list[int]:
    """The calls to compare with the reference: the first with each values, and those that give other words than it.

    Of the latter only some where there are many, at random places and at the end: atomics add in any order on a GPU.
    """
    first = {number: order.index(number) for number in order}
    differing = [index for index, number in enumerate(order) if not same_words(outputs[index], outputs[first[number]])]
    drawn = random.sample(differing, min(DIFFERING, len(differing)))
    return sorted({*first.values(), *drawn, *differing[-1:]})
