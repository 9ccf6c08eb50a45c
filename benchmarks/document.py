"""Puts what a benchmark has measured into a document."""

from __future__ import annotations

from pathlib import Path


def replace_between_marks(path: Path, name: str, text: str) -> None:
    """Replaces what stands between ``<!-- name -->`` and ``<!-- /name -->``. ValueError where these are missing."""
    start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, found, rest = path.read_text(encoding="utf-8").partition(start)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        raise ValueError(f"{path} has no marks {start} and {end}")
    path.write_text(f"{before}{start}\n\n{text}\n\n{end}{after}", encoding="utf-8")
