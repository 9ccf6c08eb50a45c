"""Says what this machine lacks where an error comes of that, and not of the kernel: memory, a device, files."""

from __future__ import annotations

import errno
import os
import re
import resource
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from fuzz.errors import message_of, one_line
from fuzz.worker.system import resident, total_memory

if TYPE_CHECKING:
    from fuzz.backends.base import Backend

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.ENFILE)
"""Errors of files that depend on the machine alone: its disks, their quotas, and how many files may be open."""
ALLOCATOR = "can't allocate memory"
"""What torch's allocator of the processor's memory says, in a RuntimeError."""
REQUESTED = re.compile(
    r"(?:[Tt]ried to allocate|Unable to allocate|No memory for) ([\d.]+) (bytes|KiB|MiB|GiB|TiB)", re.ASCII
)
UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
COMPILERS = ("fuzz", "triton")
"""Packages whose modules write and read the cache of compiled kernels."""
SPARE = 64 << 20
"""Bytes that a machine keeps free for its own."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory of any kind ran out."""
    # torch's own error for a device, by its name: where torch is missing nothing raises it.
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    refused = isinstance(error, RuntimeError) and ALLOCATOR in message_of(error)
    return refused or getattr(error, "errno", None) == errno.ENOMEM


def requested_bytes(message: str) -> float:
    """The bytes that an allocation asked for, as the message of its error says; 0 where it does not."""
    found = REQUESTED.search(message)
    return float(found[1]) * UNITS[found[2]] if found else 0.0


def describe_shortage(error: BaseException, backend: Backend) -> str:
    """What the machine lacks; empty where the error is the kernel's, or that is not known."""
    if backend.is_unusable(error):
        return f"the device cannot be used: {one_line(error)}"
    if reason := backend.external_oom_reason(error):
        return f"no memory is left here: {reason}"
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        return f"this machine has no room: {one_line(error)}"
    if isinstance(error, OSError) and is_of_cache(error):
        return f"Triton's cache cannot be used: {one_line(error)}"
    return ""


def describe_lack(error: BaseException, backend: Backend, task: str) -> str:
    """What lacks for a task of this package's own, memory of any kind included; empty where that is not the reason."""
    lacking = describe_shortage(error, backend)
    return f"no room to {task}: {one_line(error)}" if not lacking and is_out_of_memory(error) else lacking


def is_of_cache(error: OSError) -> bool:
    """Whether the compiler missed a file in the cache of compiled kernels, which other processes empty meanwhile.

    What a launcher keeps there, and looks for itself, is its own affair.
    """
    from triton import knobs

    for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if package not in sys.stdlib_module_names:
            if package not in COMPILERS:
                return False
            break

    folder = knobs.cache.dir
    names = (name for name in (error.filename, error.filename2) if folder and isinstance(name, str))
    return any(Path(name).absolute().is_relative_to(Path(folder).absolute()) for name in names)


def describe_full_memory(error: BaseException) -> str:
    """Why the processor's memory ran out though the request would fit on the machine, were this process alone there."""
    total = total_memory()
    needed = resident(os.getpid()) + requested_bytes(message_of(error))
    if not is_out_of_memory(error) or needed > total:
        return ""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        return f"a process may have {limit >> 20} MiB of addresses (ulimit -v)"
    free = available_memory()
    if requested_bytes(message_of(error)) + SPARE > free:
        return f"of the machine's {total >> 20} MiB only {free >> 20} are free"
    return ""


def available_memory() -> int:
    """Bytes of this machine's memory that are free or can be freed."""
    text = Path("/proc/meminfo").read_text("ascii")
    found = re.search(r"^MemAvailable: +(\d+) kB", text, re.MULTILINE)
    return int(found[1]) << 10 if found else total_memory()
