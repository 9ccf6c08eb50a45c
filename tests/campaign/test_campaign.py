"""Campaigns as a person runs them: killed, resumed, over kernels that kill, and again after a fix."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import chdir
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from commands import fuzz
from processes import in_background

from fuzz import corpus
from fuzz.campaign.hosts import hosts
from fuzz.campaign.store import Campaign, Coverage, Heartbeat, Job, Store
from fuzz.errors import UsageError
from fuzz.worker.python_process import PipeProcess

pytestmark = pytest.mark.usefixtures("forked_hosts")

FUZZ = str(Path(sys.executable).with_name("fuzz"))
TARGETS = '''"""Functions with one mistake each, and one without."""
import os, signal
import torch
from fuzz import size, target, tensor

N = size("N", 1, 256)
ONE = dict(x=tensor(N), dtypes=("float32",), reference=lambda x: dict(y=x * 2))


@target(**ONE)
def right(x):
    return dict(y=x * 2)


@target(**ONE)
def wrong(x):
    return dict(y=torch.where(x > 1, x * 2 + 1, x * 2))


@target(**ONE)
def refuses(x):
    raise ValueError("not today")


@target(**ONE)
def segfaults(x):
    if x.numel() > 100:
        os.kill(os.getpid(), signal.SIGSEGV)
    return dict(y=x * 2)
'''


def write_config(folder: Path, *names: str, **keys: object) -> Path:
    """A configuration over some of the targets above."""
    file, path = folder / "mine.py", folder / "c.yaml"
    if not file.exists():
        file.write_text(TARGETS)
    paths = {"corpus": "corpus", "store": "sqlite:///store.sqlite", "folder": "state"}
    values = {"targets": [f"mine.py:{name}" for name in names], "slice": "5s", **paths, **keys}
    path.write_text(json.dumps(values))
    return path


def run_campaign(folder: Path, *arguments: str) -> tuple[int, Any, str]:
    """(exit code, JSON, standard error) of the command, which starts hosts of its own."""
    with chdir(folder):
        done = fuzz("campaign", "c.yaml", "--json", *arguments)
    return done.code, done.json if done.out else None, done.err


def entries(folder: Path) -> list[str]:
    return [path.parent.name for path in corpus.entry_files([folder / "corpus"])]


def test_a_killed_campaign_goes_on_and_loses_nothing_and_a_later_one_reports_fixes(tmp_path: Path) -> None:
    names = ("right", "wrong", "segfaults")
    write_config(tmp_path, *names, budget={"cases": 75})
    with subprocess.Popen([FUZZ, "campaign", "c.yaml"], cwd=tmp_path, stderr=subprocess.PIPE) as running:
        until = time.monotonic() + 300
        while not list(tmp_path.glob("corpus/*/*.yaml")):
            assert running.poll() is None and time.monotonic() < until
            time.sleep(0.05)
        running.kill()
    for process in Path("/proc").glob("[0-9]*"):
        # What ran in the folder ends with the campaign.
        assert_ended(int(process.name), tmp_path)
    code, result, stderr = run_campaign(tmp_path, "--resume")
    assert code == 1, stderr
    assert {finding["target"]: finding["symptom"] for finding in result["findings"]} == {
        "wrong": "value",
        "segfaults": "died",
    }
    assert sorted(entries(tmp_path)) == ["segfaults", "wrong"]
    assert result["state"] == "finished" and result["cases"] >= 75
    rows = {row["target"]: row for row in result["targets"]}
    assert 0 < max(row["visited"] for row in rows.values() if row["cases"]) < 1
    assert [[row[key] for key in ("new", "known")] for row in rows.values()] == [[0, 0], [1, 0], [1, 0]]
    assert list(tmp_path.glob("state/*/journals/*")) == [] == list(tmp_path.glob("state/*/suspects/*"))
    with Store(f"sqlite:///{tmp_path / 'store.sqlite'}") as store:
        assert [campaign.state for campaign in store.read(Campaign)] == ["finished"]
        assert len(store.findings(campaign=result["campaign"])) == 2 and store.read(Heartbeat) == []
        assert {statistic.target for statistic in store.statistics()} == {f"mine.py:{name}" for name in names}
    again = run_campaign(tmp_path, "--resume", "--junit", "j.xml", "--sarif", "s.json")
    assert (again[0], again[1]["cases"]) == (1, result["cases"]) and "has finished" in again[2]
    assert ElementTree.parse(tmp_path / "j.xml").getroot().attrib["failures"] == "2"
    results = json.loads((tmp_path / "s.json").read_text())["runs"][0]["results"]
    assert sorted(result["ruleId"] for result in results) == ["accuracy/value", "fault/died"]
    check_that_a_fix_is_reported(tmp_path)


def test_what_was_never_tried_is_measured_at_the_end_of_a_slice_and_reported(tmp_path: Path) -> None:
    write_config(tmp_path, "narrow", budget={"cases": 20}, coverage=5, slice="10m")
    text = (
        TARGETS
        + """

@target(**ONE)
def narrow(x, scale=None):
    if scale is not None:
        x = x * scale
    return dict(y=x * 2)
