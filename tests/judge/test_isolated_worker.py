"""The two processes of a judgement, and what a new one is told where one has ended."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fuzz.judge.problem.description import ProblemDescription, Setting
from fuzz.judge.processes.isolated_worker import (
    IN_TF32,
    LOAD_SECONDS,
    IsolatedWorker,
    ProblemProcess,
    start_solution,
)
from fuzz.judge.processes.requests import (
    Compare,
    Describe,
    Load,
    MakeValues,
    OutputComparison,
    ProblemConfig,
    Refusal,
    Restore,
    RunProblem,
    SolutionConfig,
    SolutionReport,
    TensorWords,
)
from fuzz.model.case import Argument, Call, Case
from fuzz.model.outcome import Hung, NotRun, Outcome, Raised, Rejected, Returned
from fuzz.model.recipes import recipe
from fuzz.triage.triage import Triage
from fuzz.worker import retry_backoff
from fuzz.worker.deadline import Deadline
from fuzz.worker.protocol import Report, report_of_outcome
from fuzz.worker.worker import WorkerCrash
from tests.judge.problems import LINEAR, RELU, as_solution, write

KILLED_AT = 13
LITTLE_MEMORY = 1 << 30
FILL_MEMORY = f"""if x.numel() == {KILLED_AT} and not x.is_meta:
            held = b"1" * {LITTLE_MEMORY}
            time.sleep(0.5)
        """
"""Fills the memory of a process in one case, for long enough to be seen."""


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


def test_the_problems_own_code_says_which_inputs_it_refuses(tmp_path: Path) -> None:
    body = "assert x.numel() < 38, 'too many'\n        return torch.relu(x)"
    problem = start(tmp_path, RELU.replace("return torch.relu(x)", body))
    try:
        description = problem.call(Describe())
        for size in (37, 38):
            arguments = {name: Argument(("N",), "float32", recipe("normal")) for name in description.arguments}
            answer = problem.call(RunProblem(Case(description.name, (Call({"N": size}, arguments, {}),))))
            assert (answer is None) == (size == 37), answer
    finally:
        problem.worker.stop()


@dataclass
class RecordingWorker:
    """Answers nothing, and keeps the seconds that it has for each request."""

    timeout: float
    given: list[tuple[object, float]] = field(default_factory=list)
    deadline: Deadline = field(default_factory=Deadline)
    process: object = "first"

    def call(self, request: object) -> None:
        self.given.append((request, self.timeout))


@dataclass
class AnsweringWorker:
    """Answers all requests alike."""

    answer: object
    requests: list[object] = field(default_factory=list)

    def call(self, request: object) -> object:
        self.requests.append(request)
        return self.answer


def test_a_solution_has_longer_to_compile_than_for_a_call() -> None:
    solution: Any = RecordingWorker(20.0)
    worker = IsolatedWorker(None, solution, None)  # type: ignore[arg-type]
    worker.load()
    assert solution.given == [(Load(), LOAD_SECONDS)] and worker.timeout == 20.0 < LOAD_SECONDS


@pytest.mark.parametrize("loads", [True, False])
def test_each_new_process_has_longer_to_load_where_the_first_one_did(loads: bool) -> None:
    solution: Any = RecordingWorker(20.0)
    worker = IsolatedWorker(None, solution, None)  # type: ignore[arg-type]
    worker.log.is_loadable, worker.loaded = loads, solution.process
    request: Any = "run"
    worker.ask_solution(request)
    solution.process = "second"
    worker.ask_solution(request)
    worker.ask_solution(request)
    run = ("run", 20.0)
    assert solution.given == [run, *([(Load(), LOAD_SECONDS)] if loads else []), run, run]


def test_what_ends_its_process_while_it_loads_is_not_loaded_for_so_long_again() -> None:
    solution: Any = AnsweringWorker(WorkerCrash(Hung(LOAD_SECONDS)))
    solution.timeout, solution.process, solution.deadline = 20.0, "first", Deadline()
    worker = IsolatedWorker(None, solution, None)  # type: ignore[arg-type]
    worker.load()
    assert not worker.log.is_loadable


def test_triage_knows_how_long_it_may_wait_for_what_could_not_be_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    solution: Any = RecordingWorker(20.0)
    reports = [report_of_outcome(NotRun("no room for the reference")), report_of_outcome(Returned(()))]
    monkeypatch.setattr(IsolatedWorker, "call", lambda self, request: reports.pop(0))
    worker: Any = IsolatedWorker(None, solution, None)  # type: ignore[arg-type]
    case: Any = None
    monkeypatch.setattr(retry_backoff, "PAUSES", (0.0,))
    triage = Triage(None, worker, ())  # type: ignore[arg-type]
    assert triage.examine(case, "accuracy").outcome == "returned" and not reports


@pytest.mark.parametrize(("outcome", "waits"), [(None, False), (Hung(120.0), False), (NotRun("no memory"), True)])
def test_only_what_the_machine_lacks_is_waited_for(outcome: Outcome | None, waits: bool) -> None:
    answer = Refusal("a window larger than the image") if outcome is None else WorkerCrash(outcome)
    problem: Any = AnsweringWorker(answer)
    worker = IsolatedWorker(ProblemProcess(problem), None, None)  # type: ignore[arg-type]
    case: Any = None
    report = worker.report(case, SolutionReport(Returned(()), ({},)))
    assert (report.not_run, report.rejected) == (waits, not waits) and not report.findings


@pytest.mark.parametrize("ended", [Raised("RuntimeError: no"), Rejected("no")])
@pytest.mark.parametrize("answer", [None, Refusal("a window too large")])
def test_what_the_problem_refuses_as_well_is_no_mistake_and_no_refusal(
    answer: Refusal | None, ended: Raised | Rejected
) -> None:
    problem: Any = AnsweringWorker(answer)
    solution: Any = AnsweringWorker(SolutionReport(ended))
    case = Case("target", (Call({"N": 4}, {}, {}),))
    settings = {(("N", 4),): Setting()}
    worker = IsolatedWorker(ProblemProcess(problem, settings), solution, None)  # type: ignore[arg-type]
    report = worker.run(case)
    refuses = answer is None and isinstance(ended, Rejected)
    assert isinstance(report, Report) and report.rejected == (answer is not None or refuses) != bool(report.findings)
    assert worker.log.rejected == refuses and worker.log.calls == 1


@pytest.mark.parametrize("both", [False, True])
def test_a_solution_is_to_blame_for_memory_that_the_problem_itself_does_not_need(tmp_path: Path, both: bool) -> None:
    large = "import time\n" + RELU.replace("return torch", FILL_MEMORY + "return torch")
    problem = start(tmp_path, large if both else RELU)
    path = write(tmp_path, "solution", as_solution(large))
    config = SolutionConfig("kernelbench", path, "cpu", tmp_path)
    solution = start_solution(config, LITTLE_MEMORY, 60.0, Deadline())
    try:
        description = problem.call(Describe())
        worker = IsolatedWorker(problem, solution, description)
        arguments = {name: Argument(("N",), "float32", recipe("normal")) for name in description.arguments}
        ran = worker.run(Case(description.name, (Call({"N": KILLED_AT}, arguments, {}),)))
    finally:
        solution.stop()
        problem.worker.stop()
    assert isinstance(ran, Report) and ran.rejected == both and worker.log.rejected == 0
    assert [one.symptom for one in ran.findings] == ([] if both else ["out-of-memory"])
    assert [f"at N={KILLED_AT}: it takes 1" in note for note in worker.log.notes] == ([True] if both else [])


def test_equal_outputs_of_a_case_are_compared_once() -> None:
    problem: Any = AnsweringWorker(OutputComparison(None, 0.5))
    worker = IsolatedWorker(ProblemProcess(problem), None, None)  # type: ignore[arg-type]
    one, other = (Case("target", (Call({"N": size}, {}, {}),)) for size in (4, 5))
    first, second = ({"out": TensorWords(np.full(3, number, np.uint32), "float32")} for number in range(2))
    for case, outputs in ((one, first), (other, first), (one, first), (one, second), (one, first)):
        assert worker.compare(case, dict(outputs)) == worker.last == OutputComparison(None, 0.5)
    assert problem.requests == [Compare(one, first), Compare(other, first), Compare(one, second)]
    worker.compare(one, first, by_own_rule=True)
    assert problem.requests[-1] == Compare(one, first, True)


def test_the_problem_is_told_once_that_products_may_be_in_tf32() -> None:
    problem: Any = AnsweringWorker(None)
    solution: Any = AnsweringWorker(SolutionReport(Returned(()), ({},), in_tf32=True))
    description = ProblemDescription("target", (), {}, {}, {})
    process = ProblemProcess(problem, {(("N", 4),): Setting()}, description)
    worker = IsolatedWorker(process, solution, description)
    clone = replace(worker)
    for one in (worker, clone, worker):
        one.run(Case("target", (Call({"N": 4}, {}, {}),)))
    assert problem.requests == [Restore(replace(description, dot="tf32"))] and worker.log.notes == [IN_TF32]


def start(folder: Path, source: str) -> ProblemProcess:
    config = ProblemConfig("kernelbench", write(folder, "problem", source), "cpu", 1 << 19, 60.0)
    return ProblemProcess.start(config, 4 << 30, Deadline())
