"""The oracle `history`: calls of one module, one after the other, each give what a first call gives.

The same memory with new values, new memory with the same values, changed parameters, all of them and each alone, other
dims in between, many calls, and values that only an exact comparison of all elements tells apart: what a solution keeps
of earlier calls shows itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_

from fuzz.judge.checks.fingerprints import (
    EXCHANGED,
    MOVED,
    REVERSED,
    exchange_two,
    move_little,
    reverse_middle,
    whole_call,
)
from fuzz.judge.problem.description import OWN, ProblemDescription
from fuzz.judge.problem.input_domain import declared_case, ordinary_case, with_state_of
from fuzz.judge.processes.isolated_worker import IsolatedWorker
from fuzz.judge.processes.requests import OutputComparison, Outputs, SolutionReport, same_words
from fuzz.judge.result.judgement import HISTORY, Evidence
from fuzz.model.case import Call, Case
from fuzz.model.rate import Rate
from fuzz.model.recipes import recipe
from fuzz.target.spec import Target

COUNTED = 24
"""Calls with new values after the others: a solution may be right for the first ten."""


@dataclass(frozen=True)
class Step:
    """A call by its number, whether its tensors lie in the memory of the step before, and what is new in it.

    `changes_weights` says that parameters change in place, `is_late` that it comes after many others.
    """

    call: int
    same_memory: bool
    meaning: str
    changes_weights: bool = False
    is_late: bool = False


STEPS = (
    Step(4, False, "the problem's own parameters"),
    Step(0, True, "other parameters in the same memory", changes_weights=True),
    Step(1, True, "new values in the same memory"),
    Step(0, False, "the first values in new memory"),
    Step(2, True, "changed parameters in the same memory", changes_weights=True),
    Step(3, False, "other dims"),
    Step(0, False, "the first call again after other dims"),
    Step(9, True, f"{MOVED}, in the same memory"),
    Step(0, True, "the first values in the same memory"),
)
LATE_STEPS = (
    *(Step(number % 2, number % 3 == 0, "the same again and again", is_late=True) for number in range(COUNTED)),
    Step(6, False, "new values, whole numbers", is_late=True),
    Step(6, True, "the same once more", is_late=True),
    Step(7, True, f"{EXCHANGED}, in the same memory", is_late=True),
    Step(8, True, f"{REVERSED}, in the same memory", is_late=True),
    Step(6, False, "whole numbers in new memory", is_late=True),
    Step(7, False, f"{EXCHANGED}, in new memory", is_late=True),
    Step(5, False, "new values after all others", is_late=True),
)
OTHER_DIMS = 3
"""The call that has other dims."""
NEW_VALUES = 5
"""A call whose values differ from those of all others, with the parameters of the first one."""
CHANGED = "its parameters were changed in place, by copy_, which autograd counts as a new version"
LIKE_OTHERS = (7, 8, 9)
"""Calls whose values are like those of other calls: a solution that takes them for the same launches nothing."""
CHANGED_ALONE = 10
"""The first of the calls that differ from the first one in one parameter only."""
MOST_ALONE = 8
"""Parameters that are changed alone."""
ON_STATE = (2, 4)
"""Calls that differ from the first one in their state only."""


def examine_history(
    worker: IsolatedWorker, target: Target, description: ProblemDescription, dims: dict[str, int], seed: int
) -> Evidence | None:
    """The evidence that a call depends on those before it; None where none does, or a first call is not right."""
    calls = make_calls(target, description, dims, seed)
    with_state = any(one.is_state and one.domain != OWN for one in description.arguments.values())
    early = [step for step in STEPS if with_state or step.call not in ON_STATE]
    changed = change_each_alone(calls, description)
    steps = [*early, *alone_steps(list(changed)), *LATE_STEPS]
    case = Case(target.name, (*calls, *changed.values()))
    worker.restart()
    ran = worker.run(case, steps=[(step.call, step.same_memory) for step in steps])
    if not isinstance(ran, SolutionReport):
        # It may refuse other dims; what it raises in a single call is seen there.
        steps = [step for step in steps if step.call != OTHER_DIMS]
        ran = worker.run(case, steps=[(step.call, step.same_memory) for step in steps])
    if not isinstance(ran, SolutionReport):
        return None
    found = find_wrong_step(worker, case, steps, ran) or find_kept(case, steps, ran)
    return found or find_kept_behind_launches(worker, case) if worker.log.launches else found


def make_calls(target: Target, description: ProblemDescription, dims: dict[str, int], seed: int) -> list[Call]:
    """Two calls with the same state, one with another state, one with other dims, and one with the problem's state.

    The sixth has the state of the first two, and so have three whose values are the same numbers in other orders, and
    the last one, whose values are nearly those of the first.
    """
    plain = declared_case(target, description, dims, seed).last
    own = plain
    first, second, third, last = (
        ordinary_case(target, description, plain, seed + 64 * number, recipe("normal")).last for number in range(4)
    )
    second, last = (with_state_of(call, first, description) for call in (second, last))
    for name, one in description.arguments.items():
        if not one.is_state:
            third = third.with_argument(name, first.arguments[name])
            own = own.with_argument(name, first.arguments[name])
    other_dims = dims | {
        one.name: one.clamp(dims[one.name] + one.multiple + (dims[one.name] > 8)) for one in target.sizes
    }
    other = declared_case(target, description, other_dims, seed + 512).last
    whole = whole_call(target, description, first, seed + 1024)
    same = exchange_two(whole, description), reverse_middle(whole, description)
    return [first, second, third, other, own, last, whole, *same, move_little(first, description)]


def change_each_alone(calls: Sequence[Call], description: ProblemDescription) -> dict[str, Call]:
    """By parameter, the first call with that one of the third call, which has others; of at most MOST_ALONE."""
    first, third = calls[0], calls[2]
    names = [name for name, one in description.arguments.items() if one.is_state and one.domain != OWN]
    # One parameter alone has been changed already.
    return {name: first.with_argument(name, third.arguments[name]) for name in names[:MOST_ALONE] if len(names) > 1}


def alone_steps(names: Sequence[str]) -> list[Step]:
    """Steps that change one parameter and then take it back, for each of them."""
    changes = (Step(CHANGED_ALONE + number, True, f"{name} changed alone", True) for number, name in enumerate(names))
    back = Step(0, True, "the first parameters again", changes_weights=True)
    return [step for change in changes for step in (change, back)]


def find_wrong_step(
    worker: IsolatedWorker, case: Case, steps: Sequence[Step], ran: SolutionReport, places: Iterable[int] | None = None
) -> Evidence | None:
    """The first step whose outputs are wrong though the first call's are right; of `places` only, where given.

    What has the words of an earlier step of the same call that was looked at is not compared again.
    """
    looked_at: dict[int, Outputs] = {}
    for index in range(len(steps)) if places is None else places:
        step, outputs = steps[index], ran.outputs[index]
        if step.call in looked_at and same_words(looked_at[step.call], outputs):
            continue
        single = Case(case.target, (case.calls[step.call],))
        compared = worker.compare(single, outputs)
        looked_at.setdefault(step.call, outputs)
        if not isinstance(compared, OutputComparison) or compared.finding is None or compared.is_excused:
            continue
        if index == 0:
            return None
        worker.restart()
        alone = worker.run(single)
        if not isinstance(alone, SolutionReport) or has_finding(worker, single, alone):
            continue
        earlier = (number for number in range(index) if steps[number].call != step.call)
        stale = next((number for number in earlier if same_words(ran.outputs[number], outputs)), None)
        after = CHANGED if step.changes_weights else "earlier calls"
        symptom, text = "state", f"it is wrong after {after}: {compared.finding.message}"
        if stale is not None:
            symptom, text = "stale", f"it returns what call {stale + 1} gave ({step.meaning})"
        elif step.is_late:
            symptom, text = "counted", f"it is right for {index} calls and wrong in the next one"
        return Evidence(
            HISTORY, compared.finding.outputs, symptom, text, "high", "ordinary", single, None, Rate(1, 1),
            details=(f"call {index + 1}: {step.meaning}",),
        )  # fmt: skip
    return None


def find_kept(case: Case, steps: Sequence[Step], ran: SolutionReport) -> Evidence | None:
    """The evidence that results are kept by their inputs' values: only values that are new take all of the work.

    They alone launch any kernel, or every one of them takes more operations, or one of them more often, than any
    that it was given before, or than any that it was given in the call before. Its first call, in which it may prepare
    what it needs later, and a branch that depends on values look otherwise: the same values then take as many
    operations each time, and new ones no more after many calls.
    """
    for direct in (False, True):
        new, again = split_steps(steps, direct)
        if not again:
            continue
        given = "in the call before" if direct else "before"
        new_operations, again_operations = ([ran.step_operations[index] for index in part] for part in (new, again))
        most, least = max(map(len, again_operations)), min(map(len, new_operations))
        additional = find_additional(new_operations, again_operations)
        if not any(ran.step_launches[index] for index in again) and all(ran.step_launches[index] for index in new):
            text = f"it launches no kernel for values that it was given {given}: it keeps what it returned for them"
        elif most < least:
            only = f" ({', '.join(additional)} only there)" if additional else ""
            text = (
                f"it takes {most} operations for values that it was given {given}, and at least {least} for others"
                f"{only}, after many calls too: it keeps what it returned"
            )
        elif additional:
            text = f"only values that it was not given {given} take {', '.join(additional)}: it keeps what it returned"
        else:
            continue
        single = Case(case.target, (case.calls[0],))
        outputs = tuple(ran.outputs[0])
        return Evidence(HISTORY, outputs, "kept", text, "high", "ordinary", single, None, Rate(1, 1))
    return None


def find_kept_behind_launches(worker: IsolatedWorker, case: Case) -> Evidence | None:
    """The evidence that results are kept though kernels are launched: what these write matters for new values only.

    A kernel that prepares something, such as weights, in a first call may matter for no values later.
    """
    calls = (0, 1, 0, 0, NEW_VALUES)
    again, new = len(calls) - 2, len(calls) - 1
    worker.restart()
    ran = worker.run(case, steps=[(number, index > 0) for index, number in enumerate(calls)], spoiled=(again, new))
    if not isinstance(ran, SolutionReport) or len(ran.outputs) < len(calls) or not ran.step_launches[again]:
        return None
    unseen = Case(case.target, (case.calls[NEW_VALUES],))
    compared = worker.compare(unseen, ran.outputs[new])
    is_wrong = isinstance(compared, OutputComparison) and compared.finding is not None and not compared.is_excused
    if not is_wrong or not same_words(ran.outputs[again], ran.outputs[again - 1]):
        return None
    text = "what its kernels write matters only for values that it was not given before: it keeps what it returned"
    single = Case(case.target, (case.calls[0],))
    return Evidence(HISTORY, tuple(ran.outputs[0]), "kept", text, "high", "ordinary", single, None, Rate(1, 1))


def find_additional(new: Sequence[Sequence[str]], again: Sequence[Sequence[str]]) -> list[str]:
    """The operations that every call with new values takes, or more often than any other call does."""
    return sorted(reduce(and_, map(Counter, new)) - reduce(or_, map(Counter, again)))


def split_steps(steps: Sequence[Step], direct: bool) -> tuple[list[int], list[int]]:
    """The indices of calls that are made for the first time, and of those that are made again: right after, or later.

    Calls with other dims, and those that a solution may take for others, are left out.
    """
    seen: set[int] = set()
    new: list[int] = []
    again: list[int] = []
    for index, step in enumerate(steps):
        if step.call in (OTHER_DIMS, *LIKE_OTHERS):
            continue
        if step.call not in seen:
            new.append(index)
        elif not direct or step.call == steps[index - 1].call:
            again.append(index)
        seen.add(step.call)
    return new, again


def has_finding(worker: IsolatedWorker, case: Case, ran: SolutionReport) -> bool:
    compared = worker.compare(case, ran.outputs[-1])
    return not isinstance(compared, OutputComparison) or compared.finding is not None and not compared.is_excused
