"""The table of open entries tells what an entry says of itself."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.findings import make_row
from fuzz.model.entry import Entry
from fuzz.model.grade import Grade, TypicalCase
from fuzz.model.provenance import Provenance
from fuzz.model.rate import Rate


def test_a_row_tells_severity_inputs_pytorch_and_the_issue(entry: Entry) -> None:
    assert entry.finding
    seen = Provenance.parse({"backend": "cpu", "upstream": "https://github.com/o/n/issues/272"})
    grade = Grade("high", "ordinary", TypicalCase(entry.case, entry.finding, Rate(30, 60)), 0.161)
    row = make_row("t/x.yaml", replace(entry, provenance=seen, grade=grade), "2026-11-21", "2026-11-22")
    parts = (
        "`t/x.yaml` | high | 50 % of randn inputs",
        "0.16 of the bound",
        "[272](https://github.com/o/n/issues/272)",
    )
    assert all(part in row for part in parts) and row.endswith("| 2026-11-21 | 2026-11-22 |")
    assert "not graded; seen on cpu" in make_row("t/x.yaml", replace(entry, provenance=seen), "", "")
