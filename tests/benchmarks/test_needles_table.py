"""The documented command writes the documented table of needles, and nothing else."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from benchmarks import needles

DOCUMENT = Path(__file__).parents[2] / "docs" / "benchmarks.md"


def test_the_documented_command_writes_the_table_that_is_documented(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before, copy = DOCUMENT.read_text(encoding="utf-8"), tmp_path / "benchmarks.md"
    copy.write_text(before, encoding="utf-8")
    found: dict[str, Any] = dict(found=True, cases=1, rate=1.0, seconds=1.0)
    monkeypatch.setattr(needles, "measured", lambda *_: found)
    (options,) = re.findall(r'`make needles ARGS="([^"]* --write [^"]*)"`', before)
    monkeypatch.setattr("sys.argv", ["needles", *shlex.split(options.replace("docs/benchmarks.md", str(copy)))])
    needles.main()
    after = copy.read_text(encoding="utf-8")
    time = r"\d+\.\d s \(\d+/\d+\)"
    assert re.sub(time, "", table_of(before)) == re.sub(time, "", table_of(after))
    assert before.split(table_of(before)) == after.split(table_of(after))


def table_of(text: str) -> str:
    return text.partition("<!-- needles -->")[2].partition("<!-- /needles -->")[0]
