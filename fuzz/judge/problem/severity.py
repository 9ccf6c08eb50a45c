"""Grades what is wrong with a solution beside the domain that its problem declares.

The rule is that of fuzz/triage/severity.py: the most ordinary inputs that show a bug give its severity.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice, repeat
from random import Random

from fuzz.judge.problem.description import OWN, ProblemDescription
from fuzz.judge.problem.input_domain import ORDINARY_RECIPES, declared_case
from fuzz.model.case import Argument, Case
from fuzz.model.edit import map_tensors, with_launch
from fuzz.model.finding import Finding
from fuzz.model.grade import SEVERITIES, SEVERITY_OF_CLASS, Grade, TypicalCase
from fuzz.model.layout import CONTIGUOUS
from fuzz.model.recipes import Recipe
from fuzz.shrink.shrinker import Budget
from fuzz.target.spec import Target
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
RATE_REPLICAS = 10
"""Replicas of the typical plan of which the rate is counted."""
LOWER = {"high": "medium", "medium": "low", "low": "low"}


@dataclass(frozen=True)
class DomainPlans:
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


def grade_in_domain(bug: Bug, origin: Case, triage: Triage, description: ProblemDescription, budget: Budget) -> Grade:
    """The severity of a bug by triage's rule, beside the domain that a problem declares; `origin` first showed it.

    What values, dtypes and layouts beyond that domain show counts one step lower, though what ordinary values show is
    at least medium, and so is what breaks a promise. An offset beyond 32 bits is low, and so is what takes both another
    dtype than the problem's and other values.
    """
    plans = DomainPlans(description, origin)
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


def grade_by_origin(bug: Bug, origin: Case, target: Target, plans: DomainPlans) -> Grade:
    """The severity where the time for grading ends, by the case that first showed a bug."""
    name = "ordinary" if plans.is_ordinary(origin) else classify(bug.case, target)
    typical = TypicalCase(origin, bug.sought, bug.rate)
    return Grade(SEVERITY_OF_CLASS[name], name, typical, reason="the time for grading ended")
