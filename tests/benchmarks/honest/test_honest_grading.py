"""What a run's end cut off is asked for again until it is decided, and the tables show what came of it."""

import pytest

from benchmarks.honest import grading, store

HEAD = "/elsewhere/.honest/corpus/cpu/torch"
CUT_OFF = {"seen": "new", "severity": None, "output": "y", "message": "y is wrong", "path": f"{HEAD}/exp/a.yaml"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    folder = tmp_path / ".honest"
    monkeypatch.setattr(store, "STORE", folder)
    monkeypatch.setattr(grading, "STORE", folder)
    for name in ("exp/a.yaml", "exp/b.yaml", "exp/c.yaml", "exp-cut-off/d.yaml"):
        path = folder / "corpus/cpu/torch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    run = {
        "target": "exp.py:exp",
        "cases": 9,
        "findings": [CUT_OFF, CUT_OFF | {"path": f"{HEAD}/exp/b.yaml", "severity": "low", "message": "y is low"}],
        "kept": [f"{HEAD}/exp-cut-off/d.yaml", f"{HEAD}/exp-cut-off/gone.yaml"],
    }
    store.keep_run("cpu", "torch", run)
    return folder


def asked():
    return [(one.entry, one.now) for one in grading.questions(store.kept_runs("cpu", "torch"), store.kept_grades())]


def test_entries_without_a_grade_are_asked_for_until_they_are_decided(folder):
    first, kept = "corpus/cpu/torch/exp/a.yaml", "corpus/cpu/torch/exp-cut-off/d.yaml"
    assert asked() == [(first, first), (kept, kept)]
    moved = "corpus/cpu/torch/exp/c.yaml"
    store.keep_grade({"entry": first, "ended": "shrinking was cut off", "now": moved})
    store.keep_grade({"entry": kept, "ended": "agrees", "now": kept})
    assert asked() == [(first, moved)]
    store.keep_grade({"entry": first, "ended": "graded", "now": moved, "severity": "high"})
    assert asked() == []


def test_the_table_shows_grades_that_came_after_the_run(folder):
    graded = {"ended": "graded", "severity": "high", "input_class": "ordinary", "output": "y", "message": "smaller"}
    store.keep_grade({"entry": "corpus/cpu/torch/exp/a.yaml"} | graded)
    store.keep_grade(
        {"entry": "corpus/cpu/torch/exp-cut-off/d.yaml"} | graded | {"message": "confirmed", "output": "z"}
    )
    [run] = store.graded_runs("cpu", "torch")
    assert [(one["seen"], one["severity"], one["message"]) for one in run["findings"]] == [
        ("new", "high", "smaller"),
        ("new", "low", "y is low"),
        ("new", "high", "confirmed"),
    ]


@pytest.mark.parametrize("ended", ["agrees", "undecided"])
def test_what_is_no_finding_any_more_is_left_out(folder, ended):
    store.keep_grade({"entry": "corpus/cpu/torch/exp/a.yaml", "ended": ended})
    store.keep_grade({"entry": "corpus/cpu/torch/exp-cut-off/d.yaml", "ended": ended, "output": "y", "severity": None})
    [run] = store.graded_runs("cpu", "torch")
    assert [one["path"] for one in run["findings"]] == [f"{HEAD}/exp/b.yaml"]


def test_an_entry_is_described_by_its_file(folder):
    path = store.ROOT / "corpus/fla_norm_linear/dx+dresidual+dmatrix-value-bf5060e2.yaml"
    fields = grading.described(path)
    assert (fields["ended"], fields["severity"], fields["output"]) == ("graded", "high", "dx+dresidual+dmatrix")
    assert grading.described(folder / "corpus/cpu/torch/exp/a.yaml")["ended"] not in store.DECIDED
