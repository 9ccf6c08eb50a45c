"""The list of commands: it imports none of them, and says of each what its own help says."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz.cli.app import COMMANDS, describe, import_command
from fuzz.cli.console import TextConsole


def test_help_imports_no_command() -> None:
    program = "import sys\nfrom fuzz.cli import exit_code\nprint(exit_code(['--help']), *sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.splitlines()[-1].split()[0] == "0"
    loaded = set(done.stdout.splitlines()[-1].split())
    assert not loaded & {"torch", "triton", "fuzz.cli.run", "fuzz.cli.campaign", "fuzz.run.fuzzer"}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_what_the_command_says(name: str) -> None:
    command = import_command(name)
    assert command.name == name and describe(name).split() == command.help.split()


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("ulimit -f 0; {} --help > out", "cannot write standard output: File too large"),
        ("ulimit -f 0; {} --version > out", "cannot write standard output: File too large"),
        ("{} --version >&-", "cannot write standard output: Bad file descriptor"),
        ("mkdir gone && cd gone && rmdir ../gone && {} list", "the working folder cannot be used: No such file"),
        ("TMPDIR=$PWD/" + "d" * 90 + " && mkdir $TMPDIR && TMPDIR=$TMPDIR {} run gelu_bw", "AF_UNIX path too long"),
        ("ln -s loop.py loop.py && {} run loop.py", "target file loop.py does not exist"),
        ("ulimit -f 0; {} run nowhere 2> out", ""),
        ("{} run nowhere 2>&-", ""),
    ],
)
def test_what_a_command_cannot_write_or_start_from_is_one_line(tmp_path: Path, command: str, why: str) -> None:
    line = command.replace("{}", f"{sys.executable} -m fuzz")
    done = subprocess.run(["/bin/sh", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert why in done.stderr and done.stderr.count("\n") == bool(why)


def test_names_of_files_are_utf_8_whatever_the_locale(tmp_path: Path) -> None:
    """What is printed has the locale's encoding."""
    (tmp_path / "ядро é").mkdir()
    entry = next(Path(__file__).parents[2].joinpath("corpus").rglob("*.yaml"))
    copy = shutil.copy(entry, tmp_path / "ядро é" / "ж.yaml")
    variables = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    line = [sys.executable, "-m", "fuzz"]
    for command in ([*line, "show", copy], [*line, "replay", f"{copy}x"]):
        done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
        assert done.returncode == (0 if command[-1] == copy else 2), done.stderr
        assert "rename it" not in done.stderr and done.stderr.isascii() and done.stdout.isascii()
    assert r"\u044f\u0434\u0440\u043e \xe9/\u0436.yamlx" in done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_program_is_utf_8_whatever_the_locale(encoding: str) -> None:
    """As Python reads it."""
    program = "import sys\nfrom fuzz.cli.console import put_program, set_up_streams\n"
    program += "set_up_streams()\nput_program('# \u00e9 \u044f')\nsys.stdout.flush()\n"
    variables = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, check=True)
    assert done.stdout.decode() == "# \u00e9 \u044f\n"


def test_a_pipe_that_its_reader_has_closed_is_no_reason_to_complain() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    line = [sys.executable, "-m", "fuzz", "--version"]
    done = subprocess.run(line, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (2, b"")


def test_a_reader_that_is_gone_ends_nothing() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    console = TextConsole(file=Gone())
    console.print("nobody reads this")
    assert console.quiet
