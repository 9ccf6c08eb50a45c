"""Which findings make the command end with 1."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock
from xml.etree import ElementTree

import pytest
from bugs import make_bug
from sarif_schema import check_sarif

import fuzz.cli.run as run_module
from fuzz import corpus
from fuzz.campaign.store.rebuild import finding_of
from fuzz.cli.campaign import campaign, counts
from fuzz.errors import UsageError
from fuzz.model.case import Case
from fuzz.model.entry import Entry
from fuzz.model.finding import Finding
from fuzz.model.grade import Grade
from fuzz.run.options import RunOptions
from fuzz.run.result import Result
from fuzz.search.statistics import RunStatistics
from fuzz.target.spec import Target

GRADES = {"high": Grade("high", "ordinary"), "medium": Grade("medium", "layout"), "low": Grade("low", "extreme")}


@pytest.mark.parametrize(
    ("grade", "options", "code"),
    [
        ("low", {}, 0),
        ("medium", {}, 1),
        ("high", {}, 1),
        ("", {}, 1),
        ("low", {"fail_on": "low"}, 1),
        ("medium", {"fail_on": "high"}, 0),
        ("", {"fail_on": "high"}, 0),
        ("high", {"fail_on": "high"}, 1),
        ("", {"fail_on": "high", "planted": "erf_saturates"}, 1),
        ("high", {"only_new": True}, 0),
        ("high", {"accepted": True}, 0),
    ],
)
def test_a_run_ends_with_1_for_findings_at_or_above_the_threshold(
    case: Case, gelu: Target, grade: str, options: dict[str, Any], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = "only_new" in options
    bug = make_bug(case, "dx", known=known, accepted=options.pop("accepted", False), grade=GRADES.get(grade))

    def fuzz(options: RunOptions, *_: object) -> tuple[Target, Result]:
        return gelu, Result(options, "cpu", RunStatistics(), [bug], 1.0)

    monkeypatch.setattr(run_module, "fuzz", fuzz)
    assert run_module.run("gelu_bw", **options) == code


def test_another_severity_is_refused() -> None:
    with pytest.raises(UsageError, match="low, medium, high, not 'none'"):
        RunOptions("gelu_bw", fail_on="none")


@pytest.mark.parametrize(("fail_on", "fails"), [("medium", True), ("high", False)])
def test_what_a_run_fails_for_without_having_confirmed_it_fails_in_its_files(
    gelu: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fail_on: str, fails: bool
) -> None:
    def fuzz(options: RunOptions, *_: object) -> tuple[Target, Result]:
        statistics = RunStatistics(cases=9, oracles=Counter(fault=9, accuracy=9))
        wrong = Finding("accuracy", ("dx",), "value", "dx: 1 of 2 elements wrong")
        return gelu, Result(options, "cpu", statistics, [], 1.0, disagreements_cut_off=[wrong] * 2)

    monkeypatch.setattr(run_module, "fuzz", fuzz)
    xml, log = tmp_path / "j.xml", tmp_path / "s.json"
    assert run_module.run("gelu_bw", fail_on=fail_on, junit=xml, sarif=log) == fails
    (suite,) = ElementTree.parse(xml).getroot()
    assert {test.attrib["name"]: test[0].tag for test in suite} == {
        "fault": "system-out",
        "accuracy": "failure" if fails else "system-out",
    }
    assert suite.attrib["failures"] == str(int(fails))
    written = json.loads(log.read_text())
    check_sarif(written)
    assert ("2 disagreed" in str(written["runs"][0].get("invocations"))) is fails


@pytest.mark.parametrize(
    ("severity", "planted", "fail_on", "counted"),
    [
        ("low", "", "medium", False), ("low", "", "low", True), ("medium", "", "medium", True),
        ("", "", "medium", True), ("", "", "high", False), ("", "bessel", "high", True),
    ],
)  # fmt: skip
def test_a_campaign_counts_findings_as_a_run_does(
    entry: Entry, tmp_path: Path, severity: str, planted: str, fail_on: str, counted: bool
) -> None:
    grade = Grade(severity, "extreme") if severity else None
    saved = finding_of(replace(entry, grade=grade, planted=planted), tmp_path / "t" / "x.yaml", tmp_path, 0.0)
    assert counts(saved, fail_on) == counted
    assert counts(None, fail_on)


def test_a_finding_that_is_accepted_meanwhile_is_none_of_a_campaign_any_more(
    entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store holds the status that it had when a slice hit it; `--resume` may hit nothing."""
    path = corpus.save_entry(tmp_path, entry)
    findings = {"new": finding_of(entry, path, tmp_path, 0.0)}
    store = SimpleNamespace(find_finding=findings.get)
    state = SimpleNamespace(
        store=MagicMock(__enter__=lambda _: store, find_finding=store.find_finding),
        new={"new": "tag"}, known={}, fixed={}, regressed={}, jobs=[], cases=1,
    )  # fmt: skip
    monkeypatch.setattr("fuzz.campaign.runner.run_campaign", lambda *_, **__: (state, "finished"))
    monkeypatch.setattr("fuzz.campaign.config.load_config", lambda _: None)
    monkeypatch.setattr("fuzz.campaign.result_table.make_table", lambda _: "")
    files = tmp_path / "j.xml"
    assert campaign(tmp_path / "c.yaml", junit=files) == 1 and "<failure" in files.read_text()
    corpus.mark(path, "accepted", "by design")
    assert campaign(tmp_path / "c.yaml", junit=files) == 0 and "<failure" not in files.read_text()
