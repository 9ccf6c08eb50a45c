"""Finds the folder that keeps what later runs need not make again, and bounds its size.

FUZZ_CACHE names it; Triton's compiled kernels are then in it as well. Machines of one kind may share it, and continuous
integration may keep it.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fuzz.errors import UsageError

DEFAULT_MB = 2048
"""Megabytes that the folder of FUZZ_CACHE may hold where FUZZ_CACHE_MB does not say another number."""
KEPT = 0.8
"""The share of the bound down to which a folder that exceeds it is emptied."""
IN_USE_SECONDS = 3600.0
"""What was used in the last so many seconds stays: a process may be reading it."""


@dataclass(frozen=True, order=True)
class CacheItem:
    """A file or folder that is removed as a whole: when it was last used, its bytes and its path."""

    used: float
    size: int
    path: Path


def cache_folder() -> Path:
    """FUZZ_CACHE, or the user's folder for caches."""
    if named := os.environ.get("FUZZ_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "triton-differential-fuzz"


def use_cache_folder() -> None:
    """Has Triton keep its kernels in FUZZ_CACHE, where that is set. UsageError for a bound that is no number."""
    if "FUZZ_CACHE" in os.environ:
        cache_bytes()
        os.environ.setdefault("TRITON_CACHE_DIR", str(cache_folder().resolve() / "triton"))


def cache_bytes() -> int:
    """The bound on the folder of FUZZ_CACHE, in bytes."""
    text = os.environ.get("FUZZ_CACHE_MB") or str(DEFAULT_MB)
    if not text.isdecimal():
        raise UsageError(f"FUZZ_CACHE_MB={text}: give a whole number of megabytes, such as {DEFAULT_MB}")
    return int(text) << 20


def prune_cache() -> None:
    """Removes from the folder of FUZZ_CACHE, where it exceeds its bound, what was not used for longest."""
    if "FUZZ_CACHE" not in os.environ:
        return
    items = sorted(cache_items(cache_folder()))
    total, bound = sum(item.size for item in items), cache_bytes()
    if total <= bound:
        return
    for item in items:
        if total <= KEPT * bound or item.used > time.time() - IN_USE_SECONDS:
            break
        with suppress(OSError):  # Another user may have written it, or another process have removed it.
            shutil.rmtree(item.path) if item.path.is_dir() else item.path.unlink()
        if not os.path.lexists(item.path):
            total -= item.size


def cache_items(folder: Path) -> list[CacheItem]:
    """Triton's folder of each kernel, and every other file. What cannot be read is left out."""
    items = []
    for path in paths_in(folder):
        if path.name in ("triton", "cpu-kernels"):
            items += cache_items(path)
        elif state := state_of(path):
            inside = paths_in(path) if stat.S_ISDIR(state.st_mode) else [path]
            files = [file for file in map(state_of, inside) if file]
            # Into a folder that was just made a process may be compiling.
            used = max(state.st_mtime, *(max(file.st_atime, file.st_mtime) for file in files), 0.0)
            items.append(CacheItem(used, sum(file.st_size for file in files), path))
    return items


def paths_in(folder: Path) -> list[Path]:
    """What is in a folder; nothing where it cannot be read."""
    with suppress(OSError):
        return list(folder.iterdir())
    return []


def state_of(path: Path) -> os.stat_result | None:
    """The state of a file or folder; None where it is gone, or a link that leads nowhere."""
    with suppress(OSError):
        return path.stat()
    return None
