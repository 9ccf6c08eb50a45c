"""Correct kernels are silent where a run has judged cases, no finding, and no other exit code than 0."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks import silent

VALUE: dict[str, Any] = dict(
    cases=1000, rejected=100, not_run=5, seconds=36.0, worst_ratio=0.5, findings=[], oracles={"fault": 890},
    cut_off=dict(calls=1, disagreements=7), unconfirmed=3,
)  # fmt: skip


def printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], out: Path, code: int, value: dict[str, Any]
) -> tuple[int, str]:
    """What the command gives and prints where `fuzz run` ends so."""
    ended = subprocess.CompletedProcess([], code, json.dumps(value) if value else "", "")
    monkeypatch.setattr(silent.subprocess, "run", lambda *_, **__: ended)
    monkeypatch.setattr("sys.argv", ["silent", str(out), "--targets", "softmax", "--backend", "cpu"])
    return silent.main(), capsys.readouterr().out


def test_judged_cases_are_counted_beside_what_was_not_confirmed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, text = printed(monkeypatch, capsys, tmp_path, 0, VALUE)
    assert code == 0 and "| softmax | cpu | 890 | 0.01 | 0.5000 | 0 | 7 | 3 |" in text


@pytest.mark.parametrize("value", [VALUE, {}])
def test_a_run_with_another_exit_code_is_not_silent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, value: dict[str, Any]
) -> None:
    code, text = printed(monkeypatch, capsys, tmp_path, 2, value)
    assert code == 1 and "| 0, exit code 2 |" in text
