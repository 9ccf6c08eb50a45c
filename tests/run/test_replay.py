"""Replay runs the least and the typical case of an entry."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest

from fuzz.model.entry import Entry
from fuzz.model.rate import Rate
from fuzz.model.severity import Grade, TypicalCase
from fuzz.run import replay
from fuzz.target.spec import Target


@pytest.mark.parametrize("shown", [{2}, {5}, {2, 5}, set()])
def test_an_entry_is_reproduced_where_either_case_shows_it(
    entry: Entry, gelu: Target, shown: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert entry.finding
    typical = entry.case.with_call(0, replace(entry.case.last, dims={"N": 5}))
    graded = replace(entry, grade=Grade("high", "ordinary", TypicalCase(typical, entry.finding, Rate(1, 2))))
    reports = {size: SimpleNamespace(finding_of=lambda oracle: entry.finding) for size in shown}
    silent = SimpleNamespace(finding_of=lambda oracle: None)
    triage = SimpleNamespace(examine=lambda case, oracle, clean: reports.get(case.last.dims["N"], silent))
    monkeypatch.setattr(replay, "open_triage", lambda *arguments: nullcontext(triage))
    assert replay.reproduces(graded, "gelu_bw", gelu, "cpu") == bool(shown)
    assert replay.reproduces(entry, "gelu_bw", gelu, "cpu") == (2 in shown)
    least = graded.typical_entry
    assert least is not None and (least.case, least.typical_entry) == (typical, None)
