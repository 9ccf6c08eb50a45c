"""Answers libraries that ask for a GPU by a program of its driver."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FOLDER = str(Path(__file__).with_suffix(""))


@contextmanager
def pretended_programs() -> Iterator[None]:
    """Inside, `nvidia-smi` is found on the path, behind that of the machine."""
    os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), FOLDER])
    try:
        yield
    finally:
        folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
        os.environ["PATH"] = os.pathsep.join(folder for folder in folders if folder != FOLDER)
