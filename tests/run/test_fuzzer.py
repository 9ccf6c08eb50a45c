"""A run ends by its deadline, says what that cut off, and loads its target once for all workers."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import Semaphore
from types import SimpleNamespace
from typing import Any

import pytest

from fuzz import corpus
from fuzz.backends import BACKENDS
from fuzz.errors import UsageError
from fuzz.run.findings.deduplicate import Attribution
from fuzz.run.findings.triage_priority import TriagePriority
from fuzz.run.findings.triage_queue import InOrder, TriageQueue
from fuzz.run.fuzzer import Fuzzer
from fuzz.run.options import RunOptions
from fuzz.run.result import Result
from fuzz.run.watcher import Watcher
from fuzz.search.statistics import RunStatistics
from fuzz.target.loader import load
from fuzz.worker.deadline import Deadline, OutOfTime
from fuzz.worker.pool import WorkerTeam
from fuzz.worker.protocol import Precompile, ReplicaGroup, WorkerConfig
from fuzz.worker.worker import Worker

HANGS = """
import os
import time
import torch
from fuzz import size, target, tensor

N = size("N", 1, 64)

@target(x=tensor(N), dtypes=("float32",), timeout=1000.0, reference=lambda x: dict(y=x * 2))
def hangs(x):
    while {condition}:
        time.sleep(0.1)
    return dict(y=x * 2 + (x > 1))
"""


def fuzz(folder: Path, condition: str, watcher: Watcher, **options: object) -> Result:
    path = folder / "hangs.py"
    path.write_text(HANGS.format(condition=condition))
    deadline = Deadline()
    watcher.deadline = deadline  # type: ignore[attr-defined]
    asked = RunOptions(str(path), engine="random", seconds=1000.0, **options)  # type: ignore[arg-type]
    fuzzer = Fuzzer(asked, load(str(path)), "cpu", folder / "found", watcher, {}, deadline=deadline, in_turn=False)
    return fuzzer.run()


class EndAtHang(Watcher):
    """Ends the time of a run a moment after cases have run, or at once where a bug is to be shrunk."""

    deadline: Deadline

    def on_progress(self, statistics: RunStatistics, seconds: float, findings: int) -> None:
        self.deadline.end = min(self.deadline.end, time.monotonic() + 3.0)


def test_a_call_that_still_runs_at_the_end_is_killed_and_no_hang(tmp_path: Path) -> None:
    start = time.monotonic()
    result = fuzz(tmp_path, "x.numel() > 4", EndAtHang(), workers=1)
    assert time.monotonic() - start < 300 and result.calls_cut_off == 1
    assert all(bug.finding.symptom != "hung" for bug in result.bugs)
    assert not any("hung" in path.name for path in corpus.entry_files([tmp_path]))


class Interrupt(Watcher):
    """Does what a Ctrl-C does to a run after its first cases, and notes whether the run says so."""

    told = False

    def on_progress(self, *_: object) -> None:
        raise KeyboardInterrupt

    def on_interrupt(self) -> None:
        self.told = True


def test_a_run_that_is_interrupted_tells_its_watcher(tmp_path: Path) -> None:
    watcher = Interrupt()
    assert fuzz(tmp_path, "False", watcher).interrupted and watcher.told


class EndWhenSaved(Watcher):
    """Ends the time of a run with the first disagreement, and notes what was cut off."""

    deadline: Deadline

    def on_disagreement(self, *_: object) -> None:
        self.deadline.end_now()


def test_a_disagreement_at_the_end_is_said_to_be_cut_off(tmp_path: Path) -> None:
    result = fuzz(tmp_path, "False", EndWhenSaved())
    assert {"starting", "waiting", "generation", "launch", "oracles", "shrinking"} < set(result.profile)
    assert result.profile["launch"] > 0 and result.profile["generation"] > 0
    assert result.disagreements_cut_off and result.bugs == [] and not result.interrupted


def test_cases_and_findings_are_the_same_beside_the_run_and_in_turn(tmp_path: Path) -> None:
    path = tmp_path / "hangs.py"
    path.write_text(HANGS.format(condition="False"))
    results = []
    for in_turn in (True, False):
        options = RunOptions(str(path), engine="random", cases=20)
        folder = tmp_path / str(in_turn)
        how = {"in_turn": in_turn, "with_cross_checks": False}
        result = Fuzzer(options, load(str(path)), "cpu", folder, Watcher(), {}, **how).run()
        bugs = [(bug.case.key, bug.finding, bug.origin.index, bug.hits, bug.cut_off) for bug in result.bugs]
        results.append((result.statistics.cases, result.statistics.distribution(), bugs))
    assert results[0] == results[1] and results[0][2]


COMPILES_SOME = """
import torch
import triton
import triton.language as tl
from fuzz import size, target, tensor

