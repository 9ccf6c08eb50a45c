"""Draws cases in the domain that a problem declares, and grades what is wrong beside that domain.

The rule is that of fuzz/triage/severity.py: the most ordinary inputs that show a bug give its severity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, islice, repeat
from random import Random

from fuzz.judge.problem.description import OWN, ProblemDescription, Variant
from fuzz.judge.problem.target import declared_argument
from fuzz.judge.processes.isolated_worker import IsolatedWorker
from fuzz.judge.processes.requests import OutputComparison, Refusal, SolutionReport
from fuzz.model.case import Argument, Call, Case
from fuzz.model.dims import Size
from fuzz.model.edit import map_tensors, with_launch
from fuzz.model.finding import Finding
from fuzz.model.grade import SEVERITIES, SEVERITY_OF_CLASS, Grade, TypicalCase
from fuzz.model.layout import CONTIGUOUS
from fuzz.model.recipes import Exact, Recipe, recipe
from fuzz.search.engines.random import RandomEngine
from fuzz.shrink.shrinker import Budget
from fuzz.target.legal import make_call_legal
from fuzz.target.spec import FLOATS, Target
from fuzz.triage.bug import Bug
from fuzz.triage.input_classes import classify, plans, shapes
from fuzz.triage.severity import Grader, states_promise
from fuzz.triage.triage import Triage
from fuzz.worker.deadline import OutOfTime

DECLARED = "declared"
"""The class of inputs that a problem itself makes, the most ordinary of all."""
DRAWS = 2
"""Plans of a problem's own values for each choice of dims."""
SEEDS = 0x5EED
PLANS = {"ordinary": 12, "special": 14, "layout": 5, "extreme": 0}
"""Plans of a class that are tried, beside those of the problem's own values; what nothing shows is extreme."""
REPLICAS = dict.fromkeys(PLANS, 1)
GRADIENT_CASES = 8
"""Cases whose gradients are compared."""
RATE_REPLICAS = 10
"""Replicas of the typical plan of which the rate is counted."""
LOWER = {"high": "medium", "medium": "low", "low": "low"}
ORDINARY_RECIPES = (
    recipe("normal"), recipe("uniform", exponent=1), recipe("normal", exponent=3), recipe("normal", exponent=7),
    recipe("zeros"), recipe("normal", exponent=-4), recipe("normal", exponent=-8),
    recipe("uniform", exponent=10, signed=-1), recipe("uniform", exponent=0, signed=-1),
)  # fmt: skip
"""Values of ordinary size: none beyond 2^10, some as small as what is added to a variance, some all below 0, where the
zeros of a padding would be the largest. Their number is odd, so that each is drawn at small and at other dims."""


@dataclass(frozen=True)
class Plans:
    """The plans of a class of inputs: a problem's own values first, which are ordinary, then those of any target.

    `origin`, the case that first showed a bug, is the last plan of ordinary values if it has such.
    """

    description: ProblemDescription
    origin: Case | None = None

    def __call__(self, case: Case, target: Target, input_class: str) -> Iterator[Case]:
        if input_class == "ordinary":
            yield from self.declared(case, target)
        yield from islice(plans(case, target, input_class, PLANS[input_class]), PLANS[input_class])
        if input_class == "ordinary" and self.origin is not None and self.is_ordinary(self.origin):
            yield self.origin

    def declared(self, case: Case, target: Target) -> Iterator[Case]:
        """Cases as the problem makes them, in the dtypes of a case."""
        sizes = shapes(case, target, Random(target.name), "ordinary")
        for number, dims in enumerate(chain.from_iterable(repeat(one, DRAWS) for one in sizes)):
            drawn = declared_case(target, self.description, dims, SEEDS + 64 * number)
            drawn = map_tensors(drawn, lambda _, name, value: replace(value, dtype=case.last.tensors[name].dtype))
            yield with_launch(drawn, case.last.launch)

    def count_undeclared(self, case: Case) -> int:
        """How much of a case the problem does not make: 1 for a dtype, 1 for values or layouts."""
        pairs = [(one, case.last.arguments[name]) for name, one in self.description.arguments.items()]
        declared = all(
            value.layout == CONTIGUOUS
            and (one.domain == OWN or one.declared is not None and value.values == one.declared.reseed(seed_of(value)))
            for one, value in pairs
        )
        stated = self.description.stated_dtypes
        return any(value.dtype not in {one.dtype, *stated} for one, value in pairs) + (not declared)

    def is_ordinary(self, case: Case) -> bool:
        """Whether a case has nothing but values of ordinary size, or such as the problem makes, contiguous."""
        known = set(ORDINARY_RECIPES)
        return all(
            value.layout == CONTIGUOUS
            and (one.domain == OWN or reseeded(value) in known | {one.declared and one.declared.reseed(0)})
            for one, value in ((one, case.last.arguments[name]) for name, one in self.description.arguments.items())
        )

    def name_class(self, grade: Grade) -> str:
        """The class of the inputs that a severity rests on, DECLARED where the problem makes them."""
        declared = grade.typical is not None and not self.count_undeclared(grade.typical.case)
        return DECLARED if declared else grade.input_class


