"""What the processes of judgements would import is imported by the server that they are forked from."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.judge import command
from fuzz.judge.formats import KERNELBENCH, OPS, SCRIPT
from fuzz.judge.formats.options import JudgeOptions
from fuzz.judge.problem.description import ProblemDescription
from fuzz.judge.processes.isolated_worker import ProblemProcess
from fuzz.judge.processes.requests import SERVER_MODULE, Describe, ProblemConfig
from fuzz.worker.deadline import Deadline
from tests.judge.problems import RELU, write


class Started(Exception):
    """The server of workers is being started."""


@pytest.mark.parametrize(
    ("format", "modules"),
    [
        (KERNELBENCH, (SERVER_MODULE,)),
        (OPS, (SERVER_MODULE,)),
        # A program is run as it is: nothing of a problem is looked at.
        (SCRIPT, ()),
    ],
)
def test_the_server_imports_what_a_judgement_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str, modules: tuple[str, ...]
) -> None:
    def start(*more: str) -> None:
        assert more == modules
        raise Started

    monkeypatch.setattr(command, "start_worker_server", start)
    with pytest.raises(Started):
        path = write(tmp_path, "problem", RELU)
        next(command.judge_all(JudgeOptions(path, path, format, "cpu", 0.0), print))


def test_a_process_has_it_before_it_loads_the_problem(tmp_path: Path) -> None:
    names = {"torch._dynamo", "torch.utils.benchmark", "fuzz.judge.processes.solution_worker"}
    source = f"import sys\n\nassert {names} <= sys.modules.keys()\n" + RELU
    config = ProblemConfig("kernelbench", write(tmp_path, "problem", source), "cpu", 1 << 19, 60.0)
    problem = ProblemProcess.start(config, 4 << 30, Deadline())
    try:
        assert isinstance(problem.call(Describe()), ProblemDescription)
    finally:
        problem.worker.stop()
