import signal
from dataclasses import dataclass
from pathlib import Path

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
