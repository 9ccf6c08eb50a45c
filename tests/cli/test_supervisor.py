"""Commands whose target's file ends the process that executes it, as a person runs them."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import has_ended
from programs import ForkedProgram, run_program, start_program

from fuzz.cli.supervisor import NO_CODE, Note
from fuzz.target_code import FILE
from fuzz.worker.system import children, signal_at_parents_end

FUZZ = str(Path(sys.executable).with_name("fuzz"))
ENDINGS = {
    "os._exit(0)": "exit status 0",
    "import indirect": "SIGSEGV",
    "os.kill(os.getpid(), 40)": "signal 40",
}

DOUBLE = """
import torch
from fuzz import size, target, tensor

@target(x=tensor(size("N", 1, 9)), dtypes=("float32",), reference=lambda x: dict(y=x * 2))
def double(x):
    return dict(y=x * 2)

"""


def run_fuzz(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_program("-m", "fuzz", *arguments, cwd=folder)


def start_fuzz(folder: Path, *arguments: str) -> ForkedProgram:
    return start_program("-m", "fuzz", *arguments, cwd=folder, folder=folder)


@pytest.mark.parametrize(("statement", "how"), ENDINGS.items())
def test_a_file_that_ends_its_process_is_one_line(tmp_path: Path, statement: str, how: str) -> None:
    (tmp_path / "indirect.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    (tmp_path / "mine.py").write_text(f"import os\nfrom fuzz import target\n{statement}\n")
    done = run_fuzz(tmp_path, "drift", "mine.py")
    assert (done.returncode, done.stdout) == (2, "")
    line = f"fuzz: the file {tmp_path / 'mine.py'} ended the command that executed it: {how}"
    assert done.stderr.splitlines() == [line]


def test_a_file_that_does_not_end_or_starts_processes_leaves_none(tmp_path: Path) -> None:
    program = (
        "import os, subprocess, time\nfrom fuzz import target\n"
        "left = subprocess.Popen(['sleep', '600'], start_new_session=True).pid\n"
        "with open('left', 'w') as file:\n    file.write(f'{os.getpid()} {left} ')\n"
    )
    # Python raises KeyboardInterrupt between instructions: a signal as a long sleep begins would wait for its end.
    (tmp_path / "mine.py").write_text(f"{program}while True:\n    time.sleep(0.1)\n")
    running = start_fuzz(tmp_path, "drift", "mine.py")
    while not (tmp_path / "left").exists() or not (tmp_path / "left").read_text().endswith(" "):
        assert running.poll() is None
        time.sleep(0.01)
    pids = [int(pid) for pid in (tmp_path / "left").read_text().split()]
    assert children(running.pid) == pids[:1]
    # Others know the command by the number of its first process.
    running.send_signal(signal.SIGINT)
    assert running.wait(60) == 130 and running.printed("stderr") == "fuzz: interrupted\n"
    assert all(has_ended(pid) for pid in pids)


def test_what_a_file_prints_is_escaped_and_no_result(tmp_path: Path) -> None:
    prints = (
        "import os, sys\nprint('\\x1b[2J by Python')\nos.system(r\"printf '\\033[2J by a program\\n'\")\n"
        "sys.stderr = None\n"
    )
    (tmp_path / "mine.py").write_text(DOUBLE + prints)
    done = run_fuzz(tmp_path, "run", "mine.py", "--cases", "1", "--backend", "cpu", "--json")
    assert (done.returncode, json.loads(done.stdout)["cases"]) == (0, 1), done.stderr
    assert r"\x1b[2J by Python" in done.stderr and r"\x1b[2J by a program" in done.stderr
    assert "\x1b" not in done.stderr and "seed 0" in done.stderr


def test_an_interrupt_as_a_command_ends_changes_nothing(tmp_path: Path) -> None:
    interrupts = "import atexit, os, signal\natexit.register(os.kill, os.getpid(), signal.SIGINT)\n"
    (tmp_path / "mine.py").write_text(DOUBLE + interrupts)
    done = run_fuzz(tmp_path, "run", "mine.py", "--cases", "1", "--backend", "cpu")
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr


def test_a_command_ends_with_its_supervisor_and_as_others_end_it(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import os, time\nopen(str(os.getpid()), 'w')\ntime.sleep(600)\n")
    for number in (signal.SIGKILL, signal.SIGTERM):
        running = start_fuzz(tmp_path, "drift", "mine.py")
        while not (names := [path.name for path in tmp_path.glob("[0-9]*")]):
            assert running.poll() is None
            time.sleep(0.01)
        running.send_signal(number)
        assert running.wait(60) == -number or number == signal.SIGTERM
        assert has_ended(int(names[0]))
        (tmp_path / names[0]).unlink()


def test_a_file_that_forks_runs_the_command_once(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import os\nfrom fuzz import target\nos.fork()\n")
    done = run_fuzz(tmp_path, "drift", "mine.py")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr


LIMITED = """
import runpy, sys
from fuzz.cli import supervisor
supervisor.{limit}
sys.argv = ["fuzz", "drift", "mine.py"]
runpy.run_module("fuzz", run_name="__main__")
"""


@pytest.mark.parametrize(
    ("limit", "statement", "said"),
    [
        ("FILE_SECONDS = 0.5", "", "it takes more than 0 s"),
        ("total_memory = lambda: 0", "taken = bytearray(9 << 27)", "it holds more than 1024 MiB of memory"),
    ],
)
def test_a_file_has_limits_of_time_and_memory(tmp_path: Path, limit: str, statement: str, said: str) -> None:
    (tmp_path / "mine.py").write_text(f"from fuzz import target\n{statement}\nwhile True: pass\n")
    done = run_program("-c", LIMITED.format(limit=limit), cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.endswith(f"{said}\n") and len(done.stderr.splitlines()) == 1


def test_what_a_file_leaves_for_the_end_does_not_keep_the_command(tmp_path: Path) -> None:
    left = "atexit.register(time.sleep, 600)\nthreading.Thread(target=time.sleep, args=[600]).start()\n"
    (tmp_path / "mine.py").write_text(f"import atexit, threading, time\nfrom fuzz import target\n{left}")
    done = run_program("-c", LIMITED.format(limit="END_SECONDS = 0.5"), cwd=tmp_path)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("limit", "most", "said"),
    [
        (resource.RLIMIT_NOFILE, 10, "Too many open files"),
        (resource.RLIMIT_NOFILE, 20, "Too many open files"),
        (resource.RLIMIT_FSIZE, 0, "File too large"),
        (resource.RLIMIT_AS, 500 << 20, "failed to map segment"),
    ],
)
def test_what_a_limit_of_the_process_does_not_give_is_one_line(
    tmp_path: Path, limit: int, most: int, said: str
) -> None:
    (tmp_path / "mine.py").write_text(DOUBLE)
    done = subprocess.run(
        [FUZZ, "run", "mine.py", "--cases", "1", "--backend", "cpu"], cwd=tmp_path, capture_output=True, text=True,
        timeout=300, preexec_fn=lambda: resource.setrlimit(limit, (most, most)),
    )  # fmt: skip
    lines = [line for line in done.stderr.splitlines() if line.startswith("fuzz: ")]
    assert done.returncode == 2 and len(lines) == 1 and "gives too little" in lines[0] and said in lines[0], done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_that_has_just_begun_has_not_taken_long() -> None:
    note, start = Note(), time.monotonic()
    note.write(0, "")
    process = os.fork()
    if process == 0:
        signal_at_parents_end(signal.SIGKILL)
        while True:
            note.write(FILE, "mine.py")
            note.write(0, "")
    try:
        executed = 0
        while executed < 50_000:
            code, which, since, _ = note.read()
            assert code == NO_CODE and since >= start
            executed += which == FILE
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
