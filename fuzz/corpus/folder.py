"""Reads and writes the entries of a corpus folder; a file is written whole or not at all."""

from __future__ import annotations

import fcntl
import itertools
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import NamedTemporaryFile

from fuzz.corpus import codec
from fuzz.errors import CorpusError, UsageError, os_errors_as
from fuzz.escaping import is_storable, printable
from fuzz.files import read_file, remove_half_written, write_file
from fuzz.model.case import Case
from fuzz.model.entry import STATUSES, Entry


class _HeldFolders(threading.local):
    """The folders that this thread has locked."""

    def __init__(self) -> None:
        self.paths: set[Path] = set()


_HELD = _HeldFolders()


def read(path: Path) -> Entry:
    """The entry of a file; CorpusError names the file and what is wrong."""
    data = read_bytes(path)
    try:
        return codec.loads(data)
    except CorpusError as error:
        raise CorpusError(f"{path}: {error}") from None


def read_bytes(path: Path) -> bytes:
    """The bytes of an entry's file, of one that is too long one byte too many; CorpusError where it cannot be read."""
    _check_name(path)
    with os_errors_as(CorpusError, f"cannot read {path}"):
        return read_file(path, codec.LARGEST_ENTRY + 1)


def _check_name(path: Path) -> None:
    """CorpusError where databases and pages could not hold a path."""
    if not is_storable(str(path)):
        raise CorpusError(f"{printable(str(path))}: a name with control characters, or not in UTF-8; rename it")


def write(path: Path, entry: Entry) -> None:
    """Writes an entry; the file is the old one or the new one, never a part, whatever happens in between.

    When it returns the file is on disk, under its name, even if the machine stops then.
    """
    text = codec.dumps(entry)
    with lock(path.parent), os_errors_as(CorpusError, f"cannot write {path}"):
        write_file(path, text)


def check_size(case: Case) -> None:
    """UsageError where an entry of this case, which somebody has given, would be too large to be read again."""
    if (size := codec.words_size(case)) > codec.LARGEST_CASE:
        kept = f"more than the {codec.LARGEST_CASE} that an entry holds"
        raise UsageError(f"an input of {case.target} takes {size} bytes as text, {kept}; give fewer elements")


def save_entry(corpus: Path, entry: Entry, previous: Path | None = None) -> Path:
    """Saves an entry in the folder of its target in a corpus, as `save_in_folder` does, and returns its path."""
    return save_in_folder(corpus / entry.case.target, entry, previous)


def save_in_folder(folder: Path, entry: Entry, previous: Path | None = None) -> Path:
    """Saves an entry in `folder` as `find_place` says, and returns its path; an existing entry there keeps its status.

    It replaces the entry `previous`, which is renamed first and keeps its status, too: so at no moment are there two
    entries of the same cause, or none.
    """
    with lock(folder):
        path = find_place(folder, entry)
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


def find_place(folder: Path, entry: Entry) -> Path:
    """The path in a folder that an entry is to have: that of its name, or a numbered one where that cannot be read.

    A file that somebody has damaged, as a merge with conflicts does, is theirs to repair.
    """
    named = folder / entry.name
    places = itertools.chain([named], (named.with_stem(f"{named.stem}-{number}") for number in itertools.count(2)))
    return next(path for path in places if not path.exists() or _is_readable(path))


def _is_readable(path: Path) -> bool:
    try:
        read(path)
    except CorpusError:
        return False
    return True


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Keeps other processes and other threads from changing the entries of a folder, which is made where it is missing.

    Half-written files of killed processes are removed. The same thread may lock the folder again inside. An OSError of
    the body is raised as CorpusError.
    """
    absolute = folder.absolute()
    if absolute in _HELD.paths:
        yield
        return
    with os_errors_as(CorpusError, f"cannot write {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # The system's lock belongs to this descriptor: other threads wait too, and it ends with the process.
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        _HELD.paths.add(absolute)
        remove_half_written(folder)
        yield
    except OSError as error:
        raise CorpusError(f"cannot change the entries in {folder}: {error.strerror}") from None
    finally:
        _HELD.paths.discard(absolute)
        os.close(descriptor)


def check_writable(folder: Path, target: str = "") -> None:
    """CorpusError where the folder cannot take entries of a target; makes it where it is missing."""
    _check_name(folder)
    with os_errors_as(CorpusError, f"corpus folder {folder} cannot be written"):
        folder.mkdir(parents=True, exist_ok=True)
        for place in (folder, folder / target):
            if place.exists():
                with NamedTemporaryFile(prefix=".probe-", dir=place) as probe:
                    probe.write(b"probe")
                    probe.flush()


def entry_files(paths: Iterable[Path]) -> Iterator[Path]:
    """The entry files that paths name: files as they are, folders with all below them. CorpusError where missing."""
    for path in paths:
        try:
            if not path.exists():
                raise CorpusError(f"{path} does not exist; give a corpus entry or a folder of them")
            yield from _files_in(path) if path.is_dir() else [path]
        except OSError as error:
            raise CorpusError(f"cannot read {path}: {error.strerror}") from None
        except RecursionError:
            raise CorpusError(f"cannot read {path}: nested too deep") from None


def _files_in(folder: Path) -> list[Path]:
    files = (file for file in folder.rglob("*.yaml") if not file.name.startswith("."))
    return sorted(file for file in files if not file.is_dir())


def mark(path: Path, status: str, why: str) -> Entry:
    """Changes an entry's status, with the reason. Of a link, the entry that it leads to."""
    if status not in STATUSES:
        raise UsageError(f"status {status!r} is not one of {', '.join(STATUSES)}")
    return update(path, lambda entry: replace(entry, status=status, why=why))


def update(path: Path, change: Callable[[Entry], Entry]) -> Entry:
    """Writes, and returns, what `change` makes of an entry as it is now. Of a link, the entry that it leads to.

    CorpusError where it is not there any more.
    """
    read(path)  # before `lock`, which makes a folder that is missing
    path = path.resolve()
    with lock(path.parent):
        entry = change(read(path))
        write(path, entry)
    return entry
