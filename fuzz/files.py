"""Reads and writes files of other people's folders: regular ones only, no more than a limit, whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

TEMPORARY = ".fuzz-{}.tmp"
"""The name of a file while it is written, random in part, so that no two writers share one."""
UNLOCKED_SECONDS = 60.0
"""Seconds for which a temporary folder that nobody has locked is left alone."""


def read_file(path: Path, limit: int) -> bytes:
    """The first `limit` bytes of a regular file, which is never waited for.

    OSError where it cannot be read, or is a pipe, a device or a folder; its `strerror` says so.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return file.read(limit)


def write_file(path: Path, text: str) -> None:
    """Replaces a file by this text: it is the old one or the new one, never a part, whatever happens in between.

    When it returns the file is on disk under its name, even if the machine stops then. OSError where that fails.
    """
    replace_file(path, text.encode("utf-8", "backslashreplace"), sync=True)


def replace_file(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Replaces a file by these bytes: others see all of them or none.

    Without `sync` it may be cut short where the machine stops. OSError where it fails.
    """
    temporary = path.with_name(TEMPORARY.format(secrets.token_hex(8)))
    try:
        with temporary.open("xb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
        if sync:
            sync_folder(path.parent)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise


def append(file: IO[bytes], data: bytes) -> None:
    """Writes bytes at the end of a file that is opened without a buffer: all of them or none. OSError where it fails.

    A disk that is nearly full takes a part without an error, which only the next write gets.
    """
    end, left = file.seek(0, os.SEEK_END), data
    try:
        while left:
            left = left[file.write(left) :]
    except OSError:
        with suppress(OSError):
            file.truncate(end)
        raise


def append_line(path: Path, line: str, *, sync: bool = False) -> None:
    """Adds a line to a file, whole or not at all; several processes may add to one. OSError where it fails.

    With `sync` it is on disk when this returns. What a killed writer left without an end stays a line of its own.
    """
    with path.open("a+b", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        end = file.seek(0, os.SEEK_END)
        is_torn = end > 0 and os.pread(file.fileno(), 1, end - 1) != b"\n"
        append(file, ("\n" * is_torn + f"{line}\n").encode())
        if sync:
            os.fsync(file.fileno())


def remove_half_written(folder: Path) -> None:
    """Removes the files that killed writers left in a folder, in which nobody may be writing now."""
    for temporary in folder.glob(TEMPORARY.format("[0-9a-f]" * 16)):
        temporary.unlink(missing_ok=True)


@contextmanager
def lock_folder(folder: Path, *, wait: bool = True) -> Iterator[None]:
    """Holds the lock of a folder, for which other processes and threads wait, and which ends with its process.

    BlockingIOError where another one holds it and `wait` is false; OSError where the folder cannot be read.
    """
    with _locked(folder, wait=wait):
        yield


def _locked(folder: Path, *, wait: bool = True) -> ExitStack:
    """What holds the lock of a folder until it is closed. A forked process, which may lack the descriptor, drops it."""
    with ExitStack() as held:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        held.callback(os.close, descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        return held.pop_all()


def own_folder(prefix: str) -> tuple[str, ExitStack]:
    """(a new folder for temporary files of this process, what holds its lock); those of ended processes are removed.

    Both are this user's whose names are the prefix and what `tempfile` makes of one. OSError where none can be made.
    """
    made = re.compile(re.escape(prefix) + "[a-z0-9_]{8}")
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):
            if not made.fullmatch(path.name) or path.lstat().st_uid != os.getuid():
                continue
            with lock_folder(path, wait=False):
                # Whoever has made a young one may not have locked it yet.
                if time.time() - path.stat().st_mtime > UNLOCKED_SECONDS:
                    # Links of others are left alone.
                    shutil.rmtree(path, ignore_errors=True)
    folder = tempfile.mkdtemp(prefix=prefix)
    with suppress(OSError):
        return folder, _locked(Path(folder))
    # Where a file system has no locks, nobody can tell that its process has ended either.
    return folder, ExitStack()


@contextmanager
def temporary_folder(prefix: str) -> Iterator[str]:
    """A folder of this process for temporary files, as `own_folder` makes it, which is removed after the block."""
    folder, held = own_folder(prefix)
    with held:
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Puts the names in a folder on disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
