"""The dims of a judgement's cases where a comparison with the reference takes long."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.judge.formats.options import JudgeOptions
from fuzz.judge.processes import first_dims
from fuzz.judge.processes.first_dims import name_changed
from fuzz.judge.referee import judge
from fuzz.judge.result.judgement import RIGHT, Judgement
from tests.judge.problems import LINEAR, as_solution, write

LARGE = LINEAR.replace("batch = 4096", "batch = 128").replace("features = 64", "features = 128")


def judged(folder: Path) -> Judgement:
    files = write(folder, "problem", LARGE), write(folder, "solution", as_solution(LARGE))
    return judge(JudgeOptions(*files, backend="cpu", seconds=0.0))


def test_further_cases_are_smaller_where_comparing_takes_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_dims, "COMPARING_SECONDS", -1.0)
    found = judged(tmp_path)
    assert found.verdict == RIGHT
    assert any("further cases have batch=16, features=16" in note for note in found.notes), found.notes


def test_the_first_dims_are_kept_where_comparing_is_fast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_dims, "COMPARING_SECONDS", 1e6)
    found = judged(tmp_path)
    assert found.verdict == RIGHT and not any("comparing takes long" in note for note in found.notes)


def test_changed_dims_are_named() -> None:
    assert name_changed({"a": 1, "b": 2}, {"a": 1, "b": 4}) == "b=2"
