"""Tables go between the marks of a document, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.document import replace_between_marks


def test_what_stands_between_the_marks_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "document.md"
    path.write_text("before\n<!-- peers -->\nold\n<!-- /peers -->\nafter\n")
    for text in ("| a |", "| b |"):
        replace_between_marks(path, "peers", text)
        assert path.read_text() == f"before\n<!-- peers -->\n\n{text}\n\n<!-- /peers -->\nafter\n"


@pytest.mark.parametrize("text", ["", "<!-- peers -->", "<!-- /peers -->", "<!-- /peers --> <!-- peers -->"])
def test_a_document_without_its_marks_stays_as_it_is(tmp_path: Path, text: str) -> None:
    path = tmp_path / "document.md"
    path.write_text(text)
    with pytest.raises(ValueError, match="has no marks <!-- peers --> and <!-- /peers -->"):
        replace_between_marks(path, "peers", "new")
    assert path.read_text() == text
