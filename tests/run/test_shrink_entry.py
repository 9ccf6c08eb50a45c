"""What is learnt of a saved entry goes into its file, beside what others write there meanwhile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bugs import make_bug

from fuzz import corpus
from fuzz.errors import UsageError
from fuzz.model.case import Case
from fuzz.model.entry import Entry
from fuzz.model.grade import Grade
from fuzz.run.shrink_entry import grade_entry, replace_entry, save_grade
from fuzz.shrink.shrinker import Budget
from fuzz.triage.bug import Bug

HIGH = Grade("high", "ordinary")


@pytest.mark.parametrize(("step", "left"), [("grading", ""), ("shrinking", "shrinking")])
def test_what_is_graded_by_itself_waits_for_no_grade(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, left: str
) -> None:
    def grade(bug: Bug, *_: object) -> None:
        bug.grade = HIGH

    monkeypatch.setattr("fuzz.run.shrink_entry.grade_bug", grade)
    entry = make_bug(case, "dx").to_entry(cut_off=step)
    path = corpus.save_entry(tmp_path, entry)
    triage: Any = SimpleNamespace(confirm=lambda *_: make_bug(case, "dx"))
    assert grade_entry(entry, triage, Budget()) == HIGH
    save_grade(path, entry, HIGH)
    graded = corpus.read(path)
    assert (graded.severity, graded.provenance.cut_off) == ("high", left)


def test_a_grade_leaves_what_was_written_into_the_entry_meanwhile(entry: Entry, tmp_path: Path) -> None:
    path, link = corpus.save_entry(tmp_path, entry), tmp_path / "link.yaml"
    link.symlink_to(path)
    corpus.mark(path, "accepted", "is known")
    save_grade(link, entry, HIGH)
    assert link.is_symlink() and corpus.read(path) == replace(entry, status="accepted", why="is known", grade=HIGH)


def test_a_grade_brings_back_no_entry_that_is_gone_or_has_another_case_now(entry: Entry, tmp_path: Path) -> None:
    path = corpus.save_entry(tmp_path, entry)
    other = replace(entry, case=entry.case.replica(1))
    corpus.write(path, other)
    with pytest.raises(UsageError, match="is not graded: it was given another case meanwhile$"):
        save_grade(path, entry, HIGH)
    assert corpus.read(path) == other
    path.unlink()
    path.parent.rmdir()
    with pytest.raises(UsageError, match="is gone: it was removed or renamed meanwhile$"):
        save_grade(path, entry, HIGH)
    assert not path.parent.exists()


def test_a_smaller_case_brings_back_no_entry_that_is_gone(entry: Entry, case: Case, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is gone: it was removed or renamed meanwhile$"):
        replace_entry(tmp_path / "gelu_bw" / entry.name, entry, make_bug(case, "dx"))
    assert not list(tmp_path.iterdir())
