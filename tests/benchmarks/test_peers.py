"""A finding of a planted bug that the good kernel shows too is a false alarm, of `fuzz run` as of its peers."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers import __main__ as peers
from fuzz import corpus

ENTRY = next(iter(sorted((Path(__file__).parents[2] / "corpus").rglob("*.yaml"))))


@pytest.mark.parametrize("reproduced", [True, False])
def test_our_findings_are_replayed_on_the_good_kernel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reproduced: bool
) -> None:
    path = tmp_path / ENTRY.name
    corpus.write(path, replace(corpus.read(ENTRY), planted="bug"))
    found = dict(first_seconds=2.0, elements=3, executions=4, path=str(path))

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        if "run" in command:
            return ended(1, dict(cases=9, cases_per_second=5.0, findings=[found]))
        assert corpus.read(path).planted == ""
        return ended(int(reproduced), dict(entries=[dict(path=str(path), reproduced=reproduced)]))

    monkeypatch.setattr(peers.subprocess, "run", run)
    measured = peers.ours([], "softmax", "bug", 0, 10.0)
    assert measured["found"] is not reproduced and measured.get("alarm", False) is reproduced
    assert peers.spelt([measured]) == ("false alarm (0/1)" if reproduced else "2.0 s; 3 el.; 4 ex.")


def ended(code: int, value: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess([], code, json.dumps(value), "")
