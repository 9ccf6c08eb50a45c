"""The loop of a campaign under a clock that is set by hand, over hosts that only say that they ran."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from services import Postgres

from fuzz import corpus
from fuzz.campaign import protocol, runner
from fuzz.campaign.config import parse_config
from fuzz.campaign.coordinator import Coordinator
from fuzz.campaign.hosts.hosts import Hosts
from fuzz.campaign.journal import Journal
from fuzz.campaign.protocol import (
    EntrySaved,
    Failed,
    FindingTriaged,
    HostDied,
    HostEvent,
    Ready,
    Refused,
    Replay,
    Replayed,
    Request,
    Slice,
    SliceDone,
    SuspectCleared,
)
from fuzz.campaign.result_table import job_rows
from fuzz.campaign.runner import run_campaign
from fuzz.campaign.state import CampaignState
from fuzz.campaign.store import Store
from fuzz.clock import Clock
from fuzz.errors import UsageError
from fuzz.files import lock_folder
from fuzz.model.case import Case
from fuzz.model.entry import Entry
from fuzz.report.notify import BackgroundNotifier
from fuzz.worker.protocol import ReplicaGroup

Documents = list[dict[str, Any]]


@dataclass(frozen=True)
class ManualClock(Clock):
    now: list[float] = field(default_factory=lambda: [0.0])

    def monotonic(self) -> float:
        return self.now[0]


@dataclass
class SimulatedHosts(Hosts):
    """One host. Each of its slices lasts as long as it may, and refuses every case of the targets in `refused`."""

    clock: ManualClock
    refused: tuple[str, ...] = ()
    name: str = "simulated"
    events: list[tuple[int, HostEvent]] = field(default_factory=list)
    slices: list[tuple[float, str]] = field(default_factory=list)

    def start(self, number: int) -> None:
        self.events.append((number, Ready()))

    def send(self, number: int, request: Request) -> None:
        assert isinstance(request, Slice)
        self.slices.append((self.clock.monotonic(), request.target))
        self.clock.now[0] += request.seconds
        rejected, why = (100, "no memory") if request.target in self.refused else (0, "")
        done = SliceDone(10, 100, rejected, 0.5, request.seconds, (), rejection=why)
        self.events += [(number, done), (number, Ready())]

    def receive(self, seconds: float) -> Iterator[tuple[int, HostEvent]]:
        if not self.events:
            self.clock.now[0] += seconds
        events, self.events = self.events, []
        yield from events

    def write(self, number: int, data: bytes) -> None: ...
    def interrupt(self, number: int) -> None: ...
    def kill(self, number: int) -> None: ...
    def close(self) -> None: ...

    def pid(self, number: int) -> int:
        return 0


def simulate(
    folder: Path, hosts: SimulatedHosts, resume: bool = False, **keys: object
) -> tuple[CampaignState, list[str]]:
    places = {"corpus": str(folder / "corpus"), "store": f"sqlite:///{folder / 'store.sqlite'}", "folder": str(folder)}
    lines: list[str] = []
    config = parse_config({"targets": ["gelu_bw", "silu"], **places, **keys})
    state, outcome = run_campaign(config, resume=resume, say=lines.append, clock=hosts.clock, hosts=hosts)
    assert outcome == "finished"
    state.store.close()
    return state, lines


@pytest.fixture
def documents(monkeypatch: pytest.MonkeyPatch) -> Documents:
    """What a campaign notifies of, in place of commands that run."""
    sent: Documents = []
    monkeypatch.setattr(BackgroundNotifier, "send", lambda _, one: sent.append(one))
    return sent


def test_a_job_whose_cases_are_all_refused_is_tried_again_after_growing_pauses(tmp_path: Path) -> None:
    hosts = SimulatedHosts(ManualClock(), refused=("silu",))
    state, lines = simulate(tmp_path, hosts, budget={"time": "3h"})
    assert [job.note for job in state.jobs] == ["", ""] and state.jobs[1].rejected == state.jobs[1].cases
    times = [time for time, target in hosts.slices if target == "silu"]
    waits = [later - earlier for earlier, later in zip(times, times[1:], strict=False)]
    assert len(waits) >= 8 and all(wait >= 30 for wait in waits) and max(waits) > 1800
    assert state.jobs[0].slices > 3 * state.jobs[1].slices
    assert lines.count("silu: every case was refused, the last one: no memory; tried again in 60 s") == 1


def test_a_campaign_that_was_killed_before_its_first_write_goes_on_in_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class KilledError(BaseException):
        pass

    def kill(*_: object) -> None:
        raise KilledError

    monkeypatch.chdir(tmp_path)
    hosts, budget = SimulatedHosts(ManualClock()), {"time": 100}
    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(Store, "save", kill)
        simulate(tmp_path, hosts, budget=budget)
    state, lines = simulate(tmp_path, hosts, resume=True, budget=budget)
    assert state.folder.parent == tmp_path and state.campaign.id == 1
    assert not [line for line in lines if "to resume" in line]


def test_a_campaign_that_goes_on_just_as_its_first_process_ends_goes_on_where_that_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = SimulatedHosts(ManualClock())
    simulate(tmp_path, hosts, budget={"time": 100})
    others = [200]

    @contextmanager
    def lock_after_others(folder: Path, *, wait: bool) -> Iterator[None]:
        if others:
            simulate(tmp_path, hosts, resume=True, budget={"time": others.pop()})
        with lock_folder(folder, wait=wait):
            yield

    monkeypatch.setattr(runner, "lock_folder", lock_after_others)
    state, _ = simulate(tmp_path, hosts, resume=True, budget={"time": 300})
    assert state.cases == 100 * len(hosts.slices) and hosts.clock.monotonic() == 300


def test_what_a_slice_has_learnt_of_the_order_of_programs_is_known_to_the_next_ones_of_its_job(tmp_path: Path) -> None:
    known: dict[str, list[bool]] = {"gelu_bw": [], "silu": []}

    class Learning(SimulatedHosts):
        def send(self, number: int, request: Request) -> None:
            super().send(number, request)
            assert isinstance(request, Slice)
            known[request.target].append(request.grid_order_only)
            done = SliceDone(10, 100, 0, 0.5, request.seconds, (), grid_order_only=request.target == "silu")
            self.events[-2] = number, done

    simulate(tmp_path, Learning(ManualClock()), budget={"time": "10m"})
    assert not any(known["gelu_bw"]) and len(known["silu"]) > 1
    assert known["silu"] == [False] + [True] * (len(known["silu"]) - 1)


def test_a_new_finding_is_notified_of_once_it_is_triaged_or_its_slice_has_ended(
    tmp_path: Path, documents: Documents
) -> None:
    """By its last document, also where another entry has taken its place meanwhile."""

    def saved(name: str, severity: str | None, replaced: str = "") -> EntrySaved:
        return EntrySaved(f"{name}.yaml", False, 1, 0, replaced, "cpu", {"severity": severity})

    class Saving(SimulatedHosts):
        def send(self, number: int, request: Request) -> None:
            if not self.slices:
                events = [saved("a", None), saved("b", None), saved("c", "high", "a.yaml"), FindingTriaged("c")]
                # Another entry is merged into one that was notified of.
                events += [FindingTriaged("c"), saved("d", None), saved("c", "high", "d.yaml")]
                self.events += [(number, event) for event in events]
            super().send(number, request)

    simulate(tmp_path, Saving(ManualClock()), budget={"time": 100}, notify=["true"])
    found = [document["finding"] for document in documents if document["event"] == "finding"]
    assert [(one["id"], one["severity"]) for one in found] == [("c", "high"), ("b", None)]


def test_a_new_finding_that_is_merged_into_an_earlier_one_is_not_notified_of(
    tmp_path: Path, entry: Entry, documents: Documents
) -> None:
    known = corpus.save_entry(tmp_path / "corpus", replace(entry, status="accepted"))

    class Saving(SimulatedHosts):
        def send(self, number: int, request: Request) -> None:
            if not self.slices:
                finding = {"severity": None}
                merged = EntrySaved(str(known), True, 2, 0, "b.yaml", "cpu", finding)
                saved = EntrySaved("b.yaml", False, 1, 0, "", "cpu", finding)
                self.events += [(number, saved), (number, merged), (number, FindingTriaged(known.stem))]
            super().send(number, request)

    state, _ = simulate(tmp_path, Saving(ManualClock()), budget={"time": 100}, notify=["true"])
    assert [document["event"] for document in documents] == ["finished"]
    assert (list(state.new), list(state.known)) == ([], [known.stem])


def test_a_new_finding_that_takes_the_place_of_an_earlier_one_is_not_notified_of(
    tmp_path: Path, entry: Entry, documents: Documents
) -> None:
    known = corpus.save_entry(tmp_path / "corpus", replace(entry, status="accepted"))

    class Saving(SimulatedHosts):
        def send(self, number: int, request: Request) -> None:
            if not self.slices:
                saved = EntrySaved("b.yaml", False, 1, 0, "", "cpu", {"severity": None})
                joined = replace(saved, hits=2, replaced=str(known))
                self.events += [(number, event) for event in (saved, joined, FindingTriaged("b"))]
            super().send(number, request)

    state, _ = simulate(tmp_path, Saving(ManualClock()), budget={"time": 100}, notify=["true"])
    assert [document["event"] for document in documents] == ["finished"]
    assert (list(state.new), list(state.known)) == ([], ["b"])


def test_a_new_finding_of_one_worker_that_another_one_replaces_is_notified_of_once(
    tmp_path: Path, documents: Documents
) -> None:
    class Saving(SimulatedHosts):
        def send(self, number: int, request: Request) -> None:
            if not self.slices:
                saved = EntrySaved("a.yaml", False, 1, 0, "", "cpu", {"severity": None})
                smaller = replace(saved, path="b.yaml", known=True, replaced="a.yaml")
                self.events += [(0, saved), (1, smaller), (0, FindingTriaged("a")), (1, FindingTriaged("b"))]
            super().send(number, request)

    simulate(tmp_path, Saving(ManualClock()), budget={"time": 100}, workers=2, notify=["true"])
    assert [one.get("finding", {}).get("id") for one in documents] == ["b", None]


@pytest.mark.parametrize("ends", [[Refused("the target's reference failed"), Ready()], []])
def test_a_new_finding_is_notified_of_where_its_slice_is_refused_or_never_ends(
    ends: list[HostEvent], tmp_path: Path, documents: Documents
) -> None:
    class Saving(SimulatedHosts):
        def send(self, number: int, request: Request) -> None:
            if request.target == "silu":
                super().send(number, request)
                return
            saved = EntrySaved("a.yaml", False, 1, 0, "", "cpu", {"severity": None})
            self.events += [(number, event) for event in (saved, *ends)]

    simulate(tmp_path, Saving(ManualClock()), budget={"time": 100}, notify=["true"])
    assert [one.get("finding", {}).get("id") for one in documents] == ["a", None]


@pytest.mark.parametrize("ends", [[Failed("internal error: KeyError: 1"), Ready()], [HostDied("SIGSEGV")]])
def test_an_error_while_an_entry_is_replayed_costs_that_entry_only(
    ends: list[HostEvent], tmp_path: Path, entry: Entry
) -> None:
    case, paths = entry.case, []
    for number in range(3):
        marked = replace(entry, planted="", case=replace(case, calls=case.calls * (number + 1)))
        paths.append(str(corpus.save_entry(tmp_path / "corpus", marked)))
    replayed: list[str] = []

    class Replaying(SimulatedHosts):
        def send(self, number: int, request: Request) -> None:
            if not isinstance(request, Replay):
                super().send(number, request)
                return
            for path in request.paths:
                replayed.append(path)
                self.events.append((number, protocol.Replaying(path)))
                if path == sorted(paths)[1]:
                    self.events += [(number, event) for event in ends]
                    return
                self.events.append((number, Replayed(path, True, "open")))
            self.events.append((number, Ready()))

    _, lines = simulate(tmp_path, Replaying(ManualClock()), budget={"time": 100})
    assert replayed == sorted(paths)
    assert len([line for line in lines if line.startswith(f"{sorted(paths)[1]} cannot be replayed: ")]) == 1


def test_a_campaign_ends_after_the_commands_that_it_has_started(tmp_path: Path) -> None:
    hosts, out = SimulatedHosts(ManualClock()), tmp_path / "out"
    simulate(tmp_path, hosts, budget={"time": 100}, notify=["sh", "-c", f"sleep 0.3; cat > {out}"])
    assert json.loads(out.read_text())["event"] == "finished"


def test_a_finding_that_was_saved_before_a_kill_is_notified_of_when_the_campaign_goes_on(
    tmp_path: Path, documents: Documents, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(SimulatedHosts):
        def send(self, number: int, request: Request) -> None:
            self.events.append((number, EntrySaved("a.yaml", False, 1, 0, "", "cpu", {"severity": None})))

        def receive(self, seconds: float) -> Iterator[tuple[int, HostEvent]]:
            if not self.events:
                raise SystemExit
            return super().receive(seconds)

    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(Coordinator, "_close", lambda *_: None)
        simulate(tmp_path, Killed(ManualClock()), budget={"time": 100}, notify=["true"])
    assert documents == []
    for again in (1, 2):
        simulate(tmp_path, SimulatedHosts(ManualClock()), resume=True, budget={"time": 100 * again}, notify=["true"])
        assert [one["finding"]["id"] for one in documents if one["event"] == "finding"] == ["a"]


def test_a_job_whose_cases_run_again_pauses_no_more(tmp_path: Path) -> None:
    hosts = SimulatedHosts(ManualClock(), refused=("silu", "gelu_bw"))
    simulated = hosts.send

    def send(number: int, request: Request) -> None:
        if hosts.clock.monotonic() > 600:
            hosts.refused = ()
        simulated(number, request)

    hosts.send = send  # type: ignore[method-assign]
    state, lines = simulate(tmp_path, hosts, budget={"time": "2h"})
    late = [target for time, target in hosts.slices if time > 1800]
    assert len(late) >= 80 and set(late) == {"silu", "gelu_bw"}
    assert sum("every case was refused" in line for line in lines) < 15


def hosts_that_leave(
    cases: Sequence[Case], clears: Callable[[Sequence[Slice]], bool]
) -> tuple[SimulatedHosts, list[Slice]]:
    """Hosts whose slices leave cases in question until `clears` says of the requests so far that they clear them, and
    the requests."""
    hosts, requests = SimulatedHosts(ManualClock()), list[Slice]()
    simulated = hosts.send

    def send(number: int, request: Request) -> None:
        assert isinstance(request, Slice)
        requests.append(request)
        if clears(requests):
            hosts.events += [(number, SuspectCleared(path)) for path in request.suspects]
        else:
            journal = Journal(Path(request.journal))
            for index, case in enumerate(cases):
                journal.start_group(ReplicaGroup(case, ((),), index))
            journal.release()
        simulated(number, request)

    hosts.send = send  # type: ignore[method-assign]
    return hosts, requests


def test_what_a_slice_leaves_in_question_runs_first_in_the_next_one_and_has_a_whole_slice(
    case: Case, tmp_path: Path
) -> None:
    hosts, requests = hosts_that_leave([case], lambda requests: bool(requests[-1].suspects))
    simulate(tmp_path, hosts, budget={"time": "60s"}, slice="60s")
    assert [len(request.suspects) for request in requests[:2]] == [0, 1]
    assert (len(requests), requests[1].seconds, requests[1].cases) == (2, 120.0, 1)


def test_what_slices_that_end_in_order_leave_in_question_runs_together_without_further_cases(
    two_cases: tuple[Case, Case], tmp_path: Path
) -> None:
    """Nothing died beside them: a job that is far from done with them would keep all others from running otherwise."""
    hosts, requests = hosts_that_leave(two_cases, lambda requests: len(requests) >= 5)
    simulate(tmp_path, hosts, budget={"cases": 1000}, slice="60s")
    assert [len(request.suspects) for request in requests[:6]] == [0, 2, 2, 2, 2, 0]
    assert [request.cases for request in requests[1:5]] == [2] * 4
    assert len({request.target for request in requests[:5]}) == 1 < len({request.target for request in requests})


def test_a_job_that_ran_no_case_says_so_when_the_campaign_has_finished(tmp_path: Path) -> None:
    state, lines = simulate(tmp_path, SimulatedHosts(ManualClock()), budget={"time": "60s"}, slice="60s")
    assert [(bool(job.cases), job.note) for job in state.jobs] == [
        (True, ""),
        (False, "no case ran before the budget ended"),
    ]
    assert "silu: no case ran before the budget ended" in lines
    assert [row["note"] for row in job_rows(state)] == [job.note for job in state.jobs]


def test_a_campaign_that_runs_on_another_machine_is_refused(tmp_path: Path, server: Postgres) -> None:
    """Two machines that share a PostgreSQL store see nothing of each other's folders."""
    url = server.database()
    with Store(url) as elsewhere, elsewhere.lock_campaign(1):
        with pytest.raises(UsageError, match="^campaign 'campaign' is running already, with the same store$"):
            simulate(tmp_path, SimulatedHosts(ManualClock()), store=url)