def reseeded(value: Argument) -> object:
    return value.values.reseed(0) if isinstance(value.values, Recipe) else value.values


def seed_of(value: Argument) -> int:
    return value.values.seed if isinstance(value.values, Recipe) else 0


def grade(bug: Bug, origin: Case, triage: Triage, description: ProblemDescription, budget: Budget) -> Grade:
    """The severity of a bug by triage's rule, beside the domain that a problem declares; `origin` first showed it.

    What values, dtypes and layouts beyond that domain show counts one step lower, though what ordinary values show is
    at least medium, and so is what breaks a promise. An offset beyond 32 bits is low, and so is what takes both another
    dtype than the problem's and other values.
    """
    plans = Plans(description, origin)
    try:
        found = Grader(triage.target, triage, budget, plans, REPLICAS, RATE_REPLICAS).grade(bug)
    except OutOfTime:
        found = grade_by_origin(bug, origin, triage.target, plans)
    shown = found.typical.case if found.typical else origin
    return lower_severity(found, plans.count_undeclared(shown), bug.finding, triage.target)


def lower_severity(grade: Grade, undeclared: int, finding: Finding, target: Target) -> Grade:
    """The grade, a step lower where the inputs that show a finding are none that the problem makes.

    `undeclared` is how much of them it does not make. What it makes itself counts by its class, certified or not: where
    no exact value is known, a bound that is narrow against the error is asked for before.
    """
    if not undeclared:
        certain = grade.severity == "low" or grade.severity == SEVERITY_OF_CLASS[grade.input_class]
        return grade if certain else replace(grade, severity=SEVERITY_OF_CLASS[grade.input_class], reason="")
    if grade.input_class == "layout":
        return replace(grade, severity="low", reason="only in layouts that the problem does not make")
    severity = LOWER[grade.severity]
    if undeclared > 1:
        severity = "low"
    if grade.input_class == "ordinary" and undeclared == 1 or states_promise(finding, target):
        severity = min(grade.severity, "medium", key=SEVERITIES.index)
    return replace(grade, severity=severity, reason=grade.reason or "beyond what the problem makes")


def grade_by_origin(bug: Bug, origin: Case, target: Target, plans: Plans) -> Grade:
    """The severity where the time for grading ends, by the case that first showed a bug."""
    name = "ordinary" if plans.is_ordinary(origin) else classify(bug.case, target)
    typical = TypicalCase(origin, bug.sought, bug.rate)
    return Grade(SEVERITY_OF_CLASS[name], name, typical, reason="the time for grading ended")


