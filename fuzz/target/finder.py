"""Finds all targets of a file or a folder, for commands that go through them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fuzz.errors import TargetError
from fuzz.files import read_file
from fuzz.target.loader import BUILT_IN, LARGEST, load_module, targets_in

DECLARATION = "@target("


def find_targets(text: str) -> list[str]:
    """The targets that a text names, each as the text that loads it; a file or a folder may have several.

    A file is executed only where it declares several. TargetError where a folder has none.
    """
    path = Path(text)
    if path.is_dir() and not (BUILT_IN / f"{text}.py").is_file():
        files = sorted(file for file in path.rglob("*.py") if not file.name.startswith("_") and _declarations(file))
        found = [one for file in files for one in _in_file(file, str(file))]
        if not found:
            raise TargetError(f"folder {text} has no target; decorate a launcher with @target(...)")
        return found
    return list(_in_file(path, text)) if path.suffix == ".py" and path.is_file() else [text]


def _in_file(path: Path, text: str) -> Iterator[str]:
    if _declarations(path) < 2:
        yield text
        return
    names = list(targets_in(load_module(path.resolve())))
    yield from [f"{path}:{name}" for name in names] if len(names) > 1 else [text]


def _declarations(path: Path) -> int:
    try:
        return read_file(path, LARGEST).count(DECLARATION.encode())
    except OSError:
        return 0
