"""What a run's end cut off is asked for again until it is decided, and the tables show what came of it."""

import math
import subprocess

import pytest

from benchmarks.honest import grading, store
from fuzz import corpus
from fuzz.model.case import Argument, Call, Case
from fuzz.model.entry import Entry
from fuzz.model.finding import Finding
from fuzz.model.recipes import recipe

HEAD = "/elsewhere/.honest/corpus/cpu/torch"
CUT_OFF = {"seen": "new", "severity": None, "output": "y", "message": "y is wrong"}
CUT_OFF["path"] = f"{HEAD}/exp/y-value-a.yaml"
LOW = CUT_OFF | {"path": f"{HEAD}/exp/y-sign-b.yaml", "severity": "low", "message": "y is low"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    folder = tmp_path / ".honest"
    monkeypatch.setattr(store, "STORE", folder)
    monkeypatch.setattr(grading, "STORE", folder)
    for name in ("exp/y-value-a.yaml", "exp/y-sign-b.yaml", "exp/y-value-c.yaml", "exp-cut-off/dx-value-d.yaml"):
        path = folder / "corpus/cpu/torch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    run = {
        "target": "exp.py:exp",
        "cases": 9,
        "findings": [CUT_OFF, LOW],
        "kept": [f"{HEAD}/exp-cut-off/dx-value-d.yaml", f"{HEAD}/exp-cut-off/gone.yaml"],
    }
    store.keep_run("cpu", "torch", run)
    return folder


def asked():
    return [(one.entry, one.now) for one in grading.questions(store.kept_runs("cpu", "torch"), store.kept_grades())]


def test_entries_without_a_grade_are_asked_for_until_they_are_decided(folder):
    first, kept = "corpus/cpu/torch/exp/y-value-a.yaml", "corpus/cpu/torch/exp-cut-off/dx-value-d.yaml"
    assert asked() == [(first, first), (kept, kept)]
    moved = "corpus/cpu/torch/exp/y-value-c.yaml"
    store.keep_grade({"entry": first, "ended": "shrinking was cut off", "now": moved})
    store.keep_grade({"entry": kept, "ended": "agrees", "now": kept})
    assert asked() == [(first, moved)]
    store.keep_grade({"entry": first, "ended": "graded", "now": moved, "severity": "high"})
    assert asked() == []


def test_what_is_undecided_may_be_asked_for_again(folder):
    first = "corpus/cpu/torch/exp/y-value-a.yaml"
    store.keep_grade({"entry": first, "ended": store.UNDECIDED, "now": first})
    runs, answers = store.kept_runs("cpu", "torch"), store.kept_grades()
    assert first not in [one.entry for one in grading.questions(runs, answers)]
    assert first in [one.entry for one in grading.questions(runs, answers, again=True)]


@pytest.mark.parametrize(
    ("said", "ended"),
    [
        ("ok     y-sign-b.yaml: open, disagrees", grading.REPLAYED),
        ("FAILED y-sign-b.yaml: marked open, but it agrees now; fuzz mark", store.AGREES),
        ("FAILED y-sign-b.yaml: marked open, but it ends otherwise now: NotImplementedError", store.AGREES),
        ("FAILED y-sign-b.yaml: no such device", grading.REPLAYED),
    ],
)
def test_what_is_graded_is_replayed(folder, monkeypatch, said, ended):
    [one] = grading.replays(store.kept_runs("cpu", "torch"), store.kept_grades())
    assert one.entry == "corpus/cpu/torch/exp/y-sign-b.yaml"
    monkeypatch.setattr(grading, "end_of", lambda words, seconds: subprocess.CompletedProcess(words, 1, said, ""))
    assert grading.ask(one, "cpu", 60.0, math.inf)["ended"] == ended


def test_an_entry_that_was_shrunk_and_not_graded_is_where_it_was_shrunk_to(folder, monkeypatch):
    first = "corpus/cpu/torch/exp/y-value-a.yaml"
    moved = first.replace("-a", "-c")
    answers = [{"ended": "grading was cut off", "now": moved}, {"ended": "its time ended"}]
    monkeypatch.setattr(grading, "shrink", lambda *_: answers.pop(0))
    store.keep_grade(grading.ask(grading.Question("exp.py:exp", first, first), "cpu", 60.0, math.inf))
    assert asked()[-1] == (first, moved)


def test_targets_take_turns_and_what_is_graded_is_not_asked_for_again(folder):
    run = {"target": "sin.py:sin", "cases": 9, "kept": []}
    for name in ("y-value-a", "y-value-b", "dx-value-a", "y-sign-a"):
        path = folder / f"corpus/cpu/torch-cut-off/sin/{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
        run["kept"].append(f"{HEAD}-cut-off/sin/{name}.yaml")
    store.keep_run("cpu", "torch", run)
    names = [entry.rpartition("/")[2].removesuffix(".yaml") for entry, _ in asked()]
    assert names == ["y-value-a", "y-value-a", "dx-value-d", "dx-value-a", "y-sign-a", "y-value-b"]
    first = "corpus/cpu/torch-cut-off/sin/y-value-a.yaml"
    store.keep_grade({"entry": first, "ended": "its time ended", "now": first})
    assert asked()[-1] == (first, first)
    store.keep_grade({"entry": first, "ended": "graded", "now": first, "severity": "high"})
    names = [entry.rpartition("/")[2].removesuffix(".yaml") for entry, _ in asked()]
    assert names == ["y-value-a", "dx-value-a", "y-sign-a", "dx-value-d"]


