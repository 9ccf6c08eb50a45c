"""A command gets each document, and cannot harm the run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fuzz.report.notify import notify


def test_a_command_gets_the_document_and_nothing_of_it_becomes_the_command(tmp_path: Path) -> None:
    out, never = tmp_path / "out", tmp_path / "never"
    document = {"text": f"$(touch {never}); `touch {never}`\n'; touch {never} #"}
    assert notify(f"cat > {out}", document) == ""
    assert json.loads(out.read_text()) == document and not never.exists()


def test_a_command_that_hangs_is_ended_with_what_it_started(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "more than 0.3 s" in notify("sleep 60 & sleep 60", {}, seconds=0.3)


def test_a_command_that_reads_nothing_is_no_failure() -> None:
    assert notify("true", {"text": "x" * 1_000_000}) == ""
