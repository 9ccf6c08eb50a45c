"""Hosts that do not see the campaign's files: what travels, and that nothing is lost or doubled on the way."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fuzz import corpus
from fuzz.campaign import remote_hosts
from fuzz.campaign.config import parse_config
from fuzz.campaign.launch import launch
from fuzz.campaign.local_hosts import LocalHosts
from fuzz.campaign.protocol import Event, Slice
from fuzz.campaign.remote_hosts import FarHosts
from fuzz.campaign.state import Ledger
from fuzz.corpus import codec
from fuzz.errors import UsageError
from fuzz.model.case import Call, Case
from fuzz.model.entry import Entry

TARGETS = '''"""Two functions with one mistake each, of which one ends its process, and one without."""
import torch
from helper import double, ending
from fuzz import size, target, tensor

N = size("N", 1, 256)
ONE = dict(x=tensor(N), dtypes=("float32",), reference=lambda x: dict(y=x * 2))


@target(**ONE)
def right(x):
    return dict(y=double(x))


@target(**ONE)
def wrong(x):
    return dict(y=torch.where(x > 1, x * 2 + 1, x * 2))


@target(**ONE)
def ends(x):
    return dict(y=ending(x))
'''
HELPER = """import os, signal
def double(x):
    return x * 2
def ending(x):
    if x.numel() > 8:
        os.kill(os.getpid(), signal.SIGSEGV)
    return x * 2
"""


@dataclass
class Apart(LocalHosts):
    """Hosts of this machine that see none of the campaign's files; the first `deadly` requests end theirs."""

    deadly: int = 0

    def start(self, number: int) -> None:
        self.arguments = (str(self.folder / f"away-{number}"),)
        super().start(number)

    def write(self, number: int, data: bytes) -> None:
        super().write(number, data)
        if b'"kind": "slice"' in data and self.deadly:
            self.deadly -= 1
            self.kill(number)


def run(folder: Path, hosts: Apart, **keys: object) -> tuple[Ledger, str, list[str]]:
    said: list[str] = []
    places = {"corpus": "corpus", "store": "sqlite:///store.sqlite", "folder": "state"}
    config = parse_config({"slice": "6s", **places, **keys})
    return *launch(config, resume=False, say=said.append, hosts=FarHosts(hosts)), said


def test_targets_travel_and_findings_come_back_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(TARGETS)
    Path("helper.py").write_text(HELPER)
    # Two lanes of one target find the same mistake at the same time.
    names = ["mine.py:right", "mine.py:wrong", "mine.py:ends"]
    hosts, keys = Apart(tmp_path, deadly=1), {"seeds": [0, 1], "workers": 2, "notify": "cat > heard-$$"}
    ledger, state, said = run(tmp_path, hosts, targets=names, budget={"cases": 150}, **keys)
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join()
    heard = sorted((json.loads(path.read_text()) for path in Path().glob("heard-*")), key=lambda one: one["event"])
    assert [one["event"] for one in heard] == ["finding", "finding", "finished"]
    for one in heard[:2]:
        assert one["campaign"] == "campaign" and Path(one["finding"]["path"]).is_file()
    with ledger.store:
        assert state == "finished"
        assert sorted(path.parent.name for path in corpus.entry_files([Path("corpus")])) == ["ends", "wrong"], said
        assert {one.target for one in ledger.store.findings()} == {"ends", "wrong"}
        assert any("SIGKILL" in line for line in said)
        assert all(lane.cases > 0 and not lane.note for lane in ledger.lanes)
        assert not list(Path("state").glob("*/journals/*")) and not list(Path("state").glob("*/suspects/*"))
    # What is there already is replayed from its text; a target's file that is repaired travels again.
    Path("mine.py").write_text(TARGETS.replace("x * 2 + 1", "x * 2"))
    again, state, said = run(tmp_path, Apart(tmp_path), targets=names[1:2], budget={"cases": 20})
    with again.store:
        assert (state, len(again.fixed), len(again.new)) == ("finished", 1, 0), said


def test_a_target_that_cannot_be_sent_costs_its_lane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(TARGETS)
    Path("helper.py").write_text(HELPER)
    monkeypatch.setattr(remote_hosts, "LARGEST", 10)
    ledger, state, _ = run(tmp_path, Apart(tmp_path), targets=["mine.py:right", "silu"], budget={"cases": 20})
    with ledger.store:
        assert state == "finished" and [bool(lane.cases) for lane in ledger.lanes] == [False, True]
        assert "holds too much Python" in ledger.lanes[0].note


@dataclass
class Told(LocalHosts):
    """One host, which has told one thing and hears nothing."""

    events: tuple[Event, ...] = ()

    def write(self, number: int, data: bytes) -> None: ...

    def collect(self, seconds: float) -> Iterator[tuple[int, Event]]:
        yield from ((0, event) for event in self.events)


def test_nothing_that_a_host_tells_is_taken_for_a_path(tmp_path: Path) -> None:
    kept, places = tmp_path / "kept", (str(tmp_path / "corpus"), str(tmp_path / "journal"))
    kept.write_text("kept")
    one = Slice("relu", "", "cpu", "random", 0, 0, 0, 1.0, None, *places, 1 << 30, (str(tmp_path / "suspect"),))
    text = codec.dumps(Entry(Case("other", (Call({}, {}),))))
    for event, heard in (
        ({"kind": "saved", "path": "/etc/x", "replaced": "", "gone": [], "text": text}, ["stuck"]),
        ({"kind": "cleared", "path": str(kept)}, []),
    ):
        hosts = FarHosts(Told(tmp_path, events=(event,)))
        hosts.send(0, one)
        assert [told["kind"] for _, told in hosts.collect(0)] == heard
    assert list(tmp_path.iterdir()) == [kept]


def test_a_cluster_needs_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"^ray is not installed; cluster: ray needs the extra \[ray\]$"):
        launch(parse_config({"targets": ["silu"], "cluster": "ray"}), resume=False, say=print)
    assert list(tmp_path.iterdir()) == []
