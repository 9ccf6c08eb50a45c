"""Where a wrong access stands is told without the folders of the machine that it was seen on."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.backends.cpu.backend import portable


def test_paths_are_those_of_any_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert portable("/a/.venv/lib/python3.11/site-packages/kernels/ops/rope.py") == "kernels/ops/rope.py"
    assert portable(str(tmp_path / "targets" / "mine.py")) == "targets/mine.py"
    assert portable("/elsewhere/mine.py") == "/elsewhere/mine.py"
