"""JUnit documents have the shape that build servers require."""

from __future__ import annotations

from dataclasses import replace
from xml.etree.ElementTree import fromstring

from fuzz.model.entry import Entry
from fuzz.model.grade import Grade
from fuzz.report.items import ReportItem, make_item
from fuzz.report.junit import junit
from fuzz.target.spec import Target


def test_junit_counts_what_failed_and_what_is_accepted(entry: Entry, gelu: Target) -> None:
    found = [make_item(entry, gelu, "p.yaml", state, "new", "told") for state in ("failed", "ok", "accepted")]
    root = fromstring(junit("fuzz run gelu_bw", found, 1.5, {"bounds": 40}))
    (suite,) = root
    counts = {"tests": "4", "failures": "1", "errors": "0", "skipped": "1", "time": "1.500"}
    for one in (root, suite):
        assert {name: one.attrib[name] for name in counts} == counts
    assert [[child.tag for child in test] for test in suite] == [
        ["system-out"],
        ["failure"],
        ["system-out"],
        ["skipped"],
    ]
    (failure,) = suite.iter("failure")
    assert failure.attrib["type"] == "accuracy/sign" and "repeat   fuzz replay p.yaml" in (failure.text or "")


def test_junit_holds_any_text(hostile: ReportItem) -> None:
    root = fromstring(junit(hostile.message, [hostile], 0.0).encode("utf-8"))
    assert [node.tag for node in root.iter()] == ["testsuites", "testsuite", "testcase", "failure"]


def test_junit_tells_the_severity(entry: Entry, gelu: Target) -> None:
    graded = make_item(replace(entry, grade=Grade("low", "extreme")), gelu, "p.yaml", "ok", "new", "told")
    (found,) = fromstring(junit("fuzz run gelu_bw", [graded], 1.5)).iter("property")
    assert found.attrib == {"name": "severity", "value": "low"}
