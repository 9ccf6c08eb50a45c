"""Reads and sets what Linux knows of processes: their memory, their children, and what ends with them."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing import current_process, forkserver, util
from multiprocessing.util import get_temp_dir
from pathlib import Path
from types import ModuleType

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
POLITE = 5
"""How much niceness a process that compiles for later adds, so that it yields to others."""
KEPT_BYTES, KEPT_BLOCK_BYTES = 256 << 20, 32 << 20
"""Freed memory that a process keeps for later, and its largest block: glibc allows no larger one."""
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""mallopt's parameters: the freed memory that is kept, and the size from which a block is mapped alone."""
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
"""prctl's options: the signal that a process gets when its parent ends; that orphans below it become its children."""
HUGE_PAGE_BYTES, MADV_COLLAPSE = 2 << 20, 25
"""A huge page of x86-64, and madvise's advice to move memory into huge pages at once, known to Linux from 6.1 on."""
MANY_FORKS = 16
"""A process of 270 MB that has forked so often would have saved by huge pages what they cost: with them, a fork and its
end take a quarter of the processor's time."""
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}
"""Variables for a process that workers are forked from: without them scipy, which libraries import, leaves threads."""
HUGE_PAGES_ALLOWED = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@contextmanager
def blocked_interrupts() -> Iterator[None]:
    """Inside, this thread gets no Ctrl-C, nor does a process that it starts, which has to call `ignore_interrupts`.

    A Python that is starting would end with a traceback.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        # One that came just before is raised from here.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def ignore_interrupts() -> None:
    """Ignores every Ctrl-C in this process: who has started it ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def signal_at_parents_end(number: int) -> None:
    """Has a signal sent to this process when the one that forked it ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)


def adopt_orphans() -> None:
    """Makes every process below this one a child of this one when its own parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def keep_freed_memory() -> None:
    """Has this process use freed memory again: for a block that is mapped alone each page is faulted in and zeroed."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(M_MMAP_THRESHOLD, KEPT_BLOCK_BYTES)
        libc.mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)


def use_huge_pages() -> None:
    """Moves the memory of this process into huge pages, where Linux can and may: a fork then copies fewer entries."""
    with suppress(OSError):
        if "[never]" in HUGE_PAGES_ALLOWED.read_text("ascii"):
            return
        madvise = ctypes.CDLL(None).madvise
        for line in Path("/proc/self/maps").read_text("ascii", "replace").splitlines():
            place, access, _, _, _, *path = line.split(maxsplit=5)
            if access != "rw-p" or path not in ([], ["[heap]"]):
                continue
            start, end = (int(number, 16) for number in place.split("-"))
            first = -(-start // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
            size = end // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES - first
            if size > 0:
                madvise(ctypes.c_void_p(first), ctypes.c_size_t(size), MADV_COLLAPSE)


def use_huge_pages_after(forks: int) -> None:
    """Uses huge pages once this process has forked so often; processes that are forked from it count nothing."""
    left = forks

    def count() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            use_huge_pages()

    def stop() -> None:
        nonlocal left
        left = 0

    os.register_at_fork(after_in_parent=count, after_in_child=stop)


def resident(pid: int) -> int:
    """Bytes of memory that a process holds; 0 where it has ended."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * PAGE_BYTES
    except (OSError, IndexError):
        return 0


def children(pid: int | None = None) -> list[int]:
    """The children of a process, this one by default, that its main thread has or adopted."""
    pid = pid or os.getpid()
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()]
    except OSError:
        return []


def end_children() -> None:
    """Kills every process below this one, of which it adopts the orphans."""
    while left := children():
        for child in left:
            os.kill(child, signal.SIGKILL)
        for child in left:
            os.waitpid(child, 0)


def process_fields(pid: int) -> list[str]:
    """The fields of a process in /proc/PID/stat, from its state on; none where it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        return []


def resume_if_stopped(pid: int) -> None:
    """Lets a process go on that a signal has stopped."""
    if process_fields(pid)[:1] == ["T"]:
        with suppress(OSError):
            os.kill(pid, signal.SIGCONT)


def describe_exit(code: int) -> str:
    """How a process ended that has this exit code, which is below 0 where a signal ended it, as in subprocess."""
    return signal_name(-code) if code < 0 else f"exit status {code}"


def signal_name(number: int) -> str:
    """The name of a signal; Python has none for those between SIGRTMIN and SIGRTMAX, nor for those of the C library."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def oom_kills() -> int:
    """How many processes the system has killed for want of memory since it started; 0 where it does not count them."""
    with suppress(OSError, ValueError):
        for line in Path("/proc/vmstat").read_text("ascii").splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    return 0


def total_memory() -> int:
    """Bytes of memory that this process may share with others: the machine's, or its control group's."""
    total = os.sysconf("SC_PHYS_PAGES") * PAGE_BYTES
    limits = [total]
    for path in _memory_limit_files():
        with suppress(OSError, ValueError):
            limits.append(int(path.read_text("ascii")))
    return min(limits)


def _memory_limit_files() -> list[Path]:
    """The files that hold the limits of this process's control group and of those above it, of both versions."""
    groups = Path("/sys/fs/cgroup")
    files = [groups / "memory.max", groups / "memory/memory.limit_in_bytes"]
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text("ascii").splitlines():
            _, controllers, path = line.split(":", 2)
            parts = Path(path.lstrip("/"))
            above = [parts, *parts.parents]
            if not controllers:
                files += [groups / group / "memory.max" for group in above]
            elif controllers == "memory":
                files += [groups / "memory" / group / "memory.limit_in_bytes" for group in above]
    return files


def use_server_folder(folder: str) -> None:
    """Has the server's socket made in a folder that whoever has made it removes; a process that is killed cannot."""
    vars(current_process())["_config"]["tempdir"] = folder


def restore_server_folder() -> None:
    """Makes the folder again in which the server's socket is.

    A kernel may have deleted it with all other temporary files, and may keep it from being made.
    """
    with suppress(OSError):
        os.makedirs(get_temp_dir(), mode=0o700, exist_ok=True)


def remove_server_folder() -> None:
    """Removes that folder at the end of a program, whatever a kernel has made of it.

    multiprocessing, which would do so, prints a traceback where the folder is gone or a file.
    """
    remove = getattr(util, "_remove_temp_dir", None)
    for finalizer in list(vars(util)["_finalizer_registry"].values()):
        if remove is not None and finalizer._callback is remove:
            finalizer.cancel()
            shutil.rmtree(get_temp_dir(), ignore_errors=True)


def kill_server() -> None:
    """Kills the server that workers are forked from, if there is one; no worker can be started any more."""
    pid = getattr(getattr(forkserver, "_forkserver", None), "_forkserver_pid", None)
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets variables for processes that are started inside."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def without_main() -> Iterator[None]:
    """Keeps a new process from importing the program that is running, which it does not need and may not survive."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
