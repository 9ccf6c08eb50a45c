"""A batch of `fuzz judge` on two Ray nodes started on this machine, one of which is killed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from services import nodes

from fuzz.judge.batch.task import JudgeTask, TaskOptions, moved
from tests.judge.problems import RELU, as_solution

FUZZ = str(Path(sys.executable).with_name("fuzz"))
WRONG = "torch.where(x < 0, torch.zeros_like(x), x * 1.5)"


def write_solutions(folder: Path, count: int) -> None:
    """A right solution, and wrong ones that differ in a comment."""
    (folder / "problems").mkdir()
    (folder / "problems" / "relu.py").write_text(RELU)
    (folder / "solutions").mkdir()
    (folder / "solutions" / "relu.py").write_text(as_solution(RELU))
    wrong = as_solution(RELU).replace("torch.relu(x)", WRONG)
    for number in range(1, count):
        (folder / "solutions" / f"relu_{number}.py").write_text(f"# {number}\n{wrong}")


def test_a_node_that_is_killed_costs_no_judgement(tmp_path: Path) -> None:
    write_solutions(tmp_path, 4)
    words = "judge --batch solutions --problems problems --workers 2 --seconds 0 --backend cpu --cluster ray --json"
    with nodes(1, 1) as cluster:
        command = [FUZZ, *words.split(), "--address", cluster.address]
        with subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as running:
            results = tmp_path / "solutions" / "judgements.jsonl"
            until = time.monotonic() + 240
            while not results.exists() or not results.read_text().strip():
                assert running.poll() is None and time.monotonic() < until
                time.sleep(0.1)
            cluster.kill(0)
            cluster.add(1)
            out, stderr = running.communicate(timeout=400)
    assert running.returncode == 1, stderr
    found = json.loads(out)
    verdicts = {Path(one["solution"]).name: one["verdict"] for one in found["judgements"]}
    assert verdicts == {"relu.py": "RIGHT", **{f"relu_{number}.py": "WRONG" for number in range(1, 4)}}
    assert "fuzz-away-" not in out


def test_a_task_names_every_file_that_a_node_needs(tmp_path: Path) -> None:
    (tmp_path / "task").mkdir()
    task_yml = 'files:\n  - {name: submission.py, source: "@SUBMISSION@"}\n  - {name: utils.py, source: ../utils.py}\n'
    files = {"task/task.yml": task_yml + "tests:\n  - {size: 4, seed: 1}\n", "utils.py": "", "mine.py": "kernel"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    options = TaskOptions("gpumode", "cpu", 0.0)
    task = JudgeTask(options, str(tmp_path / "task"), str(tmp_path / "mine.py")).locate()
    assert {path.resolve().relative_to(tmp_path): text.decode() for path, text in task.files()} == {
        Path(name): text for name, text in files.items()
    }
    there = task.move_to(Path("/away"))
    assert (there.problem, there.spec) == (f"/away{tmp_path}/task", "")
    assert there.solution == moved(str(tmp_path / "mine.py"), Path("/away"))
