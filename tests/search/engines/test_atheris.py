"""The engine atheris proposes what libFuzzer tries, whatever becomes of its process; without it one line says so."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import pytest

from fuzz.backends import cpu
from fuzz.backends.cpu.runtime.counters import CLASSES, Counted, features
from fuzz.errors import UsageError
from fuzz.model.case import Case
from fuzz.model.outcome import Died
from fuzz.search import engines
from fuzz.search.engines import check_engine, make_scheduler
from fuzz.search.engines.atheris import engine as atheris_engine
from fuzz.search.engines.atheris.engine import JOINS, LEAD, AtherisConfig, AtherisEngine
from fuzz.search.engines.atheris.libfuzzer import INITIAL_INPUTS
from fuzz.search.engines.base import Proposal
from fuzz.target.spec import Target
from fuzz.worker.protocol import Report, WorkerConfig
from fuzz.worker.worker import Worker, WorkerCrash


class Scripted:
    """A process that answers what it was given."""

    def __init__(self, answers: list[Any]) -> None:
        self.answers, self.pending, self.stopped = deque(answers), 0, False

    def submit(self, request: Any) -> None:
        self.pending += 1

    def receive(self, seconds: float) -> tuple[Any, Any] | None:
        self.pending -= 1
        return "next", self.answers.popleft()

    def stop(self) -> None:
        self.stopped = True


def test_a_plan_that_ends_the_process_costs_nothing_else(gelu: Target, case: Case) -> None:
    process = Scripted([case, WorkerCrash(Died("SIGSEGV")), case])
    engine = AtherisEngine(gelu, 0, lambda folder: process)
    plans = [engine.propose().plan for _ in range(3)]
    assert plans[0] == plans[2] == case and plans[1].target == "gelu_bw" != plans[0]
    assert process.pending == 2
    engine.close()
    assert process.stopped


def test_it_closes_where_a_launcher_put_a_file_in_the_place_of_its_folder(gelu: Target, case: Case) -> None:
    folders = list[Path]()

    def start(folder: Path) -> Any:
        folders.append(folder)
        return Scripted([case])

    engine = AtherisEngine(gelu, 0, start)
    engine.propose()
    folders[0].rmdir()
    folders[0].write_text("no folder")
    engine.close()
    folders[0].unlink()


def test_its_process_starts_when_its_first_plan_is_near(gelu: Target, case: Case) -> None:
    """Where two processors run a minute, a process that nothing asks yet takes the time of the first findings."""
    process, started = Scripted([case]), list[Path]()

    def start(folder: Path) -> Any:
        started.append(folder)
        return process

    engine, report = AtherisEngine(gelu, 0, start), Report("returned", False, (), ())
    for _ in range(JOINS - LEAD - 1):
        engine.learn(Proposal(case), [report])
    assert not started
    engine.learn(Proposal(case), [report])
    assert len(started) == 1 and process.pending == 2
    engine.close()


@pytest.mark.parametrize(("first", "later"), [(0, JOINS), (1000, JOINS - 1000), (JOINS - LEAD, LEAD), (10_000, LEAD)])
def test_where_a_search_goes_on_the_plans_before_it_count(
    gelu: Target, monkeypatch: pytest.MonkeyPatch, first: int, later: int
) -> None:
    """A campaign divides a search into jobs, each of which may have fewer plans than it joins after."""
    monkeypatch.setattr(engines, "missing", lambda: "")
    with make_scheduler("auto", gelu, "cpu", 0, (), lambda folder: Scripted([]), first) as scheduler:
        assert scheduler.engines[-1].name == "atheris" and scheduler.engines[-1].joins == later


def test_where_it_is_not_installed_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atheris_engine, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"^engine atheris needs the package atheris: pip install .*\[atheris\]'$"):
        check_engine("atheris")
    check_engine("auto")


def test_features_are_the_same_for_every_specialisation_of_a_kernel() -> None:
    def site(kernel: str, outcome: str) -> Counted:
        return Counted(kernel, "file.py", 3, "branch", outcome)

    sites = [site("k", "taken"), site("k", "not taken"), site("k", "taken")]
    known: list[int] = []
    once = features(bytes([1, 0, 0]), sites, known)
    assert features(bytes([0, 0, 1]), sites, known) == once and len(known) == 3
    assert features(bytes([0, 1, 0]), sites, known).isdisjoint(once)
    counts = (1, 2, 3, 4, 7, 8, 16, 32, 127, 128, 255)
    classes = [min(features(bytes([count]), sites, known)) - min(once) for count in counts]
    assert classes == [0, 1, 2, 3, 3, 4, 5, 6, 6, 7, 7] and max(classes) < CLASSES


def test_each_forked_process_counts_on_its_own() -> None:
    """Workers are forked from a process that has the counters already: their memory is not shared."""
    address, found = cpu.counters.memory.ctypes.data, []
    for line in Path("/proc/self/maps").read_text(encoding="ascii").splitlines():
        ends, permissions = line.split()[:2]
        low, high = (int(end, 16) for end in ends.split("-"))
        found += [permissions] if low <= address < high else []
    assert found == ["rw-p"]


def test_libfuzzer_runs_plans_that_cover_more_and_more(tmp_path: Path) -> None:
    pytest.importorskip("atheris")
    exploration = AtherisConfig(WorkerConfig("gelu_bw", None, "cpu", True), 0, tmp_path, (12.5,))
    with Worker("fuzz.search.engines.atheris.libfuzzer:make_handler", exploration, 8 << 30, 60.0) as worker:
        plans = [worker.call("next") for _ in range(30)]
    assert all(isinstance(plan, Case) for plan in plans) and len({plan.key for plan in plans}) > 15
    assert len(list(tmp_path.iterdir())) >= INITIAL_INPUTS
