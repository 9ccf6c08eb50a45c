"""An item lies at the source line that it concerns."""

from __future__ import annotations

from dataclasses import replace

from fuzz.model.entry import Entry
from fuzz.report.items import make_item
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
