"""Corpus: the folder of entries on disk, text in git. Writing is whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from fuzz import codec
from fuzz.entry import STATUSES, Entry
from fuzz.errors import CorpusError, UsageError


def read(path: Path) -> Entry:
    """The entry of a file; CorpusError names the file and what is wrong."""
    try:
        with path.open("rb") as file:
            data = file.read(codec.LARGEST + 1)
    except OSError as error:
        raise CorpusError(f"cannot read {path}: {error.strerror}") from None
    try:
        return codec.loads(data)
    except CorpusError as error:
        raise CorpusError(f"{path}: {error}") from None


def write(path: Path, entry: Entry) -> None:
    """Writes an entry; the file is the old one or the new one, never a part, whatever happens in between."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    text = codec.dumps(entry)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise CorpusError(f"cannot write {path}: {error.strerror}") from None


def add(folder: Path, entry: Entry) -> Path:
    """Saves an entry under its target and name, and returns its path; an entry that stands there keeps its status."""
    path = folder / entry.case.target / entry.name
    if path.exists():
        old = read(path)
        entry = replace(entry, status=old.status, why=old.why)
    write(path, entry)
    return path


def check_writable(folder: Path) -> None:
    """CorpusError where the folder cannot take entries; makes it where it is missing."""
    probe = folder / f".probe.{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_text("probe", encoding="utf-8")
    except OSError as error:
        raise CorpusError(f"corpus folder {folder} cannot be written: {error.strerror}") from None
    finally:
        with suppress(OSError):
            probe.unlink()


def files(paths: Iterable[Path]) -> Iterator[Path]:
    """The entry files that paths name: files as they are, folders with all below them. CorpusError where missing."""
    for path in paths:
        if path.is_dir():
            yield from sorted(place for place in path.rglob("*.yaml") if not place.name.startswith("."))
        elif path.is_file():
            yield path
        else:
            raise CorpusError(f"{path} does not exist; give a corpus entry or a folder of them")


def mark(path: Path, status: str, why: str) -> Entry:
    """Changes an entry's status, with the reason."""
    if status not in STATUSES:
        raise UsageError(f"status {status!r} is not one of {', '.join(STATUSES)}")
    entry = replace(read(path), status=status, why=why)
    write(path, entry)
    return entry
