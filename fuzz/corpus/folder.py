"""Corpus: the folder of entries on disk, text in git. Writing is whole or not at all."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from fuzz.corpus import codec
from fuzz.errors import CorpusError, UsageError
from fuzz.model.entry import STATUSES, Entry

TEMPORARY = ".tmp"
"""How the name of a file ends while it is written."""
_HELD: set[Path] = set()
"""Folders that this process has locked."""


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
    """Writes an entry; the file is the old one or the new one, never a part, whatever happens in between.

    When it returns the file is on disk, under its name, even if the machine stops then.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY}")
    text = codec.dumps(entry)
    with lock(path.parent):
        try:
            with temporary.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
            sync(path.parent)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            raise CorpusError(f"cannot write {path}: {error.strerror}") from None


def add(folder: Path, entry: Entry, previous: Path | None = None) -> Path:
    """Saves an entry under its target and name, and returns its path; an entry that stands there keeps its status.

    It takes the place of the entry `previous`. That one gets the new name first, so that at no moment there are two of
    the same cause, nor none.
    """
    path = folder / entry.case.target / entry.name
    with lock(path.parent):
        if previous is not None and previous != path and previous.exists():
            if path.exists():
                previous.unlink()
            else:
                os.replace(previous, path)
        if path.exists():
            old = read(path)
            entry = replace(entry, status=old.status, why=old.why)
        write(path, entry)
    return path


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Keeps every other process from changing the entries of a folder, which is made where it is missing.

    What processes left behind that were killed while they wrote is removed. The same process may lock it again inside.
    """
    place = folder.absolute()
    if place in _HELD:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise CorpusError(f"cannot write {folder}: {error.strerror}") from None
    try:
        # The lock is the kernel's: it ends with the process, however that ends.
        fcntl.flock(handle, fcntl.LOCK_EX)
        _HELD.add(place)
        for torn in folder.glob(f".*{TEMPORARY}"):
            torn.unlink(missing_ok=True)
        yield
    except OSError as error:
        raise CorpusError(f"cannot change the entries in {folder}: {error.strerror}") from None
    finally:
        _HELD.discard(place)
        os.close(handle)


def sync(folder: Path) -> None:
    """Puts the names in a folder on disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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


def entry_files(paths: Iterable[Path]) -> Iterator[Path]:
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
    with lock(path.parent):
        entry = replace(read(path), status=status, why=why)
        write(path, entry)
    return entry
