"""A row of a run says how a process that did not answer has ended."""

import subprocess
import sys

import pytest

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
