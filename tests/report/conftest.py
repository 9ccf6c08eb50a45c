"""An item whose every text is hostile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fuzz.model.entry import Entry
from fuzz.report.items import ReportItem

HOSTILE = "]]><evil/>\x00\x08\x1b[31m\ud800\ufffe&\"'<script>"


@pytest.fixture
def hostile(entry: Entry) -> ReportItem:
    assert entry.finding is not None
    named = replace(entry, finding=replace(entry.finding, message=HOSTILE, outputs=(HOSTILE,)), planted=HOSTILE)
    return ReportItem(named, "a b/#?%.yaml", "failed", "new", HOSTILE, f"my kernels/{HOSTILE}.py", 3)
