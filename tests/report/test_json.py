"""What scripts read of a finding."""

from __future__ import annotations

from fuzz.model.case import Case
from fuzz.model.entry import Entry
from fuzz.report.json import finding_json
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
