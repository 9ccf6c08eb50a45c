"""Keeps the shared objects that the C compiler makes of kernels, and has it make them in the background."""

from __future__ import annotations

import atexit
import ctypes
import errno
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
import weakref
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import IO

from triton import knobs

from fuzz.backends.cpu.compilers.compiler import (
    TIMEOUT,
    build,
    command_line,
    end_compiler,
    start_compiler,
    version,
)
from fuzz.backends.cpu.compilers.kernel_text import KernelText
from fuzz.files import replace_file
from fuzz.worker.system import POLITE

ELF_64 = b"\x7fELF\x02"
ELF_HEAD = Struct("<40xQ10xHH2x")
"""Where the table of sections stands, which linkers put last, the size of each entry, and how many there are."""
FORMAT_ERROR = re.compile("(invalid|wrong) ELF|ELF |file too short|nonzero padding|only ET_DYN|object file has no ")
"""How messages of the loader begin that are about the content of a file, not about descriptors or memory."""
FOLDER = "cpu-kernels"
"""The folder of shared objects in Triton's cache."""
BUILDS_FOLDER = "cpu-builds"
"""The folder beside it of builds in the background: the lock of each, and a folder of its files."""


def kept_path(made_by: str, c: KernelText, ending: str) -> Path:
    """Where the machine code of a kernel's C is kept that something of this version makes."""
    key = hashlib.sha256(f"{made_by}\n{c.digest}".encode()).hexdigest()
    return Path(f"{knobs.cache.dir}/{FOLDER}/{key}{ending}")


def object_path(c: KernelText) -> Path:
    """Where the shared object of a kernel's C is kept once it is made by this compiler for this processor.

    Raises NoCompiler where the machine has no C compiler.
    """
    return kept_path(version(), c, ".so")


def build_object(c: KernelText, name: str) -> Path:
    """The shared object of a kernel's C, made first where it is not kept. Raises as `build`."""
    path = object_path(c)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, build(c.text, name))
    return path


class DamagedObject(OSError):
    """A file that is no whole shared object."""


def load_shared(path: Path) -> ctypes.CDLL:
    """A shared object that is kept. OSError where it cannot be loaded, and DamagedObject where nobody ever can: then it
    is removed, so that another is made."""
    try:
        check_length(path)
        return open_shared(path)
    except DamagedObject:
        with suppress(OSError):
            path.unlink()
        raise


def open_shared(path: Path) -> ctypes.CDLL:
    """What the loader makes of a file. DamagedObject where it refuses the format, OSError where it lacks something."""
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        # The loader has no number for what went wrong.
        if FORMAT_ERROR.match(str(error).removeprefix(f"{path}: ")):
            raise DamagedObject(errno.ENOEXEC, str(error), str(path)) from None
        raise


def check_length(path: Path) -> None:
    """DamagedObject where a file is cut short: the loader may only notice when the process reads beyond its end."""
    with path.open("rb") as file:
        head, length = file.read(ELF_HEAD.size), os.fstat(file.fileno()).st_size
    start, size, count = ELF_HEAD.unpack(head) if head.startswith(ELF_64) and len(head) == ELF_HEAD.size else (0, 0, 0)
    if length < max(start + size * count, ELF_HEAD.size):
        raise DamagedObject(errno.EIO, "the end is missing", str(path))


class BackgroundBuild:
    """The C compiler at work on one kernel. None of its errors is raised."""

    def __init__(self, c: KernelText, path: Path, lock: IO[bytes]) -> None:
        self.path, self._lock = path, lock
        self._folder = build_folder(lock.name)
        self._folder.mkdir(exist_ok=True)
        self._made = self._folder / path.name
        with tempfile.TemporaryFile() as source:
            source.write(c.text.encode())
            source.seek(0)
            command = command_line("-", self._made, c.characters)
            silent = subprocess.DEVNULL
            streams = dict(stdin=source, stdout=silent, stderr=silent)
            self._process = start_compiler(command, str(self._folder), **streams)
        with suppress(OSError):
            # It yields to the kernels that run meanwhile.
            os.setpriority(os.PRIO_PGRP, self._process.pid, os.nice(0) + POLITE)
        self._end = time.monotonic() + TIMEOUT
        atexit.register(self.stop)
        self._pid = os.getpid()
        STARTED.add(self)

    @classmethod
    def start(cls, c: KernelText) -> BackgroundBuild | None:
        """Starts the compiler; None where another process has it make the same. Raises NoCompiler or OSError."""
        path = object_path(c)
        builds = path.parent.with_name(BUILDS_FOLDER)
        for folder in (path.parent, builds):
            folder.mkdir(parents=True, exist_ok=True)
        remove_left_builds(builds)
        lock = lock_build(builds / f"{path.stem}.lock")
        return None if lock is None else cls(c, path, lock)

    @property
    def is_foreign(self) -> bool:
        """Whether the process that started the compiler has forked this one, which then knows nothing of its end."""
        return self._pid != os.getpid()

    def has_ended(self) -> bool:
        """Whether the object is in its place, or will never be by this process."""
        if self.is_foreign:
            return True
        if self._process.poll() is None and time.monotonic() < self._end:
            return False
        if self._process.returncode == 0:
            # The folder may be gone.
            with suppress(OSError):
                self._made.replace(self.path)
        self.stop()
        return True

    def stop(self) -> None:
        """Ends the compiler, and removes what it has not finished."""
        atexit.unregister(self.stop)
        if self.is_foreign:
            return
        end_compiler(self._process)
        remove_build(self._lock)

    def leave(self) -> None:
        """In a forked process, leaves the compiler and its files to the one that started it."""
        atexit.unregister(self.stop)
        # The process is nobody's to wait for here.
        self._lock.close()
        self._process.returncode = 0


def build_folder(lock: str) -> Path:
    """The folder of the files of a build, beside its lock."""
    return Path(lock).with_suffix("")


def lock_build(path: Path) -> IO[bytes] | None:
    """The lock of a build, which lasts as long as anybody has its file open; None where another process holds it."""
    lock = open(path, "wb")
    with suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Who held it may have removed it meanwhile: then the next one locks another file.
        if os.path.samestat(os.fstat(lock.fileno()), path.stat()):
            return lock
    lock.close()
    return None


def remove_build(lock: IO[bytes]) -> None:
    """Removes the files of a build, and gives up its lock."""
    shutil.rmtree(build_folder(lock.name), ignore_errors=True)
    with suppress(OSError):
        os.unlink(lock.name)
    lock.close()


def remove_left_builds(folder: Path) -> None:
    """Removes what processes have left of their builds that were killed."""
    for path in folder.glob("*.lock"):
        with suppress(OSError):
            if lock := lock_build(path):
                remove_build(lock)


STARTED: weakref.WeakSet[BackgroundBuild] = weakref.WeakSet()
"""The builds of this process."""


def leave_builds() -> None:
    """Leaves those of the process that has forked this one."""
    for started in STARTED:
        started.leave()
    STARTED.clear()


os.register_at_fork(after_in_child=leave_builds)
