"""Keeps the shared objects that the C compiler makes of kernels, and has it make them in the background."""

from __future__ import annotations

import atexit
import ctypes
import errno
import fcntl
import hashlib
import os
import re
import subprocess
import tempfile
import time
import weakref
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import IO

from triton import knobs

from fuzz.backends.cpu.compilers.compiler import TIMEOUT, build, command_line, version
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
        # Not the name of `build_object`, which may make the same meanwhile.
        self._made = path.with_suffix(f".{os.getpid()}-background")
        with tempfile.TemporaryFile() as source:
            source.write(c.text.encode())
            source.seek(0)
            command = command_line("-", self._made, c.characters)
            silent = subprocess.DEVNULL
            self._process = subprocess.Popen(command, stdin=source, stdout=silent, stderr=silent)
        with suppress(OSError):
            # It yields to the kernels that run meanwhile; what it starts inherits this.
            os.setpriority(os.PRIO_PROCESS, self._process.pid, os.nice(0) + POLITE)
        self._end = time.monotonic() + TIMEOUT
        atexit.register(self.stop)
        self._pid = os.getpid()
        STARTED.add(self)

    @classmethod
    def start(cls, c: KernelText) -> BackgroundBuild | None:
        """Starts the compiler; None where another process has it make the same. Raises NoCompiler or OSError."""
        path = object_path(c)
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = open(path.with_suffix(".lock"), "wb")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return cls(c, path, lock)
        except BlockingIOError:
            lock.close()
            return None

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
        self._process.kill()
        self._process.wait()
        with suppress(OSError):
            self._made.unlink(missing_ok=True)
            os.unlink(self._lock.name)
        self._lock.close()

    def leave(self) -> None:
        """In a forked process, leaves the compiler and its files to the one that started it."""
        atexit.unregister(self.stop)
        # The lock is held as long as anybody has its file open. The process is nobody's to wait for here.
        self._lock.close()
        self._process.returncode = 0


STARTED: weakref.WeakSet[BackgroundBuild] = weakref.WeakSet()
"""The builds of this process."""


def leave_builds() -> None:
    """Leaves those of the process that has forked this one."""
    for started in STARTED:
        started.leave()
    STARTED.clear()


os.register_at_fork(after_in_child=leave_builds)