N = size("N", 1, 64)

@triton.jit
def kernel(y, x, n, MOST: tl.constexpr):
    tl.static_assert(MOST > 0, "too large")
    at = tl.arange(0, 64)
    tl.store(y + at, tl.load(x + at, at < n) * 2, at < n)

@target(x=tensor(N), dtypes=("float32",), reference=lambda x: dict(y=x * 2))
def doubles(x):
    y = torch.empty_like(x)
    kernel[(1,)](y, x, len(x), MOST={most})
    return dict(y=y)
"""


def compiles_up_to_32(config: WorkerConfig) -> Callable[[Precompile], str]:
    """Answers as a process does that only compiles for a GPU."""
    return lambda request: "too large" * any(call.dims["N"] > 32 for call in request.plan.calls)


class NoteSizes(Watcher):
    """Notes how many plans of which sizes ran before how many were left out, and ends the run's time after some."""

    deadline: Deadline

    def __init__(self) -> None:
        self.plans, self.large = 0, list[bool]()
        self.left_out: list[int] = []

    def on_group_start(self, group: ReplicaGroup) -> None:
        self.large.append(max(call.dims["N"] for call in group.plan.calls) > 32)

    def on_progress(self, statistics: RunStatistics, seconds: float, findings: int) -> None:
        self.left_out.append(statistics.left_out)
        if len(self.left_out) == 100:
            self.deadline.end_now()


@pytest.mark.parametrize("is_true", [True, False])
def test_where_time_ends_a_run_on_a_gpu_few_plans_run_that_do_not_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_true: bool
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(type(BACKENDS["cpu"]), "compiles_without_device", True)
    monkeypatch.setattr("fuzz.worker.precompile.COMPILE", f"{__name__}:compiles_up_to_32")
    monkeypatch.setattr("fuzz.worker.precompile.WAIT_SECONDS", math.inf)
    path, watcher = tmp_path / "doubles.py", NoteSizes()
    path.write_text(COMPILES_SOME.format(most="32 if len(x) <= 32 else 0" if is_true else "64"))
    watcher.deadline = deadline = Deadline()
    asked = RunOptions(str(path), engine="random", seconds=1000.0, workers=1)
    target, how = load(str(path)), {"deadline": deadline, "in_turn": False}
    Fuzzer(asked, target, "cpu", tmp_path / "found", watcher, {}, **how).run()  # type: ignore[arg-type]
    large = [index for index, is_large in enumerate(watcher.large[:100]) if is_large]
    if is_true:
        assert len(large) <= watcher.left_out[-1] // 4 and large
    else:
        # The first one of those that were refused did compile.
        assert len(set(watcher.left_out[large[0] :])) == 1 and len(large) > 3


class WaitForMoreCases(Watcher):
    """Has triage wait until two more plans have run."""

    def __init__(self) -> None:
        self.more, self.waits = Semaphore(0), [False]

    def on_progress(self, statistics: RunStatistics, seconds: float, findings: int) -> None:
        self.more.release()

    def on_disagreement(self, *_: object) -> None:
        while self.more.acquire(blocking=False):
            continue
        self.waits = [self.more.acquire(timeout=60.0) for _ in range(2)]


def test_cases_run_while_a_finding_is_shrunk_on_one_processor_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    path, watcher = tmp_path / "hangs.py", WaitForMoreCases()
    path.write_text(HANGS.format(condition="False"))
    options = RunOptions(str(path), engine="random", cases=20)
    Fuzzer(options, load(str(path)), "cpu", tmp_path / "found", watcher, {}, with_cross_checks=False).run()
    assert all(watcher.waits)


