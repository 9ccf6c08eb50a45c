"""The command of a Python process that imports this very package, installed or not."""

from __future__ import annotations

import sys
from pathlib import Path

import fuzz

PRELUDE = """
import sys
from importlib.util import find_spec
found = find_spec("fuzz")
if found is None or found.origin != {origin!r}:
    sys.path.insert(0, {folder!r})
"""
"""A checkout that is not installed is on the path of `python -m fuzz` alone; elsewhere another `fuzz` may be."""
MODULE = "import runpy\nrunpy.run_module({module!r}, run_name='__main__', alter_sys=True)\n"


def importing_this(program: str) -> str:
    """A program that does the same in a Python that may not find this package."""
    origin = fuzz.__file__
    return PRELUDE.format(origin=origin, folder=str(Path(origin).parents[1])) + program


def program_command(program: str) -> tuple[str, ...]:
    """The command that runs a program; its arguments follow.

    The folder that it is started in is not on its path: a person's own may hold a `fuzz` too.
    """
    return sys.executable, "-P", "-c", importing_this(program)


def module_command(module: str) -> tuple[str, ...]:
    """The command that runs a module of this package, as `python -m` does; its arguments follow."""
    return program_command(MODULE.format(module=module))
