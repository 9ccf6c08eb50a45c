"""Inputs as a problem makes them, and severities beside that domain."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuzz.judge.input_domain import DECLARED, Plans, declared_case, grade_by_origin, lower_severity
from fuzz.judge.problem import OWN, ArgumentDescription, ProblemDescription
from fuzz.judge.target import make_target
from fuzz.model.dims import Size
from fuzz.model.finding import Finding
from fuzz.model.layout import Layout
from fuzz.model.recipes import recipe
from fuzz.model.severity import Grade
from fuzz.triage.bug import Bug, Example, Sighting

PROBLEM = ProblemDescription(
    "p", (Size("N", 1, 4096), Size("C", 4, 64, 4)), {"N": 8, "C": 8}, {"N": 8, "C": 8},
    {
        "x": ArgumentDescription(("N", "C"), "float32", declared=recipe("uniform", exponent=0, signed=0)),
        "labels": ArgumentDescription(("N",), "int64", OWN),
    },
)  # fmt: skip
ACCURACY, BOUNDS = Finding("accuracy", ("out",), "value", ""), Finding("bounds", ("x",), "stray-read", "")


def test_what_a_problem_makes_is_drawn_first_and_known_again() -> None:
    target, plans = make_target(PROBLEM), Plans(PROBLEM)
    case = declared_case(target, PROBLEM, {"N": 3, "C": 7}, 5)
    assert dict(case.last.dims) == {"N": 3, "C": 4}
    drawn = list(plans(case, target, "ordinary"))
    assert plans.is_declared(case) and plans.is_declared(drawn[0]) and not all(map(plans.is_declared, drawn))
    x = case.last.arguments["x"]
    for other in (
        replace(x, dtype="float16"),
        replace(x, values=recipe("normal")),
        replace(x, layout=Layout(offset=1)),
    ):
        assert not plans.is_declared(case.with_call(0, case.last.with_argument("x", other)))


@pytest.mark.parametrize(
    ("values", "severity"), [("uniform", "high"), ("normal", "high"), ("zeros", "high"), ("huge", "low")]
)
def test_where_the_time_for_grading_ends_the_first_case_decides(values: str, severity: str) -> None:
    target, plans = make_target(PROBLEM), Plans(PROBLEM)
    case = declared_case(target, PROBLEM, {"N": 3, "C": 8}, 5)
    x = case.last.arguments["x"]
    if values != "uniform":
        case = case.with_call(0, case.last.with_argument("x", replace(x, values=recipe(values, 7))))
    bug = Bug(Example(case, ACCURACY), Sighting(case, "value"))
    grade = grade_by_origin(bug, case, target, plans)
    assert grade.severity == severity and plans.name_class(grade) == (
        DECLARED if values == "uniform" else grade.input_class
    )


@pytest.mark.parametrize(
    ("input_class", "severity", "within", "finding", "expected"),
    [
        ("ordinary", "high", True, ACCURACY, "high"),
        ("ordinary", "high", False, ACCURACY, "medium"),
        ("ordinary", "medium", False, ACCURACY, "medium"),
        ("special", "medium", False, ACCURACY, "low"),
        ("layout", "medium", False, ACCURACY, "low"),
        ("layout", "medium", False, BOUNDS, "low"),
        ("ordinary", "low", True, ACCURACY, "low"),
        ("special", "medium", False, BOUNDS, "medium"),
        ("extreme", "low", False, BOUNDS, "low"),
    ],
)
def test_what_lies_beyond_the_domain_counts_one_step_lower(
    input_class: str, severity: str, within: bool, finding: Finding, expected: str
) -> None:
    grade = Grade(severity, input_class)
    assert lower_severity(grade, within, finding, make_target(PROBLEM)).severity == expected
