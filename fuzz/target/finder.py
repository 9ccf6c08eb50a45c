"""Finds all targets of a file or a folder, for commands that go through them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from fuzz.errors import TargetError
from fuzz.files import read_file
from fuzz.target.loader import BUILT_IN, LARGEST_SOURCE, load_module, targets_in

IMPORT = re.compile(rb"^(from|import) fuzz\b", re.MULTILINE)
"""What a file that declares targets does."""
DECORATOR = re.compile(rb"^@(?!triton\b)\w+\(", re.MULTILINE)
"""What declares a target: `@target(`, or a function of the author's own that calls it."""


def find_targets(text: str) -> list[str]:
    """The targets that a text names, each as the text that loads it; a file or a folder may have several.

    A file is executed where it may declare several, and where it is one of a folder. TargetError where one cannot be
    executed, or a folder has no target.
    """
    path = Path(text)
    if text and os.path.isdir(path) and not os.path.isfile(BUILT_IN / f"{text}.py"):
        files = sorted(file for file in _python_files(path) if _count(IMPORT, file))
        found = [f"{file}:{name}" for file in files for name in targets_in(load_module(file.resolve()))]
        if not found:
            raise TargetError(f"folder {text} has no target; decorate a launcher with @target(...)")
        return found
    if path.suffix != ".py" or not os.path.isfile(path) or _count(DECORATOR, path) < 2:
        return [text]
    names = list(targets_in(load_module(path.resolve())))
    return [f"{path}:{name}" for name in names] if len(names) > 1 else [text]


def _python_files(folder: Path) -> Iterator[Path]:
    """The files below a folder that may declare targets; a folder that cannot be read, or is removed, has none."""
    for place, _, names in os.walk(folder):
        yield from (Path(place, name) for name in names if name.endswith(".py") and not name.startswith("_"))


def _count(pattern: re.Pattern[bytes], path: Path) -> int:
    try:
        return len(pattern.findall(read_file(path, LARGEST_SOURCE)))
    except OSError:
        return 0
