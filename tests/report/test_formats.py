"""JUnit, SARIF and notifications: what other tools read has the shape that they require."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree.ElementTree import fromstring

import pytest

from fuzz import cli, corpus
from fuzz.model.entry import Entry
from fuzz.report import notify as notifications
from fuzz.report.items import ReportItem, make_item
from fuzz.report.junit import junit
from fuzz.report.notify import notify
from fuzz.report.sarif import sarif
from fuzz.target.spec import Target

HOSTILE = "]]><evil/>\x00\x08\x1b[31m\ud800\ufffe&\"'<script>"


@pytest.fixture
def hostile(entry: Entry) -> ReportItem:
    assert entry.finding is not None
    named = replace(entry, finding=replace(entry.finding, message=HOSTILE, outputs=(HOSTILE,)), planted=HOSTILE)
    return ReportItem(named, "a b/#?%.yaml", "failed", "new", HOSTILE, f"my kernels/{HOSTILE}.py", 3)


def test_junit_counts_what_failed_and_what_is_accepted(entry: Entry, gelu: Target) -> None:
    found = [make_item(entry, gelu, "p.yaml", state, "new", "told") for state in ("failed", "ok", "accepted")]
    root = fromstring(junit("fuzz run gelu_bw", found, 1.5, {"bounds": 40}))
    (suite,) = root
    counts = {"tests": "4", "failures": "1", "errors": "0", "skipped": "1", "time": "1.500"}
    for one in (root, suite):
        assert {name: one.attrib[name] for name in counts} == counts
    assert [[child.tag for child in test] for test in suite] == [
        ["system-out"],
        ["failure"],
        ["system-out"],
        ["skipped"],
    ]
    (failure,) = suite.iter("failure")
    assert failure.attrib["type"] == "accuracy/sign" and "repeat   fuzz replay p.yaml" in (failure.text or "")


def test_junit_holds_any_text(hostile: ReportItem) -> None:
    root = fromstring(junit(HOSTILE, [hostile], 0.0).encode("utf-8"))
    assert [node.tag for node in root.iter()] == ["testsuites", "testsuite", "testcase", "failure"]


def required(log: dict[str, Any]) -> None:
    """What the schema of SARIF 2.1.0 requires of the objects that are used, and what its text requires of them."""
    assert log["version"] == "2.1.0" and log["$schema"].endswith("sarif-schema-2.1.0.json")
    assert isinstance(log["runs"], list)
    for run in log["runs"]:
        driver = run["tool"]["driver"]
        assert driver["name"]
        rules = driver["rules"]
        assert all(rule["id"] for rule in rules) and len({rule["id"] for rule in rules}) == len(rules)
        for result in run["results"]:
            assert isinstance(result["message"]["text"], str) and result["message"]["text"]
            assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
            assert result["level"] in ("none", "note", "warning", "error")
            assert result["baselineState"] in ("new", "unchanged", "updated", "absent")
            assert all(isinstance(text, str) for text in result["partialFingerprints"].values())
            for place in (*result["locations"], *result.get("relatedLocations", ())):
                artifact = place["physicalLocation"]["artifactLocation"]
                assert re.fullmatch(r"[A-Za-z0-9._~/:%-]+", artifact["uri"])
                assert artifact["uri"].startswith("file:///") or artifact["uriBaseId"]
            assert all(one["region"]["startLine"] >= 1 for one in places(result) if "region" in one)
            for one in result.get("suppressions", ()):
                assert one["kind"] in ("inSource", "external")


def places(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [place["physicalLocation"] for place in result["locations"]]


def test_sarif_has_what_its_schema_requires(entry: Entry, gelu: Target, hostile: ReportItem) -> None:
    found = [make_item(entry, gelu, "/abs/p.yaml", state, "known", "told") for state in ("failed", "ok", "accepted")]
    log = json.loads(sarif([*found, hostile], "0.1.0"))
    required(log)
    results = log["runs"][0]["results"]
    assert [one["level"] for one in results] == ["error", "error", "note", "error"]
    assert [one["baselineState"] for one in results] == ["unchanged"] * 3 + ["new"]
    assert "suppressions" in results[2] and "suppressions" not in results[0]
    assert unquote(places(results[0])[0]["artifactLocation"]["uri"]) == "targets/gelu_bw.py"


def test_sarif_without_findings_is_a_run_without_results() -> None:
    log = json.loads(sarif([], "0.1.0"))
    required(log)
    assert log["runs"][0]["results"] == []


def test_a_finding_lies_at_its_access_where_that_is_known_else_at_the_launcher(entry: Entry, gelu: Target) -> None:
    assert entry.finding is not None
    launcher = gelu.launcher.__code__.co_firstlineno
    assert (
        make_item(entry, gelu, "", "failed", "new", "").source,
        make_item(entry, gelu, "", "failed", "new", "").line,
    ) == (
        "targets/gelu_bw.py",
        launcher,
    )
    own = "targets/gelu_bw.py"
    dues = {
        "lib/ops/rope.py:109": ("lib/ops/rope.py", 109),
        "targets/gelu_bw.py[plant]:12": (own, 12),
        "gelu_bw.py:13": (own, 13),
        "nonsense": (own, launcher),
    }
    for place, due in dues.items():
        made = make_item(
            replace(entry, finding=replace(entry.finding, source_line=place)), gelu, "", "failed", "new", ""
        )
        assert (made.source, made.line) == due


def test_a_run_writes_both_and_tells_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    xml, log, told = (tmp_path / name for name in ("junit.xml", "log.sarif", "told.json"))
    line = ["run", "gelu_bw", "--planted", "erf_saturates", "--cases", "40", "--max-findings", "1", "--backend", "cpu"]
    line += ["--corpus", str(tmp_path / "found"), "--junit", str(xml), "--sarif", str(log)]
    assert cli.exit_code([*line, "--notify", f"cat >> {told}; false"]) == 1
    required(json.loads(log.read_text()))
    assert fromstring(xml.read_text()).attrib["failures"] == "1"
    document = json.loads(told.read_text())
    assert (document["event"], document["target"], document["finding"]["symptom"]) == ("finding", "gelu_bw", "sign")
    assert Path(document["finding"]["path"]).is_file()
    assert "warning: the notification command ended with 1" in capsys.readouterr().err


def test_a_replay_writes_both(tmp_path: Path, entry: Entry) -> None:
    corpus.add(tmp_path / "found", replace(entry, status="fixed"))
    xml, log = tmp_path / "junit.xml", tmp_path / "log.sarif"
    line = ["replay", str(tmp_path / "found"), "--backend", "cpu", "--junit", str(xml), "--sarif", str(log)]
    assert cli.exit_code(line) == 1
    assert fromstring(xml.read_text()).attrib["failures"] == "1"
    (result,) = json.loads(log.read_text())["runs"][0]["results"]
    assert result["ruleId"] == "accuracy/sign" and "disagrees again" in result["message"]["text"]


@pytest.mark.parametrize("option", ["--junit", "--sarif"])
def test_a_place_that_cannot_be_written_is_told_before_the_run(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.exit_code(["run", "gelu_bw", option, str(tmp_path / "no" / "file")]) == 2
    assert capsys.readouterr().err == f"fuzz: {option} {tmp_path}/no/file: there is no folder {tmp_path}/no\n"


def test_a_command_gets_the_document_and_nothing_of_it_becomes_the_command(tmp_path: Path) -> None:
    out, never = tmp_path / "out", tmp_path / "never"
    document = {"text": f"$(touch {never}); `touch {never}`\n'; touch {never} #"}
    assert notify(f"cat > {out}", document) == ""
    assert json.loads(out.read_text()) == document and not never.exists()


def test_a_command_that_hangs_is_ended_with_what_it_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifications, "PATIENCE", 0.3)
    assert "more than 0.3 s" in notify("sleep 60 & sleep 60", {})


def test_a_command_that_reads_nothing_is_no_failure() -> None:
    assert notify("true", {"text": "x" * 1_000_000}) == ""
