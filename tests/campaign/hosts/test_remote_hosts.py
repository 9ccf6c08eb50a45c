"""Hosts that do not see the campaign's files: what travels, and that nothing is lost or doubled on the way."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import Pipe
from operator import itemgetter
from pathlib import Path

import pytest

from fuzz import corpus
from fuzz.campaign.config import parse_config
from fuzz.campaign.hosts import remote_hosts
from fuzz.campaign.hosts.hosts import start_here
from fuzz.campaign.hosts.remote_hosts import RemoteHosts
from fuzz.campaign.journal import read_saved
from fuzz.campaign.protocol import EntrySaved, HostEvent, Message, Slice, SuspectCleared, encode
from fuzz.campaign.runner import run_campaign
from fuzz.campaign.state import CampaignState
from fuzz.corpus import codec
from fuzz.errors import UsageError
from fuzz.model.case import Call, Case
from fuzz.model.entry import Entry
from fuzz.worker.python_process import Received

pytestmark = pytest.mark.usefixtures("forked_hosts")

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
    if x.numel() > 100:
        os.kill(os.getpid(), signal.SIGSEGV)
    return x * 2
"""


class RemoteLocalHosts(RemoteHosts):
    """Hosts of this machine that see none of the campaign's files; the first `deadly` requests end theirs."""

    def __init__(self, folder: Path, deadly: int = 0) -> None:
        super().__init__(folder, start_here)
        self.deadly = deadly

    def start(self, number: int) -> None:
        self.launch = partial(start_here, str(self.folder / f"away-{number}"))
        super().start(number)

    def write(self, number: int, *messages: Message) -> None:
        super().write(number, *messages)
        if self.deadly and any(isinstance(message, Slice) for message in messages):
            self.deadly -= 1
            self.kill(number)


def run(folder: Path, hosts: RemoteLocalHosts, **keys: object) -> tuple[CampaignState, str, list[str]]:
    lines: list[str] = []
    paths = {"corpus": "corpus", "store": "sqlite:///store.sqlite", "folder": "state"}
    config = parse_config({"slice": "1000s", **paths, **keys})
    return *run_campaign(config, resume=False, say=lines.append, hosts=hosts), lines


def test_targets_travel_and_findings_come_back_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(TARGETS)
    Path("helper.py").write_text(HELPER)
    # Two jobs of one target find the same mistake at the same time.
    names = ["mine.py:right", "mine.py:wrong", "mine.py:ends"]
    hosts, keys = RemoteLocalHosts(tmp_path, deadly=1), {"seeds": [0, 1], "workers": 2, "notify": "cat > notified-$$"}
    state, outcome, lines = run(tmp_path, hosts, targets=names, budget={"cases": 150}, **keys)
    notified = sorted((json.loads(path.read_text()) for path in Path().glob("notified-*")), key=itemgetter("event"))
    assert [document["event"] for document in notified] == ["finding", "finding", "finished"]
    for document in notified[:2]:
        # A later slice may have put a smaller case in its place, where the end of the first one cut shrinking off.
        assert document["campaign"] == "campaign"
        assert len(list(Path(document["finding"]["path"]).parent.glob("*.yaml"))) == 1
    with state.store:
        assert outcome == "finished"
        assert sorted(path.parent.name for path in corpus.entry_files([Path("corpus")])) == ["ends", "wrong"], lines
        assert {finding.target for finding in state.store.findings()} == {"ends", "wrong"}
        assert any("SIGKILL" in line for line in lines)
        assert all(job.cases > 0 and not job.note for job in state.jobs)
        assert not list(Path("state").glob("*/journals/*")) and not list(Path("state").glob("*/suspects/*"))
    # What is there already is replayed from its text; a target's file that is repaired travels again.
    Path("mine.py").write_text(TARGETS.replace("x * 2 + 1", "x * 2"))
    again, outcome, lines = run(tmp_path, RemoteLocalHosts(tmp_path), targets=names[1:2], budget={"cases": 20})
    with again.store:
        assert (outcome, len(again.fixed), len(again.new)) == ("finished", 1, 0), lines