def declared_case(target: Target, description: ProblemDescription, dims: dict[str, int], seed: int) -> Case:
    """A case as the problem itself makes it, at these dims."""
    arguments = {
        name: declared_argument(description, name, one.dtype, seed + index)
        for index, (name, one) in enumerate(description.arguments.items())
    }
    sizes = {size.name: dims[size.name] // size.multiple * size.multiple for size in target.sizes}
    return Case(target.name, (make_call_legal(Call(sizes, arguments, {}, draw_cotangents(target, seed)), target),))


def draw_cotangents(target: Target, seed: int) -> dict[str, Argument]:
    """Normal values for the gradients of the outputs, where a target is differentiated."""
    return {
        name: Argument(one.shape, one.dtypes[0], recipe("normal", seed - 1 - index))
        for index, (name, one) in enumerate(target.cotangents.items())
    }


def ordinary_case(target: Target, description: ProblemDescription, call: Call, seed: int, values: Recipe) -> Case:
    """A case with the dims and dtypes of a call, and the same recipe for all that may be random."""
    arguments = {}
    for index, (name, one) in enumerate(description.arguments.items()):
        argument = declared_argument(description, name, call.arguments[name].dtype, seed + index)
        if one.domain != OWN and argument.is_float:
            argument = replace(argument, values=values.reseed(seed + index))
        arguments[name] = argument
    cotangents = draw_cotangents(target, seed)
    return Case(target.name, (make_call_legal(Call(call.dims, arguments, call.options, cotangents), target),))


def with_state_of(call: Call, other: Call, description: ProblemDescription) -> Call:
    """The call with the parameters and buffers of another one."""
    for name, one in description.arguments.items():
        if one.is_state:
            call = call.with_argument(name, other.arguments[name])
    return call


def with_possible_layouts(call: Call, description: ProblemDescription) -> Call:
    """The call with layouts that its tensors may have.

    Parameters are contiguous, as a constructor makes them. Values that only the problem makes, which fill a tensor, lie
    in memory of their own.
    """
    for name, value in call.arguments.items():
        if description.arguments[name].is_state:
            call = call.with_argument(name, replace(value, layout=CONTIGUOUS))
        elif isinstance(value.values, Exact) and value.layout.expand:
            call = call.with_argument(name, replace(value, layout=replace(value.layout, expand=())))
    return call


def with_one_dtype(call: Call, target: Target) -> Call:
    """The call whose arguments that are declared in float32 all have the dtype of the first of them."""
    names = [name for name, one in target.tensors.items() if one.dtypes == FLOATS[:1]]
    for name in names:
        call = call.with_argument(name, replace(call.arguments[name], dtype=call.arguments[names[0]].dtype))
    return call


def variant_cases(
    worker: IsolatedWorker, make_target: Callable[..., Target], seed: int
) -> Iterator[tuple[Variant, Case | None]]:
    """Each variant with a case of the problem's own values; None where it is too large here, or cannot be drawn."""
    for number, variant in enumerate(worker.description.variants):
        target = make_target(*filter(None, [variant.dtype]))
        dims = possible_dims(worker.description, variant)
        fits = dims is not None and not isinstance(worker.problem.setting(dims), Refusal)
        is_drawn = not variant.dtype or is_drawn_in(worker.description, variant.dtype)
        if dims is None or not fits or not is_drawn:
            yield variant, None
            continue
        case = declared_case(target, worker.description, dims, seed + 64 * number)
        yield variant, in_dtype(case, variant.dtype) if variant.dtype else case


def possible_dims(description: ProblemDescription, variant: Variant) -> dict[str, int] | None:
    """The dims of a variant; None where it gives one that is not free another value, or a size that is not allowed.

    It may be larger than those that are drawn.
    """
    dims = {**description.dims, **dict(variant.dims)}
    free = {size.name: size for size in description.sizes}
    own = description.own_dims
    possible = all(
        is_allowed(size, free[name]) if name in free else size in (own.get(name), description.dims.get(name))
        for name, size in dims.items()
    )
    return {name: size for name, size in dims.items() if name in free} if possible else None


def is_allowed(size: int, dim: Size) -> bool:
    return size >= dim.low and size % dim.multiple == 0


def is_drawn_in(description: ProblemDescription, dtype: str) -> bool:
    """Whether all floating arguments can have a dtype: what only the problem makes, it makes in its first one."""
    arguments = description.arguments.values()
    return not any(one.domain == OWN and one.dtype in FLOATS and one.dtype != dtype for one in arguments)


def in_dtype(case: Case, dtype: str) -> Case:
    """The case with all floating arguments in a dtype."""
    return map_tensors(case, lambda _, name, value: replace(value, dtype=dtype) if value.is_float else value)


def accepts(worker: IsolatedWorker, target: Target, dims: dict[str, int], dtype: str, seed: int) -> bool:
    """Whether the solution computes in a dtype that the problem does not state, and says so by its outputs."""
    if not is_drawn_in(worker.description, dtype):
        return False
    call = declared_case(target, worker.description, dims, seed).last
    for name, one in call.arguments.items():
        if one.dtype == FLOATS[0]:
            call = call.with_argument(name, replace(one, dtype=dtype))
    answer = worker.run(Case(target.name, (call,)))
    if not isinstance(answer, SolutionReport):
        return False
    floats = [value.dtype for value in answer.outputs[-1].values() if value.dtype in FLOATS]
    return bool(floats) and set(floats) == {dtype}


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
    for number in range(1, GRADIENT_CASES):
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
