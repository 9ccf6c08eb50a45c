import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.mutations import __main__ as mutations
from benchmarks.mutations.brute_force import EQUIVALENT, LIVE
from benchmarks.mutations.mutants import Mutant

MUTANT = Mutant("bound moved", "kernel", 1, 0, 1, "a", "b")


@dataclass(frozen=True)
class Subject:
    root: Path
    file: Path
    target: str = "target"
    module: str = ""
    label: str = "target"


@pytest.fixture
def subject(tmp_path):
    file = tmp_path / "targets" / "target.py"
    file.parent.mkdir()
    file.write_text("a\n")
    (tmp_path / "good.pt").touch()
    return Subject(file.parent, file)


def measured(subject, monkeypatch, *answers):
    """The row of a mutant where the commands answer so, and what commands there were."""
    asked, waiting = [], list(answers)

    def command(*arguments, **more):
        asked.append(arguments[0])
        return waiting.pop(0)

    monkeypatch.setattr(mutations, "command", command)
    return mutations.measure(subject, MUTANT, subject.root.parent / "good.pt", 60.0, 0), asked


def test_only_what_is_live_is_fuzzed(subject, monkeypatch):
    judged = {"name": EQUIVALENT, "cases": 1500, "why": ""}
    row, asked = measured(subject, monkeypatch, judged)
    assert row["result"] == EQUIVALENT and len(asked) == 1


def test_a_mutant_that_ends_its_process_is_live(subject, monkeypatch):
    ended = {"error": "it ended with -14", "signal": signal.SIGALRM}
    row, asked = measured(subject, monkeypatch, ended, {"cases": 300, "findings": []})
    assert (row["result"], row["judged"]["why"]) == (LIVE, "a call ends by SIGALRM") and len(asked) == 2


def test_what_a_run_finds_and_the_good_kernel_does_not_show_kills(subject, monkeypatch):
    found = {"severity": "high", "symptom": "value", "path": "entry", "first_seconds": 3.0}
    live, ran = {"name": LIVE, "cases": 2, "why": "y errs"}, {"cases": 9, "findings": [found]}
    replayed = {"entries": [{"reproduced": False}]}
    assert measured(subject, monkeypatch, live, ran, replayed)[0]["result"] == mutations.KILLED


def test_a_finding_that_cannot_be_replayed_says_nothing_of_a_mutant(subject, monkeypatch):
    found = {"severity": "high", "symptom": "value", "path": "entry", "first_seconds": 3.0}
    live, ran = {"name": LIVE, "cases": 2, "why": "y errs"}, {"cases": 9, "findings": [found]}
    with pytest.raises(RuntimeError, match="entry cannot be replayed: no such dtype"):
        measured(subject, monkeypatch, live, ran, {"entries": [{"skipped": "no such dtype"}]})


def test_a_kernel_that_cannot_be_recorded_stays_to_be_measured(subject, monkeypatch, tmp_path):
    monkeypatch.setattr(mutations, "STORE", tmp_path / "kept")
    monkeypatch.setattr(mutations, "command", lambda *_, **__: {"error": "no such target", "signal": 0})
    with pytest.raises(RuntimeError, match="target: the good kernel cannot be recorded: no such target"):
        mutations.mutants_of(subject)
    assert not list((tmp_path / "kept").rglob("*.json"))
    assert mutations.results(subject, 0) == [None]


@pytest.mark.parametrize("error", [RuntimeError("it fails"), subprocess.TimeoutExpired("fuzz", 2000.0)])
def test_a_kernel_that_fails_does_not_end_the_others(subject, monkeypatch, error):
    asked, done = SimpleNamespace(minutes=1.0, jobs=1), []

    def measure_next(one, _):
        if one is subject:
            raise error
        done.append(one)

    monkeypatch.setattr(mutations, "measure_next", measure_next)
    monkeypatch.setattr(mutations.os, "sched_setaffinity", lambda *_: None)
    other = Subject(subject.root, subject.file, "other")
    mutations.measure_all([subject, other], asked)
    assert done == [other]