def test_triage_takes_the_cases_in_their_order_unless_time_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "hangs.py"
    path.write_text(HANGS.format(condition="False"))
    orders: list[Any] = []

    def make_queue(handle: Any, on_group_done: Any, in_turn: bool, order: Any) -> TriageQueue:
        orders.append(order)
        return TriageQueue(handle, on_group_done, in_turn, order)

    monkeypatch.setattr("fuzz.run.fuzzer.TriageQueue", make_queue)
    for seconds in (None, 600.0):
        options = RunOptions(str(path), engine="random", cases=1, seconds=seconds)
        Fuzzer(options, load(str(path)), "cpu", tmp_path / "found", Watcher(), {}, with_cross_checks=False).run()
    assert list(map(type, orders)) == [InOrder, TriagePriority]
    assert orders[1].rules_out.__func__ is Attribution.rules_out
    # The deadline has passed: to compare all that may wait takes seconds, and they are but counted.
    assert orders[1].choose(("first", "second"), False) == "first"


FULL_DISK = """
import errno
import torch
from fuzz import size, target, tensor

N = size("N", 1, 64)

@target(x=tensor(N), dtypes=("float32",), reference=lambda x: dict(y=x * 2))
def full_disk(x):
    if {condition}:
        raise OSError(errno.ENOSPC, "No space left on device")
    return dict(y=x * 2)
"""


class Lacks(Watcher):
    """Notes what a run says that the machine lacks."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def on_lack(self, lack: str) -> None:
        self.told.append(lack)


def full_disk(tmp_path: Path, condition: str, watcher: Watcher) -> Fuzzer:
    path = tmp_path / "full_disk.py"
    path.write_text(FULL_DISK.format(condition=condition))
    options = RunOptions(str(path), engine="random", cases=20, derived_rejects=False)
    return Fuzzer(options, load(str(path)), "cpu", tmp_path / "found", watcher, {})


def test_a_run_for_which_the_machine_has_no_room_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz.worker.retry_backoff.PAUSES", (0.0,))
    with pytest.raises(UsageError, match="not one of 20 cases could run, .*No space left on device"):
        full_disk(tmp_path, "True", Watcher()).run()


def test_a_run_says_once_and_at_its_end_why_cases_could_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fuzz.worker.retry_backoff.PAUSES", (0.0,))
    watcher = Lacks()
    result = full_disk(tmp_path, "x.numel() % 2", watcher).run()
    assert 0 < result.statistics.not_run < result.statistics.cases == 20
    assert watcher.told == [result.lack] == ["this machine has no room: OSError: [Errno 28] No space left on device"]


def test_a_run_whose_time_ends_while_its_first_case_waits_says_for_what(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sleep(_: float) -> None:
        raise OutOfTime

    monkeypatch.setattr("fuzz.worker.retry_backoff.time", SimpleNamespace(sleep=sleep))
    with pytest.raises(UsageError, match="the time ended before a case could run: .*No space left on device"):
        full_disk(tmp_path, "True", Watcher()).run()


COUNTED = """
import os
from pathlib import Path
from fuzz import size, target, tensor

with Path({log!r}).open("a") as log:
    print(os.getpid(), file=log)
N = size("N", 1, 64)

@target(x=tensor(N), dtypes=("float32",), reference=lambda x: dict(y=x * 2))
def counted(x):
    return dict(y=x * 2 + (x > 1))
