"""Files: results that a command writes beside its output: checked before it works, whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from fuzz.errors import UsageError


def check(path: Path | None, option: str) -> None:
    """UsageError where a file cannot be written there, before hours of work end in that."""
    if path is None:
        return
    if path.is_dir():
        raise UsageError(f"{option} {path} is a folder; give the name of a file")
    if not path.parent.is_dir():
        raise UsageError(f"{option} {path}: there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"{option} {path}: the folder cannot be written")


def write(path: Path, text: str) -> None:
    """The file is the old one or the new one, never a part. UsageError where it cannot be written."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
