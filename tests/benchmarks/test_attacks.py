"""The command that makes attacks: those that hold, one that does not, and what it says of both."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.attacks import left_over
from benchmarks.attacks.__main__ import main
from benchmarks.attacks.attack import Attack, FellError, Kind, NotPossibleError
from benchmarks.attacks.kinds import KINDS, all_attacks
from benchmarks.attacks.trial import Answer, Trial, check_answer


def test_attacks_that_hold(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["text_alias", "campaign_no_targets", "file_has_a_syntax_error"]
    assert main([argument for name in names for argument in ("--only", name)]) == 0
    out = capsys.readouterr().out
    assert "| **all** | 3 | 3 |" in out and all(f": {name}\n" in out for name in names)


def leave_process(trial: Trial) -> None:
    trial.run("sh", "-c", "setsid sleep 600 & echo $! > pid")
    pid = int((trial.work / "pid").read_text())
    os.environ["PLANTED_PID"] = str(pid)


def execute(trial: Trial) -> None:
    trial.write("pwned", "")


def refuse(trial: Trial) -> None:
    trial.write("x.py", "")
    trial.refused("list")


def fail(trial: Trial) -> None:
    raise KeyError("no such thing")


def skip(trial: Trial) -> None:
    raise NotPossibleError("there is no moon")


PLANTED = {
    leave_process: "left 1 processes: sleep 600",
    execute: "executed: work/pwned",
    refuse: "exit code 0 and not one line",
    fail: "the attack itself failed: KeyError: 'no such thing'",
    skip: "there is no moon",
}


def test_attacks_that_fall_are_listed_and_those_that_cannot_be_made_are_not_counted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(left_over, "PATIENCE", 0.5)
    monkeypatch.setenv("PLANTED_PID", "")
    document = tmp_path / "document.md"
    document.write_text("<!-- attacks -->\n<!-- /attacks -->\n")
    attacks = [Attack(run.__name__, "planted", "does", "holds", run) for run in PLANTED]
    assert main(["--jobs", "1", "--write", str(document)], attacks) == 1
    out = capsys.readouterr().out
    assert "| planted | 4 | 0 |" in document.read_text() and "| **all** | 4 | 0 |" in out
    assert all(text in out for text in PLANTED.values())
    assert not Path(f"/proc/{os.environ['PLANTED_PID']}").exists()
    assert main(["--only", "skip", "--write", str(document)], attacks) == 0
    assert "| planted | 4 | 0 |" in document.read_text()


@pytest.mark.parametrize(
    "answer",
    [
        Answer(3, "", "fuzz: internal error\n"),
        Answer(1, "", "Traceback (most recent call last):\n"),
        Answer(-9, "", ""),
        Answer(0, "\x1b[2J", ""),
    ],
)
def test_no_answer_may_hold_these(answer: Answer) -> None:
    with pytest.raises(FellError):
        check_answer(answer)


def test_every_attack_says_what_it_does_and_what_holds(capsys: pytest.CaptureFixture[str]) -> None:
    attacks = all_attacks()
    assert len({attack.name for attack in attacks}) == len(attacks) > 400
    assert all(kind.attacks for kind in KINDS)
    assert main(["--list"]) == 0
    assert capsys.readouterr().out.count("\n    holds  ") == len(attacks)
    with pytest.raises(ValueError, match="attack x: the name is taken"):
        Kind("empty").add("x", "", "holds", skip)
