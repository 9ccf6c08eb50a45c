"""Which disagreements count, and that one which nothing decides is never called right."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fuzz.judge import findings
from fuzz.judge.findings import FAR, Findings, is_unproven
from fuzz.judge.formats.options import JudgeOptions
from fuzz.judge.referee import judge
from fuzz.judge.result.judgement import EXIT_CODES, RIGHT, UNDECIDED, WRONG, Evidence, Judgement
from fuzz.judge.result.report import format_judgement, judgement_json
from fuzz.model.finding import Finding, Verdict
from fuzz.triage.triage import Triage
from fuzz.worker.deadline import OutOfTime
from tests.judge.problems import RELU, as_solution, write

WRONG_RELU = as_solution(RELU).replace("torch.relu(x)", "torch.relu(x) * 1.01")
OPEN = Evidence("accuracy", ("out",), "value", "out is off", "medium", reason="no rule for it", is_open=True)


def judged(folder: Path) -> Judgement:
    files = write(folder, "problem", RELU), write(folder, "solution", WRONG_RELU)
    return judge(JudgeOptions(*files, backend="cpu", seconds=0.0))


@pytest.mark.parametrize(
    ("verdict", "ratio", "expected"),
    [
        (Verdict("unadjudicated", "too large"), FAR / 2, True),
        (Verdict("unadjudicated", "too large"), FAR * 2, False),
        (Verdict("undecided", "too large"), FAR * 2, True),
        (Verdict("undecided"), FAR / 2, False),
        (Verdict("kernel", digits=100), 2.0, False),
        (Verdict("reference", digits=100), 2.0, False),
    ],
)
def test_without_an_exact_value_nothing_is_proven_by_a_narrow_bound(
    verdict: Verdict, ratio: float, expected: bool
) -> None:
    finding = Finding("accuracy", ("out",), "value", "off", ratio=ratio)
    bug: Any = SimpleNamespace(
        finding=finding, least=SimpleNamespace(verdict=verdict), is_undecided=verdict.name == "undecided"
    )
    assert is_unproven(bug, finding) is expected


def test_what_nothing_decides_is_undecided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Findings, "weigh", lambda *_: OPEN)
    found = judged(tmp_path)
    assert (found.verdict, found.reason, found.exit_code) == (UNDECIDED, "out is off; not decided: no rule for it", 2)
    document = judgement_json(found)
    assert document["findings"] == [] and document["undecided"][0]["reason"] == "no rule for it"
    assert "undecided, medium if it is wrong: accuracy/value" in format_judgement(found)


def test_a_disagreement_for_which_there_is_no_time_is_undecided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def confirm(*_: Any) -> None:
        raise OutOfTime

    monkeypatch.setattr(Triage, "confirm", confirm)
    found = judged(tmp_path)
    assert found.verdict == UNDECIDED and "the time for it ended" in found.reason and found.cut_off


def test_a_case_for_whose_shrinking_there_was_no_time_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "SHRINK_SECONDS", 0.0)
    found = judged(tmp_path)
    assert found.verdict == WRONG and judgement_json(found)["findings"][0]["cut_off"] == "shrinking"
    assert "cut off   shrinking: the time for it ended" in format_judgement(found)


def test_what_is_decided_counts_before_what_is_not() -> None:
    found = Judgement(RIGHT, "", "p", "s", "cpu", undecided=[OPEN])
    found.evidence = [Evidence("accuracy", ("out",), "value", "off by one", "high")]
    found.decide()
    assert (found.verdict, found.reason) == (WRONG, "off by one")
    assert EXIT_CODES[UNDECIDED] == 2
