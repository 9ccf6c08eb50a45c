"""Processes of the honest set: how one that did not answer has ended, and when operations are declared."""

import subprocess
import sys

import pytest

from benchmarks.honest import __main__ as honest
from benchmarks.honest.__main__ import answer, why_ended


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
