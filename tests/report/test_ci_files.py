"""A run and a replay write the files that were asked for, and check first that they can."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree.ElementTree import fromstring

import pytest
from sarif_schema import check_sarif

from fuzz import cli, corpus
from fuzz.model.entry import Entry

pytestmark = pytest.mark.usefixtures("no_cross_checks")


def test_a_run_writes_both_and_tells_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    xml, log, told = (tmp_path / name for name in ("junit.xml", "log.sarif", "told.json"))
    line = ["run", "gelu_bw", "--planted", "erf_saturates", "--cases", "40", "--max-findings", "1", "--backend", "cpu"]
    line += ["--corpus", str(tmp_path / "found"), "--junit", str(xml), "--sarif", str(log)]
    assert cli.exit_code([*line, "--notify", f"cat >> {told}; false"]) == 1
    check_sarif(json.loads(log.read_text()))
    assert fromstring(xml.read_text()).attrib["failures"] == "1"
    document = json.loads(told.read_text())
    assert (document["event"], document["target"], document["finding"]["symptom"]) == ("finding", "gelu_bw", "sign")
    assert Path(document["finding"]["path"]).is_file()
    assert "warning: the notification command ended with 1" in capsys.readouterr().err


def test_a_replay_writes_both(tmp_path: Path, entry: Entry) -> None:
    corpus.save_entry(tmp_path / "found", replace(entry, status="fixed"))
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


def test_one_file_for_both_is_told_before_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    both = ["--junit", str(tmp_path / "file"), "--sarif", str(tmp_path / "link")]
    assert cli.exit_code(["run", "gelu_bw", *both]) == 2
    assert capsys.readouterr().err == f"fuzz: --junit and --sarif name one file: {tmp_path}/file\n"