"""
    )
    (tmp_path / "mine.py").write_text(text)
    code, _, stderr = run_campaign(tmp_path)
    assert code == 0, stderr
    with Store(f"sqlite:///{tmp_path / 'store.sqlite'}") as store:
        (measured,) = store.read(Coverage, campaign=1)
        (job,) = store.read(Job, campaign=1)
    assert (measured.target, measured.number, measured.cases, job.slices) == ("mine.py:narrow", 1, 5, 1)
    assert 0 < measured.lines_run < measured.lines_all and 0 < measured.branches_run < measured.branches_all
    blockers = json.loads(measured.blockers)
    assert "narrow: `scale is not None` is never true" in [blocker["what"] for blocker in blockers]
    with chdir(tmp_path):
        assert fuzz("report", "1", "--store", "sqlite:///store.sqlite", "--no-plots").code == 0
    shown = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<h2>Coverage</h2>" in shown and "narrow: `scale is not None` is never true" in shown


def check_that_a_fix_is_reported(folder: Path) -> None:
    """A later campaign on the same corpus, after one of the two mistakes was repaired."""
    (folder / "mine.py").write_text(TARGETS.replace("x * 2 + 1", "x * 2"))
    command = ["sh", "-c", "cat >> notified"]
    write_config(folder, "wrong", budget={"cases": 20}, notify=command)
    code, result, stderr = run_campaign(folder)
    assert code == 0 and len(result["fixed"]) == 1
    assert "fixed: " in stderr and "--why" in stderr
    (row,) = result["targets"]
    assert [row[key] for key in ("new", "known", "fixed")] == [0, 0, 1]
    assert (folder / "notified").exists(), stderr
    notified = json.loads((folder / "notified").read_text())
    assert (notified["event"], notified["new"], notified["known"]) == ("finished", 0, 0)
    (path,) = folder.glob("corpus/wrong/*.yaml")
    assert corpus.read(path).status == "open"
    with Store(f"sqlite:///{folder / 'store.sqlite'}") as store:
        assert [finding.target for finding in store.findings(replayed="agrees")] == ["wrong"]


def assert_ended(pid: int, folder: Path) -> None:
    until = time.monotonic() + 120
    while True:
        try:
            if os.readlink(f"/proc/{pid}/cwd") != str(folder):
                return
        except OSError:
            return
        assert time.monotonic() < until, Path(f"/proc/{pid}/cmdline").read_bytes()
        time.sleep(0.05)


def test_a_campaign_stops_in_order_and_a_target_that_cannot_be_loaded_costs_only_its_job(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import nonsense\nfrom fuzz import target\n\n@target()\ndef lost(x): ...\n")
    path = write_config(tmp_path, "right", budget={"time": "1000s"}, slice="600s")
    path.write_text(path.read_text().replace("[", '["broken.py", ', 1))
    # It waits 60 s for hosts that do not end their slices.
    line = in_background(FUZZ, "campaign", "c.yaml", "--json")
    with subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        with Store(f"sqlite:///{tmp_path / 'store.sqlite'}") as store:
            until = time.monotonic() + 300
            while not (store.read(Campaign) and store.statistics()):
                assert time.monotonic() < until
                time.sleep(0.1)
        busy = subprocess.run([FUZZ, "campaign", "c.yaml", "--resume"], cwd=tmp_path, capture_output=True, text=True)
        assert (busy.returncode, busy.stderr) == (2, "fuzz: campaign 'c' is running already\n")
        running.send_signal(signal.SIGTERM)
        out, stderr = running.communicate(timeout=50)
    assert running.returncode == 0, stderr
    result = json.loads(out)
    assert result["state"] == "stopped" and result["cases"] > 0
    assert "nonsense is not installed" in result["targets"][0]["note"]


def test_a_campaign_that_loads_targets_at_its_end_has_its_supervisor_before_any_thread_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def run(*_: object, **__: object) -> None:
        calls.append("run")
        raise UsageError("enough")

    monkeypatch.setattr("fuzz.cli.campaign.prepare", lambda: calls.append("prepare"))
    monkeypatch.setattr("fuzz.campaign.runner.run_campaign", run)
    write_config(tmp_path, "right")
    assert run_campaign(tmp_path, "--junit", "j.xml")[0] == 2
    assert calls == ["prepare", "run"]


def test_a_campaign_in_which_no_case_ran_has_not_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its host starts, and never takes a request."""
    silent = partial(PipeProcess.start, ("sleep", "300"))
    monkeypatch.setattr(hosts, "PipeProcess", SimpleNamespace(start=lambda command, **options: silent(**options)))
    write_config(tmp_path, "wrong", budget={"time": "1s"})
    code, result, stderr = run_campaign(tmp_path)
    assert (code, result["cases"], result["findings"]) == (2, 0, [])
    assert stderr.splitlines()[-1] == "fuzz: no case ran before the budget ended"


def test_a_campaign_of_which_no_target_can_be_loaded_ends_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import nonsense\nfrom fuzz import target\n\n@target()\ndef lost(x): ...\n")
    write_config(tmp_path, targets=["broken.py"])
    code, _, stderr = run_campaign(tmp_path)
    assert code == 2 and "nonsense is not installed" in stderr.splitlines()[-1]


def test_a_target_that_refuses_every_case_is_not_given_up_and_a_campaign_of_it_alone_has_not_passed(
    tmp_path: Path,
) -> None:
    write_config(tmp_path, "refuses", budget={"cases": 30})
    code, result, stderr = run_campaign(tmp_path)
    assert code == 2 and "every case was refused, the last one: " in stderr and "tried again in 30 s" in stderr
    assert stderr.splitlines()[-1] == f"fuzz: every one of {result['cases']} cases was refused"
    (row,) = result["targets"]
    assert row["cases"] == row["rejected"] >= 30 and row["note"] == ""
