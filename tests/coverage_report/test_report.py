"""A report is the same after it was written as JSON and read again; what is none is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fuzz.coverage_report.blockers import Blocker
from fuzz.coverage_report.report import CoverageReport, Ran, read_report

BLOCKER = Blocker("branch", "k.py", 7, "f: `x` is never true", "a case", reason="later", elsewhere=(9, 12))
REPORT = CoverageReport("softmax", 40, 3, 0, Ran(8, 9), Ran(3, 6), Ran(1, 2), (BLOCKER,))


def test_a_report_is_read_again_as_it_was_written() -> None:
    assert read_report(json.loads(json.dumps(REPORT.as_json()))) == REPORT


@pytest.mark.parametrize(
    "change",
    [
        {"target": 3},
        {"cases": "40"},
        {"lines": None},
        {"masks": {"run": 1}},
        {"masks": {"run": True, "all": 2}},
        {"blockers": 3},
        {"blockers": [{"kind": "branch"}]},
        {"blockers": [{**REPORT.as_json()["blockers"][0], "elsewhere": ["nine"]}]},
    ],
)
def test_a_value_with_other_fields_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        read_report({**REPORT.as_json(), **change})
