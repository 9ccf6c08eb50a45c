"""Writes the result files of commands: checked before the work begins, whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from fuzz.errors import UsageError, os_errors_as
from fuzz.files import write_file


def check_result_path(path: Path | None, option: str) -> None:
    """Raises UsageError where a file cannot be written there, before hours of work end in that."""
    if path is None:
        return
    if path.is_dir():
        raise UsageError(f"{option} {path} is a folder; give the name of a file")
    if not path.parent.is_dir():
        raise UsageError(f"{option} {path}: there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"{option} {path}: the folder cannot be written")


def write_result(path: Path, text: str) -> None:
    """Replaces the file as a whole, so that it is never partly written. Raises UsageError where that fails."""
    with os_errors_as(UsageError, f"cannot write {path}"):
        write_file(path, text)
