"""What scripts read of a finding."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from fuzz.model.case import Case
from fuzz.model.entry import Entry
from fuzz.model.grade import Grade, TypicalCase
from fuzz.model.rate import Rate
from fuzz.report.json import finding_json, run_json
from fuzz.run.options import RunOptions
from fuzz.run.result import Result
from fuzz.search.statistics import RunStatistics
from fuzz.triage.bug import Bug, Example, Origin


def test_a_findings_json_tells_the_shrunk_case(case: Case, entry: Entry) -> None:
    assert entry.finding
    bug = Bug(Example(case, entry.finding), Origin(case, "sign", 5, 1.5), hits=7, path="p.yaml")
    value = finding_json(bug)
    assert (value["dims"], value["elements"], value["calls"], value["hits"], value["first_case"]) == (
        {"N": 2},
        4,
        1,
        7,
        5,
    )
    assert value["id"] == Entry(case, entry.finding).name.removesuffix(".yaml")


def test_a_runs_json_says_what_was_cut_off_and_orders_findings_by_their_first_case(case: Case, entry: Entry) -> None:
    assert entry.finding
    example = Example(case, entry.finding)
    bugs = [Bug(example, Origin(case, "sign", index), cut_off=step) for index, step in ((9, ""), (4, "shrinking"))]
    options = RunOptions("gelu_bw", seconds=1.0)
    value = run_json(
        Result(options, "cpu", RunStatistics(), bugs, 1.0, calls_cut_off=2, disagreements_cut_off=[entry.finding] * 3)
    )
    assert value["cut_off"] == {"calls": 2, "disagreements": 3, "unexplained": 0}
    assert [(found["first_case"], found["cut_off"]) for found in value["findings"]] == [(4, "shrinking"), (9, "")]


@pytest.mark.parametrize("only", [True, False])
def test_a_runs_json_says_whether_other_orders_of_programs_were_tried(only: bool) -> None:
    result = Result(RunOptions("gelu_bw"), "cpu", RunStatistics(), [], 1.0, grid_order_only=only)
    assert run_json(result)["grid_order_only"] is only


def test_a_runs_json_says_what_cases_waited_for() -> None:
    result = Result(RunOptions("gelu_bw"), "cpu", RunStatistics(), [], 1.0, lack="no memory is left here")
    assert run_json(result)["not_run_reason"] == "no memory is left here"


def test_where_the_time_went_is_told_where_it_is_asked_for() -> None:
    result = Result(RunOptions("gelu_bw"), "cpu", RunStatistics(), [], 1.0, profile={"compile": 0.12345})
    assert run_json(result, profile=True)["profile"] == {"compile": 0.123}
    assert "profile" not in run_json(result)


def test_a_findings_severity_stands_with_its_typical_case(case: Case, entry: Entry) -> None:
    assert entry.finding
    bug = Bug(Example(case, entry.finding), Origin(case, "sign"))
    missing = {"severity": None, "input_class": None, "typical": None}
    assert {key: finding_json(bug)[key] for key in missing} == missing
    for ratio, told in ((1.25, 1.25), (inf, None), (None, None)):
        bug.grade = Grade("high", "ordinary", TypicalCase(case, entry.finding, Rate(37, 60)), ratio)
        value = finding_json(bug)
        assert (value["severity"], value["input_class"], value["rate"]) == ("high", "ordinary", [1, 1])
        assert value["typical"] == {"dims": {"N": 2}, "rate": [37, 60], "eager_ratio": told}


def test_a_finding_that_possibly_has_the_cause_of_another_names_it(case: Case, entry: Entry) -> None:
    assert entry.finding
    nan = replace(entry.finding, symptom="nonfinite")
    bugs = [Bug(Example(case, finding), Origin(case, "sign", n)) for n, finding in enumerate((entry.finding, nan))]
    value = run_json(Result(RunOptions("gelu_bw"), "cpu", RunStatistics(), bugs, 1.0))
    first, second = value["findings"]
    assert first["possibly_same_cause_as"] is None and second["possibly_same_cause_as"] == first["id"]
