"""The two processes of a judgement, and what a new one is told where one has ended."""

from __future__ import annotations

import signal
from pathlib import Path

from fuzz.judge.problem import ProblemDescription, Setting
from fuzz.judge.processes.isolated_worker import ProblemProcess
from fuzz.judge.processes.requests import Describe, MakeValues, ProblemConfig, Refusal
from fuzz.worker.deadline import Deadline
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


def start(folder: Path, source: str) -> ProblemProcess:
    config = ProblemConfig("kernelbench", write(folder, "problem", source), "cpu", 1 << 19, 60.0)
    return ProblemProcess.start(config, 4 << 30, Deadline())
