"""A report is the same after it was written as JSON and read again; what is none is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from fuzz.coverage_report.blockers import Blocker
from fuzz.coverage_report.file_coverage import format_files, sum_files
from fuzz.coverage_report.report import CoverageReport, Ran, read_report

BLOCKER = Blocker("branch", "k.py", 7, "f: `x` is never true", "a case", reason="later", elsewhere=(9, 12))
REPORT = CoverageReport("softmax", 40, 3, 0, Ran(8, 9), Ran(3, 6), Ran(1, 2), (BLOCKER,))


def test_a_report_is_read_again_as_it_was_written() -> None:
    assert read_report(json.loads(json.dumps(REPORT.as_json()))) == REPORT


def test_a_line_that_one_target_ran_is_run() -> None:
    one = replace(REPORT, files={"a.py": (frozenset(range(1, 7)), frozenset({2, 3, 4}))})
    reason = Blocker("branch", "a.py", 3, "w", "n", frozenset({3}), "why")
    other = replace(one, files={"a.py": (frozenset(range(2, 9)), frozenset({3, 4, 8}))}, blockers=(reason,))
    (file,) = sum_files([one, other])
    assert (file.ran, file.explained, file.left) == ((1, 2, 5, 6, 7), (3,), (4, 8))
    assert file.as_json() == {"file": "a.py", "ran": [1, 2, 5, 6, 7], "explained": [3], "left": [4, 8]}
    first, second = format_files([file]).splitlines()
    assert first.startswith("together") and first.endswith("62.5 % (75.0 % with reasons) of 8 in 1 files")
    assert second.startswith("  a.py") and second.endswith("62.5 % (75.0 % with reasons) of 8")


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
