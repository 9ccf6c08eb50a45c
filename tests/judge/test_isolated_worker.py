"""The two processes of a judgement, and what a new one is told where one has ended."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fuzz.judge.problem.description import ProblemDescription, Setting
from fuzz.judge.processes.isolated_worker import LOAD_SECONDS, IsolatedWorker, ProblemProcess
from fuzz.judge.processes.requests import Describe, Load, MakeValues, ProblemConfig, Refusal
from fuzz.model.outcome import NotRun, Returned
from fuzz.triage.triage import Triage
from fuzz.worker import patience
from fuzz.worker.deadline import Deadline
from fuzz.worker.protocol import report_outcome
from tests.judge.problems import LINEAR, RELU, write

KILLED_AT = 13


def test_a_new_process_knows_the_description(tmp_path: Path) -> None:
    ending = (
        f"if N == {KILLED_AT}:\n        import os\n        os.kill(os.getpid(), {int(signal.SIGABRT)})\n    return []"
    )
    source = RELU.replace("return []", ending)
    problem = start(tmp_path, source)
    try:
        assert isinstance(problem.call(Describe()), ProblemDescription)
        assert isinstance(problem.call(MakeValues({"N": KILLED_AT}, 0)), Refusal)
        assert isinstance(problem.setting({"N": 4}), Setting)
    finally:
        problem.worker.stop()


def test_dims_at_which_the_problem_takes_much_more_are_refused(tmp_path: Path) -> None:
    problem = start(tmp_path, LINEAR.replace("batch = 4096", "batch = 8"))
    try:
        problem.call(Describe())
        assert isinstance(problem.setting({"batch": 64, "features": 64, "outputs": 64}), Setting)
        refusal = problem.setting({"batch": 4096, "features": 4096, "outputs": 64})
        assert isinstance(refusal, Refusal) and "too much time" in refusal.text
    finally:
        problem.worker.stop()


def test_dims_at_which_pytorch_refuses_what_the_problem_asks_for_are_refused(tmp_path: Path) -> None:
    problem = start(
        tmp_path,
        RELU.replace("[torch.randn(N)]", "[torch.randn(N), torch.empty(80 - N, device='cuda')]").replace(
            "(self, x)", "(self, x, y)"
        ),
    )
    try:
        problem.call(Describe())
        assert isinstance(problem.setting({"N": 4}), Setting)
        refusal = problem.setting({"N": 90})
        assert isinstance(refusal, Refusal) and "negative dimension" in refusal.text
    finally:
        problem.worker.stop()


@dataclass
class RecordingWorker:
    """Answers nothing, and keeps the seconds that it has for each request."""

    timeout: float
    given: list[tuple[object, float]] = field(default_factory=list)
    deadline: Deadline = field(default_factory=Deadline)

    def call(self, request: object) -> None:
        self.given.append((request, self.timeout))


def test_a_solution_has_longer_to_compile_than_for_a_call() -> None:
    solution: Any = RecordingWorker(20.0)
    worker = IsolatedWorker(None, solution, None)  # type: ignore[arg-type]
    worker.load()
    assert solution.given == [(Load(), LOAD_SECONDS)] and worker.timeout == 20.0 < LOAD_SECONDS


def test_triage_knows_how_long_it_may_wait_for_what_could_not_be_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    solution: Any = RecordingWorker(20.0)
    reports = [report_outcome(NotRun("no room for the reference")), report_outcome(Returned(()))]
    monkeypatch.setattr(IsolatedWorker, "call", lambda self, request: reports.pop(0))
    worker: Any = IsolatedWorker(None, solution, None)  # type: ignore[arg-type]
    case: Any = None
    monkeypatch.setattr(patience, "PAUSES", (0.0,))
    triage = Triage(None, worker, ())  # type: ignore[arg-type]
    assert triage.examine(case, "accuracy").outcome == "returned" and not reports


def start(folder: Path, source: str) -> ProblemProcess:
    config = ProblemConfig("kernelbench", write(folder, "problem", source), "cpu", 1 << 19, 60.0)
    return ProblemProcess.start(config, 4 << 30, Deadline())
