"""Replay runs the least and the typical case of an entry."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest

from fuzz.model.entry import Entry
from fuzz.model.grade import Grade, TypicalCase
from fuzz.model.oracle_specs import FAULT
from fuzz.model.outcome import Raised
from fuzz.model.rate import Rate
from fuzz.run import replay
from fuzz.target.spec import Target
from fuzz.worker.protocol import WorkerConfig, fault_finding


@pytest.mark.parametrize("shown", [{2}, {5}, {2, 5}, set()])
def test_an_entry_is_reproduced_where_either_case_shows_it(
    entry: Entry, gelu: Target, shown: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert entry.finding
    typical = entry.case.with_call(0, replace(entry.case.last, dims={"N": 5}))
    graded = replace(entry, grade=Grade("high", "ordinary", TypicalCase(typical, entry.finding, Rate(1, 2))))
    reports = {size: SimpleNamespace(finding_of={entry.finding.oracle: entry.finding}.get) for size in shown}
    silent = SimpleNamespace(finding_of=lambda oracle: None)
    triage = SimpleNamespace(examine=lambda case, oracle, clean: reports.get(case.last.dims["N"], silent))
    monkeypatch.setattr(replay, "open_triage", lambda *arguments: nullcontext(triage))
    assert replay.reproduces(graded, "gelu_bw", gelu, "cpu") == bool(shown)
    assert replay.reproduces(entry, "gelu_bw", gelu, "cpu") == (2 in shown)
    least = graded.typical_entry
    assert least is not None and (least.case, least.typical_entry) == (typical, None)


@pytest.mark.parametrize("status", ["open", "fixed"])
def test_a_launcher_that_fails_now_is_not_taken_for_one_that_agrees(
    entry: Entry, gelu: Target, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = fault_finding(Raised("ImportError: no such kernel"))
    assert fault
    triage = SimpleNamespace(examine=lambda *_, **__: SimpleNamespace(finding_of={FAULT.name: fault}.get))
    monkeypatch.setattr(replay, "open_triage", lambda *arguments: nullcontext(triage))
    monkeypatch.setattr(replay, "load_target_of", lambda *arguments: ("gelu_bw", gelu))
    marked = replace(entry, status=status, provenance=replace(entry.provenance, backend="cpu"))
    replayed = replay.replay_entry(gelu.path, marked, "cpu")
    assert (replayed.reproduced, replayed.passed) == (False, False)
    assert replayed.message == f"marked {status}, but it ends otherwise now: raised ImportError: no such kernel"
    elsewhere = replace(replayed, entry=replace(marked, provenance=replace(marked.provenance, backend="cuda")))
    assert ("seen on cuda; raised ImportError" in elsewhere.message) == (status == "open") == elsewhere.passed


def test_entries_of_one_target_after_each_other_share_its_server() -> None:
    one, other = (WorkerConfig(name, None, "cpu") for name in ("gelu_bw", "layernorm_bw"))
    with replay.Servers() as servers:
        first = servers.server(one, 1 << 30)
        with ThreadPoolExecutor(1) as another_thread:
            assert another_thread.submit(servers.server, one, 1 << 30).result() is not first
        assert servers.server(one, 1 << 30) is first and not first.given_up
        last = servers.server(other, 1 << 30)
        assert first.given_up and not last.given_up
    assert last.given_up
