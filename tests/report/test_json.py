"""What scripts read of a finding."""

from __future__ import annotations

from fuzz.model.case import Case
from fuzz.model.entry import Entry
from fuzz.report.json import finding_json, run_json
from fuzz.run.fuzzer import Result
from fuzz.run.options import RunOptions
from fuzz.search.statistics import RunStatistics
from fuzz.triage.bug import Bug, Example, Sighting


def test_a_findings_json_tells_the_shrunk_case(case: Case, entry: Entry) -> None:
    assert entry.finding
    bug = Bug(Example(case, entry.finding), Sighting(case, "sign", 5, 1.5), hits=7, path="p.yaml")
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
    bugs = [Bug(example, Sighting(case, "sign", index), cut_off=step) for index, step in ((9, ""), (4, "shrinking"))]
    options = RunOptions("gelu_bw", seconds=1.0)
    value = run_json(Result(options, "cpu", RunStatistics(), bugs, 1.0, calls_cut_off=2, disagreements_cut_off=3))
    assert value["cut_off"] == {"calls": 2, "disagreements": 3}
    assert [(found["first_case"], found["cut_off"]) for found in value["findings"]] == [(4, "shrinking"), (9, "")]