"""


def test_workers_do_not_load_the_target_again_however_often_a_clean_one_is_needed(tmp_path: Path) -> None:
    path, log = tmp_path / "counted.py", tmp_path / "log"
    path.write_text(COUNTED.format(log=str(log)))
    options = RunOptions(str(path), engine="random", cases=40, max_findings=1, workers=2)
    fuzzer = Fuzzer(options, load(str(path)), "cpu", tmp_path / "found", Watcher(), {}, with_cross_checks=False)
    assert fuzzer.run().bugs
    this, *servers = map(int, log.read_text().split())
    assert this == os.getpid() and len(servers) == 1


def test_what_ran_before_a_case_is_what_its_worker_ran(tmp_path: Path) -> None:
    options = RunOptions("gelu_bw", engine="random", cases=40, workers=2)
    fuzzer = Fuzzer(options, load("gelu_bw"), "cpu", tmp_path, Watcher(), {}, with_cross_checks=False)
    fuzzer.run()
    one, other = ({case.key for case in history.cases} for history in fuzzer.histories.values())
    assert one and other and not one & other


@pytest.fixture
def set_machine(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """Sets how many processors and GiB of memory a machine seems to have."""

    def set_numbers(processors: int, gibibytes: int) -> None:
        monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(processors)))
        monkeypatch.setattr("fuzz.run.fuzzer.total_memory", lambda: gibibytes << 30)

    return set_numbers


@pytest.mark.parametrize(
    ("asked", "cases", "processors", "gibibytes", "workers", "on_gpu"),
    [
        (None, None, 128, 64, 4, 4), (None, None, 8, 64, 2, 2), (None, None, 7, 64, 2, 1), (None, None, 1, 64, 1, 1),
        (None, None, 1, 1, 1, 1), (None, None, 2, 24, 2, 1), (None, None, 2, 12, 1, 1), (None, None, 16, 24, 3, 3),
        (None, None, 16, 6, 1, 1), (None, 100, 16, 64, 1, 1), (3, None, 2, 6, 3, 3),
    ],
)  # fmt: skip
def test_a_run_has_a_worker_for_four_processors_and_two_for_two_unless_the_number_of_cases_ends_it(
    set_machine: Callable[[int, int], None],
    asked: int | None,
    cases: int | None,
    processors: int,
    gibibytes: int,
    workers: int,
    on_gpu: int,
) -> None:
    set_machine(processors, gibibytes)
    options = RunOptions("gelu_bw", cases=cases, workers=asked)
    for backend, count in (("cpu", workers), ("cuda", on_gpu)):
        fuzzer = Fuzzer(options, load("gelu_bw"), backend, Path("found"), Watcher(), {})
        assert fuzzer.options.workers == count


@pytest.mark.parametrize(
    ("asked", "processors", "gibibytes", "helpers"),
    [
        ({}, 128, 128, 8), ({}, 16, 128, 5), ({}, 8, 64, 2), ({}, 7, 64, 2), ({}, 6, 64, 0), ({}, 5, 64, 0),
        ({}, 2, 64, 0), ({}, 16, 40, 0), ({}, 16, 48, 2), ({"cases": 100}, 16, 128, 0), ({"workers": 1}, 16, 128, 0),
        ({"memory": 16 << 30}, 16, 128, 4), ({"memory": 1 << 30}, 16, 48, 2), ({"memory": 64 << 30}, 16, 128, 0),
    ],
)  # fmt: skip
def test_triage_has_helpers_where_time_ends_a_run_and_processors_and_memory_are_left(
    set_machine: Callable[[int, int], None], asked: dict[str, int], processors: int, gibibytes: int, helpers: int
) -> None:
    """Not one alone, and none where each would load the target anew."""
    set_machine(processors, gibibytes)
    options = RunOptions("gelu_bw", **asked)
    for backend, count in (("cpu", helpers), ("cuda", 0)):
        assert Fuzzer(options, load("gelu_bw"), backend, Path("found"), Watcher(), {}).helpers == count


@pytest.mark.parametrize(("limit", "workers"), [(0, 4), (8, 4), (30, 2), (64, 1), (200, 1)])
def test_workers_that_may_have_more_memory_are_fewer(
    set_machine: Callable[[int, int], None], limit: int, workers: int
) -> None:
    set_machine(64, 64)
    options = RunOptions("gelu_bw", memory=limit << 30)
    assert Fuzzer(options, load("gelu_bw"), "cpu", Path("found"), Watcher(), {}).options.workers == workers


def test_each_of_two_workers_may_hold_half_of_the_memory_as_one_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a replay, which has one, shows what a run ran out of."""
    monkeypatch.setattr("fuzz.run.options.total_memory", lambda: 32 << 30)
    limits = [RunOptions("gelu_bw", workers=workers).worker_memory >> 30 for workers in (None, 1, 2, 3, 5)]
    assert limits == [16, 16, 16, 8, 4]


def test_a_run_with_helpers_stops_them_at_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are forked as the other workers are, so that they do not load the target again."""
    path, log = tmp_path / "counted.py", tmp_path / "log"
    path.write_text(COUNTED.format(log=str(log)))
    monkeypatch.setattr("fuzz.run.fuzzer.usual_helpers", lambda workers, backend, memory_limit: 2)
    options = RunOptions(str(path), engine="random", seconds=60.0, max_findings=1)
    target, made = load(str(path)), list[Worker]()
    fuzzer = Fuzzer(options, target, "cpu", tmp_path / "found", Watcher(), {}, with_cross_checks=False)

    def stop(team: WorkerTeam) -> None:
        made.extend(team.workers)
        assert any(worker.process is not None for worker in team.workers), "they were asked"
        stop_all(team)

    stop_all = WorkerTeam.stop
    monkeypatch.setattr(WorkerTeam, "stop", stop)
    assert fuzzer.run().bugs
    assert len(made) == 2 and all(worker.process is None for worker in made)
    assert len(log.read_text().split()) == 2