def test_a_target_that_cannot_be_sent_costs_its_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(TARGETS)
    Path("helper.py").write_text(HELPER)
    monkeypatch.setattr(remote_hosts, "LARGEST_SOURCES", 10)
    state, outcome, _ = run(
        tmp_path, RemoteLocalHosts(tmp_path), targets=["mine.py:right", "silu"], budget={"cases": 20}
    )
    with state.store:
        assert outcome == "finished" and [bool(job.cases) for job in state.jobs] == [False, True]
        assert "holds too much Python" in state.jobs[0].note


@dataclass
class ScriptedProcess:
    """A host that sends one event and reads nothing."""

    event: HostEvent
    pid: int = 1

    def __post_init__(self) -> None:
        here, there = Pipe(duplex=False)
        there.send_bytes(encode(self.event))
        self.ends, self.sources = (here, there), [here.fileno()]

    def receive(self, seconds: float) -> Received:
        return [self.ends[0].recv_bytes()], b"", ""

    def send(self, message: bytes) -> None: ...
    def interrupt(self) -> None: ...
    def kill(self) -> None: ...
    def close(self) -> None: ...


def test_nothing_that_a_host_sends_is_taken_for_a_path(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    logs = tmp_path_factory.mktemp("logs")
    kept, paths = tmp_path / "kept", (str(tmp_path / "corpus"), str(tmp_path / "journal"))
    kept.write_text("kept")
    request = Slice("relu", "cpu", "", "random", 0, 0, 0, 1.0, None, *paths, 1 << 30, (str(tmp_path / "suspect"),))
    text = codec.dumps(Entry(Case("other", (Call({}, {}),))))
    saved = EntrySaved("/etc/x", False, 1, 0, replaced="", backend="cpu", finding={}, text=text)
    for event, kinds in ((saved, ["Unwritable"]), (SuspectCleared(str(kept)), [])):
        hosts = RemoteHosts(logs, partial(ScriptedProcess, event))
        hosts.start(0)
        hosts.send(0, request)
        assert [type(seen).__name__ for _, seen in hosts.receive(0)] == kinds
    assert list(tmp_path.iterdir()) == [kept]


def test_names_of_entries_are_noted_where_no_entry_has_them(
    entry: Entry, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Of a host's finding, of what is then put in its place, and not of the entry that it is merged into at last."""
    entries = [replace(entry, case=replace(entry.case, calls=entry.case.calls * count)) for count in (1, 2, 3)]
    known, new, smaller = (one.name for one in entries)
    corpus.save_entry(tmp_path, entries[0])
    paths, saved = (str(tmp_path), str(tmp_path / "journal")), tmp_path / "saved" / "job"
    request = Slice("gelu_bw", "cpu", "", "random", 0, 0, 0, 1.0, None, *paths, 1 << 30, saved=str(saved))
    for index, replaced in ((1, ""), (2, new), (0, smaller)):
        text = codec.dumps(entries[index])
        event = EntrySaved(entries[index].name, index != 1, 1, 0, replaced, backend="cpu", finding={}, text=text)
        hosts = RemoteHosts(tmp_path_factory.mktemp("logs"), partial(ScriptedProcess, event))
        hosts.start(0)
        hosts.send(0, request)
        assert [type(seen) for _, seen in hosts.receive(0)] == [EntrySaved]
    assert [path.name for path in corpus.entry_files([tmp_path])] == [known]
    stems = [name.removesuffix(".yaml") for name in (new, smaller)]
    assert read_saved(saved) == [(stems[0], ""), (stems[1], stems[0])]


def test_a_cluster_needs_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"^ray is not installed; cluster: ray needs the extra \[ray\]$"):
        run_campaign(parse_config({"targets": ["silu"], "cluster": "ray"}), resume=False, say=print)
    assert list(tmp_path.iterdir()) == []
