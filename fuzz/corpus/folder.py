"""Reads and writes the entries of a corpus folder; a file is written whole or not at all."""

from __future__ import annotations

import fcntl
import os
import secrets
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from fuzz.corpus import codec
from fuzz.errors import CorpusError, UsageError
from fuzz.model.entry import STATUSES, Entry

TEMPORARY = ".tmp"
"""How the name of a file ends while it is written."""


class _HeldFolders(threading.local):
    """The folders that this thread has locked."""

    def __init__(self) -> None:
        self.paths: set[Path] = set()


_HELD = _HeldFolders()


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
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}{TEMPORARY}")
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


def save_entry(corpus: Path, entry: Entry, previous: Path | None = None) -> Path:
    """Saves an entry in the folder of its target in a corpus, as `save_in_folder` does, and returns its path."""
    return save_in_folder(corpus / entry.case.target, entry, previous)


def save_in_folder(folder: Path, entry: Entry, previous: Path | None = None) -> Path:
    """Saves an entry in `folder` under its name, and returns its path; an existing entry there keeps its status.

    It replaces the entry `previous`. That one gets the new name first, so that at no moment there are two of the same
    cause, nor none.
    """
    path = folder / entry.name
    with lock(folder):
        if previous is not None and previous != path and previous.exists():
            if path.exists():
                previous.unlink()
            else:
                os.replace(previous, path)
        if path.exists():
            existing = read(path)
            entry = replace(entry, status=existing.status, why=existing.why)
        write(path, entry)
    return path


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Keeps other processes and other threads from changing the entries of a folder, which is made where it is missing.

    Files that killed processes left half written are removed. The same thread may lock the folder again inside.
    """
    absolute = folder.absolute()
    if absolute in _HELD.paths:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise CorpusError(f"cannot write {folder}: {error.strerror}") from None
    try:
        # The kernel's lock belongs to this descriptor: other threads wait too, and it ends with the process.
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        _HELD.paths.add(absolute)
        for half_written in folder.glob(f".*{TEMPORARY}"):
            half_written.unlink(missing_ok=True)
        yield
    except OSError as error:
        raise CorpusError(f"cannot change the entries in {folder}: {error.strerror}") from None
    finally:
        _HELD.paths.discard(absolute)
        os.close(descriptor)


def sync(folder: Path) -> None:
    """Puts the names in a folder on disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_writable(folder: Path) -> None:
    """CorpusError where the folder cannot take entries; makes it where it is missing."""
    probe = folder / f".probe.{os.getpid()}-{secrets.token_hex(4)}"
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
            yield from sorted(file for file in path.rglob("*.yaml") if not file.name.startswith("."))
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
