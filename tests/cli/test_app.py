"""The list of commands: it imports none of them, and says of each what its own help says."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fuzz.cli.app import COMMANDS, describe, import_command


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
