"""What the end of a slice leaves in question is left to the next one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bugs import make_bug, wrong_value

from fuzz.campaign.hosts import host_process
from fuzz.campaign.hosts.host_process import SliceWatcher
from fuzz.campaign.journal import Journal, read_saved, read_suspects
from fuzz.campaign.protocol import Failed, Message, Refused, Slice, SliceDone
from fuzz.errors import WorkerStartError, one_line
from fuzz.model.case import Case
from fuzz.run.fuzzer import Fuzzer
from fuzz.run.result import Result
from fuzz.search.statistics import RunStatistics
from fuzz.worker.protocol import ReplicaGroup


def watcher(folder: Path, suspects: dict[tuple[Any, ...], str] | None = None) -> SliceWatcher:
    channel: Any = None
    return SliceWatcher(channel, Journal(folder / "job.journal"), suspects or {}, seeds=0, saved=folder / "saved")


def test_disagreements_that_were_not_confirmed_are_left_to_the_next_slice(case: Case, tmp_path: Path) -> None:
    watching = watcher(tmp_path)
    for index in range(host_process.MOST_UNSETTLED + 5):
        watching.on_cut_off(case, wrong_value("dx"), index)
    assert [group.first for group in watching.unsettled] == list(range(host_process.MOST_UNSETTLED))
    assert all(len(group.sampled) == 1 for group in watching.unsettled)


def test_a_suspect_that_still_runs_stays_one_and_a_plan_is_proposed_again(case: Case, tmp_path: Path) -> None:
    running = ReplicaGroup(case, ((),) * 4, 9)
    watching = watcher(tmp_path, {case.key: "suspect"})
    watching.on_end([running])
    assert (watching.unsettled, watching.plans) == ([running], 0)
    watching = watcher(tmp_path)
    watching.plans = 3
    watching.on_end([running])
    assert (watching.unsettled, watching.plans) == ([], 3)


def test_a_plan_that_takes_a_whole_slice_is_left_to_a_longer_one_and_not_proposed_again(
    case: Case, tmp_path: Path
) -> None:
    watching = watcher(tmp_path)
    running = ReplicaGroup(case, ((),) * 4, 7)
    watching.on_end([running])
    assert (watching.unsettled, watching.plans) == ([running], 1)


def test_the_next_slice_does_not_begin_with_plans_that_were_left_out(tmp_path: Path) -> None:
    watching = watcher(tmp_path)
    watching.plans = 4
    assert watching.progress_fields(RunStatistics(left_out=5), 1.0)["plans"] == 9


def test_names_of_new_findings_and_of_what_takes_the_place_of_entries_are_noted(case: Case, tmp_path: Path) -> None:
    watching = watcher(tmp_path)
    for name, known, replaced in (("a", False, ""), ("b", True, ""), ("c", True, "corpus/t/a.yaml")):
        watching.on_saving(make_bug(case, "dx", known=known), f"{name}.yaml", replaced)
    assert read_saved(tmp_path / "saved") == [("a", ""), ("c", "a")]


def test_a_journal_that_was_closed_takes_what_is_left(case: Case, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "job.journal")
    journal.start_group(ReplicaGroup(case, ((),) * 3, 0))
    journal.close()
    journal.start_group(ReplicaGroup(case.replica(1), ((),), 1))
    journal.release()
    assert [suspect.key for suspect in read_suspects(journal.path)] == [case.replica(1).key]


class Events(list[Message]):
    """A channel that keeps what is sent."""

    def send(self, event: Message) -> None:
        self.append(event)

    def copy_journal_line(self, line: str) -> None: ...
    def lock(self, folder: Path) -> None: ...


def test_a_file_that_ends_its_process_costs_its_slice_and_not_the_host(tmp_path: Path) -> None:
    path, folder = tmp_path / "mine.py", str(tmp_path)
    path.write_text("import os\nos._exit(3)\n")
    request = Slice(f"{path}:mine", "cpu", "", "auto", 0, 0, 0, 1.0, None, folder, f"{folder}/job.journal", 1 << 33)
    channel: Any = Events()
    host_process.handle(request, channel)
    (event,) = channel
    assert isinstance(event, Refused) and event.why.startswith("the target's file ended a worker before its first case")


@pytest.mark.parametrize("known", [False, True])
def test_a_slice_takes_up_and_hands_on_that_only_the_grids_order_is_tried(
    known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = []

    def run(fuzzer: Fuzzer) -> Result:
        began.append(fuzzer.orders.grid_only)
        return Result(fuzzer.options, "cpu", fuzzer.statistics, [], 1.0, grid_order_only=True)

    monkeypatch.setattr(host_process, "try_loading", lambda path: None)
    monkeypatch.setattr(Fuzzer, "run", run)
    channel: Any = Events()
    request = Slice(
        "gelu_bw", "cpu", "", "auto", 0, 0, 0, 1.0, None, str(tmp_path), str(tmp_path / "job.journal"), 1 << 33,
        grid_order_only=known,
    )  # fmt: skip
    host_process.handle(request, channel)
    assert began == [known] and isinstance(channel[-1], SliceDone) and channel[-1].grid_order_only


@pytest.mark.parametrize("error", [WorkerStartError("no worker was ready within 120 s"), RuntimeError("a mistake")])
def test_a_machine_that_cannot_start_a_worker_now_is_tried_again(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_slice(*_: object) -> None:
        raise error

    monkeypatch.setattr(host_process, "run_slice", run_slice)
    folder, channel = str(tmp_path), Events()
    request = Slice("gelu_bw", "cpu", "", "auto", 0, 0, 0, 1.0, None, folder, f"{folder}/job.journal", 1 << 33)
    host_process.handle(request, channel)  # type: ignore[arg-type]
    (event,) = channel
    said = "" if isinstance(error, WorkerStartError) else "internal error: "
    assert isinstance(event, Failed) and event.why == said + one_line(error)
