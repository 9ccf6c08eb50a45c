"""One cause is one finding however often it is hit."""

from __future__ import annotations

from pathlib import Path

from runs import run


def test_a_thousand_hits_of_one_bug_are_one_finding(tmp_path: Path) -> None:
    code, value = run("gelu_bw", tmp_path, "--planted", "tanh_form", "--engine", "random", "--cases", "3000")
    assert code == 1
    assert len(value["findings"]) == 1 and value["findings"][0]["hits"] >= 1000
    assert len(list(tmp_path.rglob("*.yaml"))) == 1
