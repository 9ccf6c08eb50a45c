"""Writes the result files of commands: checked before the work begins, whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from fuzz.errors import UsageError, os_errors_as
from fuzz.files import write_file

OPEN_FILES = tuple(map(Path, ("/dev", "/dev/fd", "/proc/self/fd")))
"""The folders whose names stand for files that are open."""


INPUTS = (".py", ".yaml", ".yml")
"""How files end that declare targets or campaigns, or are entries."""


def check_result_path(path: Path | None, option: str) -> None:
    """Raises UsageError where a file cannot be written there, before hours of work end in that."""
    if path is None:
        return
    if path.is_dir():
        raise UsageError(f"{option} {path} is a folder; give the name of a file")
    if is_device(path):
        if not os.access(path, os.W_OK):
            raise UsageError(f"{option} {path} cannot be written")
        return
    # What a link leads to is what would be replaced.
    if os.path.splitext(os.path.realpath(path))[1] in INPUTS and path.is_file():
        raise UsageError(f"{option} {path} is a file of yours that no result may replace; give another name")
    if not path.parent.is_dir():
        raise UsageError(f"{option} {path}: there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"{option} {path}: the folder cannot be written")


def write_result(path: Path, text: str) -> None:
    """Replaces the file as a whole, so that it is never partly written. Raises UsageError where that fails.

    A link stays one: what it leads to is replaced. A device or a pipe, such as /dev/stdout, is written to.
    """
    with os_errors_as(UsageError, f"cannot write {path}"):
        if not is_device(path):
            write_file(path.resolve(), text)
            return
        with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)


def is_device(path: Path) -> bool:
    """Whether a path names something else than a file or a folder, or what this process has open, whatever that is."""
    return path.exists() and not path.is_file() or path.absolute().parent in OPEN_FILES
