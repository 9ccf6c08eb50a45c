"""Processes of the honest set: how one that did not answer has ended, and when operations are declared."""

import json
import os
import subprocess
import sys
from argparse import Namespace
from types import SimpleNamespace

import pytest

from benchmarks.honest import __main__ as honest
from benchmarks.honest.__main__ import answer, why_ended
from benchmarks.honest.shares import MOST_EMPTY, Shares
from fuzz.backends.cuda.backend import NO_GPU


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("import sys; sys.exit(3)", "its process ended with exit status 3"),
        ("import os; os.abort()", "its process ended by SIGABRT"),
        ("import os; os.kill(os.getpid(), 9)", "its process was killed"),
    ],
    ids=["status", "signal", "killed"],
)
def test_how_a_process_has_ended(program, why):
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with subprocess.Popen([sys.executable, "-c", program], **pipes) as process:
        assert answer(process, {"seconds": 60.0}) == ""
        assert why_ended(process).startswith(why)


def test_operations_are_declared_again_by_other_code(tmp_path, monkeypatch):
    folder, commands = tmp_path / "targets", []

    def run(command, **options):
        commands.append(command)
        folder.mkdir()
        (folder / "exp.py").touch()

    monkeypatch.setattr(honest, "OPERATIONS", folder)
    monkeypatch.setattr(honest.subprocess, "run", run)
    honest.declare_operations(2)
    honest.declare_operations(2)
    assert [command[-1] for command in commands] == ["--jobs=2"]
    (folder / "done").write_text("an older digest")
    (folder / "gone.py").touch()
    honest.declare_operations(2)
    assert sorted(path.name for path in folder.iterdir()) == ["done", "exp.py"]


def test_a_run_that_another_targets_fault_took_the_gpu_from_does_not_count(monkeypatch):
    class Gpu:
        replaced = 0

        def replace_faulty(self, before):
            self.replaced = 1

    tried, shared, kept, shares = [], [], [], Shares(10, 60.0, float("inf"))

    def answer(process, request):
        tried.append(request["seed"])
        shared.append(process.stdout.readline() == "True\n")
        return '{"target": "a.py:a"}'

    shares.add("fla", ["a.py:a"], [])
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "ours")
    program = "import os; [print('CUDA_MPS_PIPE_DIRECTORY' in os.environ) for _ in range(9)]"
    monkeypatch.setattr(honest, "arguments", lambda asked: [sys.executable, "-c", program])
    monkeypatch.setattr(honest, "answer", answer)
    monkeypatch.setattr(honest, "keep_run", lambda backend, name, run: kept.append(run["target"]))
    honest.work(shares, Namespace(backend="cuda"), Gpu(), sorted(os.sched_getaffinity(0)))
    # The first is tried again; of the others, for which the GPU was there, each counts as one without a case.
    assert tried == [0, 0, 1] and len(kept) == MOST_EMPTY == 2
    # The fault may have been its own.
    assert shared == [True, False, False]


@pytest.mark.parametrize("key", ["why", "error"])
def test_a_process_that_finds_no_gpu_while_the_service_starts_is_replaced(monkeypatch, key):
    answers = [{key: f"its worker says: {NO_GPU}"}, {"cases": 10}]
    asked, kept, shares = [], [], Shares(10, 60.0, float("inf"))

    def answer(process, request):
        asked.append((process.pid, request["seed"]))
        return json.dumps({"target": "a.py:a", **answers[len(asked) - 1]})

    shares.add("fla", ["a.py:a"], [])
    monkeypatch.setattr(honest, "arguments", lambda asked: [sys.executable, "-c", "input()"])
    monkeypatch.setattr(honest, "answer", answer)
    monkeypatch.setattr(honest, "keep_run", lambda backend, name, run: kept.append(run))
    gpu = SimpleNamespace(replaced=0, replace_faulty=lambda before: None)
    honest.work(shares, Namespace(backend="cuda"), gpu, sorted(os.sched_getaffinity(0)))
    (first, seed), (second, again) = asked
    assert first != second and seed == again
    assert kept == [{"target": "a.py:a", "cases": 10}]
