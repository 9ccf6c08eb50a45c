"""SARIF logs have what their schema requires."""

from __future__ import annotations

import json
from dataclasses import replace
from urllib.parse import unquote

import pytest
from sarif_schema import check_sarif, physical_locations

from fuzz.model.entry import Entry
from fuzz.model.grade import Grade
from fuzz.report.items import ReportItem, make_item
from fuzz.report.sarif import sarif
from fuzz.target.spec import Target


def test_sarif_has_what_its_schema_requires(entry: Entry, gelu: Target, hostile: ReportItem) -> None:
    found = [make_item(entry, gelu, "/abs/p.yaml", state, "known", "told") for state in ("failed", "ok", "accepted")]
    log = json.loads(sarif([*found, hostile], "0.1.0"))
    check_sarif(log)
    results = log["runs"][0]["results"]
    assert [one["level"] for one in results] == ["error", "error", "note", "error"]
    assert [one["baselineState"] for one in results] == ["unchanged"] * 3 + ["new"]
    assert "suppressions" in results[2] and "suppressions" not in results[0]
    assert [one["properties"]["repeat"] for one in results[:2]] == ["fuzz replay /abs/p.yaml"] * 2
    elsewhere = replace(found[0], target="k/fuzz_x.py:gelu_bw")
    (result,) = json.loads(sarif([elsewhere], "0.1.0"))["runs"][0]["results"]
    assert result["properties"]["repeat"] == "fuzz replay /abs/p.yaml --target k/fuzz_x.py:gelu_bw"
    assert unquote(physical_locations(results[0])[0]["artifactLocation"]["uri"]) == "targets/gelu_bw.py"


def test_sarif_without_findings_is_a_run_without_results() -> None:
    log = json.loads(sarif([], "0.1.0"))
    check_sarif(log)
    assert log["runs"][0]["results"] == []


@pytest.mark.parametrize(
    ("severity", "input_class", "level"),
    [("high", "ordinary", "error"), ("medium", "layout", "warning"), ("low", "extreme", "note")],
)
def test_severities_are_levels(entry: Entry, gelu: Target, severity: str, input_class: str, level: str) -> None:
    graded = replace(entry, grade=Grade(severity, input_class))
    (found,) = json.loads(sarif([make_item(graded, gelu, "p.yaml", "ok", "new", "")], "0.1.0"))["runs"][0]["results"]
    assert (found["level"], found["properties"]["severity"]) == (level, severity)