def test_what_is_not_graded_is_left_out_where_the_same_is(folder):
    paths = [f"{HEAD}/sin/y-value-a.yaml", f"{HEAD}/sin/y-value-b.yaml", f"{HEAD}/sin/y-sign-a.yaml"]
    found = [CUT_OFF | {"path": path, "message": path} for path in paths]
    store.keep_run("cpu", "torch", {"target": "sin.py:sin", "cases": 9, "findings": found})
    store.keep_grade({"entry": store.entry_of(paths[0]), "ended": "graded", "severity": "high", "message": "y"})
    *_, run = store.graded_runs("cpu", "torch")
    assert [(one["severity"], one["path"]) for one in run["findings"]] == [("high", paths[0]), (None, paths[2])]


def test_a_later_run_of_the_target_may_have_graded_a_finding(folder):
    later = CUT_OFF | {"seen": "known", "severity": "low", "input_class": "extreme", "verdict": "kernel"}
    store.keep_run("cpu", "torch", {"target": "exp.py:exp", "cases": 9, "findings": [later]})
    first, _ = store.graded_runs("cpu", "torch")
    assert [(one["seen"], one["severity"]) for one in first["findings"]] == [("new", "low"), ("new", "low")]


TARGET = """
from fuzz import size, target, tensor
N = size("N", {low}, 64)
@target(x=tensor(N), reference=lambda x: x, dtypes=("float32",))
def {name}(x): return x.clone()
"""


@pytest.mark.parametrize(
    ("target", "text", "fits"),
    [
        ("plain.py:plain", TARGET.format(name="plain", low=1), True),
        ("larger.py:plain", TARGET.format(name="plain", low=2), False),
        ("renamed.py:plain", TARGET.format(name="other", low=1), False),
        ("gone.py:plain", "", False),
        ("missing.py:plain", "import no_such_library", True),
    ],
)
def test_entries_of_an_older_declaration_are_decided(folder, monkeypatch, target, text, fits):
    monkeypatch.setattr(grading, "ROOT", folder)
    monkeypatch.setattr(store, "ROOT", folder)
    if text:
        (folder / target.partition(":")[0]).write_text(text)
    call = Call({"N": 1}, {"x": Argument(("N",), "float32", recipe("zeros"))})
    finding = Finding("accuracy", ("y",), "value", "y is wrong")
    path = corpus.save_in_folder(folder / "corpus/cpu/torch/plain", Entry(Case("plain", (call,)), finding))
    run = {"target": target, "cases": 9, "findings": [CUT_OFF | {"path": str(path), "severity": "high"}]}
    store.keep_run("cpu", "torch", run)
    older = list(grading.misfits([run], {}))
    assert bool(older) is not fits
    for one in older:
        store.keep_grade({"entry": one.entry, "ended": store.OLDER})
    *_, kept = store.graded_runs("cpu", "torch")
    assert bool(kept["findings"]) is fits


def test_runs_without_a_case_of_an_older_declaration_do_not_count(folder, monkeypatch):
    monkeypatch.setattr(store, "ROOT", folder)
    file = folder / "lu.py"
    file.write_text("an older declaration")
    store.keep_run("cpu", "fla", {"target": "lu.py:lu", "error": "every case was refused"})
    store.keep_run("cpu", "fla", {"target": "lu.py:lu", "cases": 0, "why": "its reference fails"})
    assert len(store.kept_runs("cpu", "fla")) == 2
    file.write_text("a newer one")
    assert store.kept_runs("cpu", "fla") == []


def test_the_table_shows_grades_that_came_after_the_run(folder):
    graded = {"ended": "graded", "severity": "high", "input_class": "ordinary", "output": "y", "message": "smaller"}
    store.keep_grade({"entry": "corpus/cpu/torch/exp/y-value-a.yaml"} | graded)
    store.keep_grade(
        {"entry": "corpus/cpu/torch/exp-cut-off/dx-value-d.yaml"} | graded | {"message": "confirmed", "output": "z"}
    )
    [run] = store.graded_runs("cpu", "torch")
    assert [(one["seen"], one["severity"], one["message"]) for one in run["findings"]] == [
        ("new", "high", "smaller"),
        ("new", "low", "y is low"),
        ("new", "high", "confirmed"),
    ]


@pytest.mark.parametrize("ended", ["agrees", "undecided"])
def test_what_is_no_finding_any_more_is_left_out(folder, ended):
    store.keep_grade({"entry": "corpus/cpu/torch/exp/y-value-a.yaml", "ended": ended})
    kept = {"entry": "corpus/cpu/torch/exp-cut-off/dx-value-d.yaml", "output": "y", "severity": None}
    store.keep_grade(kept | {"ended": ended})
    [run] = store.graded_runs("cpu", "torch")
    assert [one["path"] for one in run["findings"]] == [f"{HEAD}/exp/y-sign-b.yaml"]


def test_an_entry_is_described_by_its_file(folder):
    path = store.ROOT / "corpus/fla_norm_linear/dx+dresidual+dmatrix-value-bf5060e2.yaml"
    fields = grading.described(path)
    assert (fields["ended"], fields["severity"], fields["output"]) == ("graded", "high", "dx+dresidual+dmatrix")
    assert grading.described(folder / "corpus/cpu/torch/exp/y-value-a.yaml")["ended"] not in store.DECIDED
