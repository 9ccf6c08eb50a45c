"""Inputs as a problem makes them, and severities beside that domain."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fuzz.judge.problem.description import OWN, ArgumentDescription, ProblemDescription
from fuzz.judge.problem.input_domain import ORDINARY_RECIPES, declared_case, with_possible_layouts
from fuzz.judge.problem.severity import DECLARED, DomainPlans, grade_by_origin, lower_severity
from fuzz.judge.problem.target import make_target
from fuzz.model.case import Argument, Call
from fuzz.model.dims import Size
from fuzz.model.dtypes import dtype as named_dtype
from fuzz.model.finding import Finding
from fuzz.model.grade import Grade
from fuzz.model.layout import CONTIGUOUS, Layout
from fuzz.model.recipes import Recipe, exact, recipe
from fuzz.triage.bug import Bug, Example, Origin

PROBLEM = ProblemDescription(
    "p", (Size("N", 1, 4096), Size("C", 4, 64, 4)), {"N": 8, "C": 8}, {"N": 8, "C": 8},
    {
        "x": ArgumentDescription(("N", "C"), "float32", declared=recipe("uniform", exponent=0, signed=0)),
        "labels": ArgumentDescription(("N",), "int64", OWN),
    },
)  # fmt: skip
LARGE = recipe("normal", 9, exponent=7)
ACCURACY, BOUNDS = Finding("accuracy", ("out",), "value", ""), Finding("bounds", ("x",), "stray-read", "")


def test_what_a_problem_makes_is_drawn_first_and_known_again() -> None:
    target, plans = make_target(PROBLEM), DomainPlans(PROBLEM)
    case = declared_case(target, PROBLEM, {"N": 3, "C": 7}, 5)
    assert dict(case.last.dims) == {"N": 3, "C": 4}
    drawn = list(plans(case, target, "ordinary"))
    undeclared = [plans.count_undeclared(one) for one in (case, *drawn)]
    assert undeclared[:2] == [0, 0] and undeclared[-1] == 1
    x = case.last.arguments["x"]
    for other in (
        replace(x, dtype="float16"),
        replace(x, values=recipe("normal")),
        replace(x, layout=Layout(offset=1)),
    ):
        assert plans.count_undeclared(case.with_call(0, case.last.with_argument("x", other))) == 1
    other = replace(x, values=recipe("normal"), dtype="float16")
    assert plans.count_undeclared(case.with_call(0, case.last.with_argument("x", other))) == 2


@pytest.mark.parametrize(
    ("values", "severity"), [("uniform", "high"), ("normal", "high"), ("zeros", "high"), ("huge", "low")]
)
def test_where_the_time_for_grading_ends_the_first_case_decides(values: str, severity: str) -> None:
    target, plans = make_target(PROBLEM), DomainPlans(PROBLEM)
    case = declared_case(target, PROBLEM, {"N": 3, "C": 8}, 5)
    x = case.last.arguments["x"]
    if values != "uniform":
        case = case.with_call(0, case.last.with_argument("x", replace(x, values=recipe(values, 7))))
    bug = Bug(Example(case, ACCURACY), Origin(case, "value"))
    grade = grade_by_origin(bug, case, target, plans)
    assert grade.severity == severity and plans.name_class(grade) == (
        DECLARED if values == "uniform" else grade.input_class
    )


@pytest.mark.parametrize(
    ("input_class", "severity", "undeclared", "finding", "expected"),
    [
        ("ordinary", "high", 0, ACCURACY, "high"),
        ("ordinary", "medium", 0, ACCURACY, "high"),
        ("ordinary", "high", 1, ACCURACY, "medium"),
        ("ordinary", "high", 2, ACCURACY, "low"),
        ("ordinary", "high", 2, BOUNDS, "medium"),
        ("ordinary", "medium", 1, ACCURACY, "medium"),
        ("special", "medium", 1, ACCURACY, "low"),
        ("layout", "medium", 1, ACCURACY, "low"),
        ("layout", "medium", 1, BOUNDS, "low"),
        ("ordinary", "low", 0, ACCURACY, "low"),
        ("special", "medium", 1, BOUNDS, "medium"),
        ("extreme", "low", 1, BOUNDS, "low"),
    ],
)
def test_what_lies_beyond_the_domain_counts_one_step_lower(
    input_class: str, severity: str, undeclared: int, finding: Finding, expected: str
) -> None:
    grade = Grade(severity, input_class)
    assert lower_severity(grade, undeclared, finding, make_target(PROBLEM)).severity == expected


def test_the_ordinary_plans_reach_all_values_and_the_case_that_showed_a_bug() -> None:
    target = make_target(PROBLEM)
    case = declared_case(target, PROBLEM, {"N": 3, "C": 8}, 5)
    large = case.with_call(0, case.last.with_argument("x", replace(case.last.arguments["x"], values=LARGE)))
    drawn = list(DomainPlans(PROBLEM, large)(case, target, "ordinary"))
    values = [one.last.arguments["x"].values for one in drawn]
    normal = [dict(one.params) for one in values if isinstance(one, Recipe) and one.name == "normal"]
    assert {params["exponent"] for params in normal} >= {0, 6, 12}
    assert values[-1] == LARGE and LARGE not in values[:-1]


def test_parameters_are_contiguous_and_what_the_problem_makes_fills_its_memory() -> None:
    state = replace(PROBLEM.arguments["x"], is_state=True)
    description = replace(PROBLEM, arguments={**PROBLEM.arguments, "weight": state})
    strided = Argument(("N", "C"), "float32", recipe("normal"), Layout(offset=1))
    expanded = Argument(("N",), "int64", exact(np.arange(3), named_dtype("int64")), Layout(expand=(0,)))
    call = Call({"N": 3, "C": 8}, {"x": strided, "weight": strided, "labels": expanded}, {})
    found = with_possible_layouts(call, description).arguments
    assert found["x"].layout == Layout(offset=1)
    assert found["weight"].layout == found["labels"].layout == CONTIGUOUS


def test_ordinary_values_come_at_the_first_dims_and_at_others() -> None:
    """The referee takes the first dims for every other case."""
    assert len(ORDINARY_RECIPES) % 2
