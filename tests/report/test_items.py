"""An item lies at the source line that it concerns."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bugs import make_bug

from fuzz.model.case import Case
from fuzz.model.entry import Entry
from fuzz.model.grade import Grade
from fuzz.report.items import make_item, run_items
from fuzz.run.fuzzer import Result
from fuzz.run.options import RunOptions
from fuzz.search.statistics import RunStatistics
from fuzz.target.spec import Target


def test_a_finding_lies_at_its_access_where_that_is_known_else_at_the_launcher(entry: Entry, gelu: Target) -> None:
    assert entry.finding is not None
    launcher = gelu.launcher.__code__.co_firstlineno
    assert (
        make_item(entry, gelu, "", "failed", "new", "").source,
        make_item(entry, gelu, "", "failed", "new", "").line,
    ) == (
        "targets/gelu_bw.py",
        launcher,
    )
    own = "targets/gelu_bw.py"
    dues = {
        "lib/ops/rope.py:109": ("lib/ops/rope.py", 109),
        "targets/gelu_bw.py[plant]:12": (own, 12),
        "gelu_bw.py:13": (own, 13),
        "nonsense": (own, launcher),
    }
    for place, due in dues.items():
        made = make_item(
            replace(entry, finding=replace(entry.finding, source_line=place)), gelu, "", "failed", "new", ""
        )
        assert (made.source, made.line) == due


@pytest.mark.parametrize(
    ("grade", "options", "state"),
    [
        (Grade("low", "extreme"), {}, "ok"),
        (Grade("low", "extreme"), {"fail_on": "low"}, "failed"),
        (Grade("medium", "special"), {}, "failed"),
        (Grade("medium", "special"), {"fail_on": "high"}, "ok"),
        (None, {}, "failed"),
    ],
)
def test_an_item_fails_from_the_severity_on_that_counts(
    case: Case, gelu: Target, grade: Grade | None, options: dict[str, str], state: str
) -> None:
    bug = make_bug(case, "dx", grade=grade)
    result = Result(RunOptions("gelu_bw", **options), "cpu", RunStatistics(), [bug], 1.0)  # type: ignore[arg-type]
    assert [item.state for item in run_items(result, gelu, only_new=False)] == [state]
