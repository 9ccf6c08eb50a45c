"""Replaces Triton's key, the hash of its own files that is part of every kernel's key: computing it reads all of them.

Where an installer has written their hashes, and no file has changed since, the key is the hash of these. Otherwise it
is computed once, and kept.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import triton
from triton.runtime import cache

from fuzz.cache import cache_folder
from fuzz.files import read_file, write_file

LARGEST_KEY = 1 << 16
"""Bytes of a kept key."""


def keep_triton_key() -> None:
    """Has this process take the key of the installer's hashes, or that which was kept, or computes and keeps it.

    `triton_key` is private to Triton: where it has moved, nothing changes.
    """
    compute: Callable[[], str] | None = getattr(cache, "triton_key", None)
    if compute is not None:
        key = recorded_key() or kept_key(compute)
        cache.triton_key = lambda: key


def recorded_key() -> str:
    """The hash of the hashes that the installer wrote; empty where it wrote none, or a file may have changed since."""
    folder = Path(triton.__file__).resolve().parent
    for record in folder.parent.glob("triton-*.dist-info/RECORD"):
        with suppress(OSError, UnicodeError):
            lines = record.read_text(encoding="utf-8").splitlines()
            hashes = {path: rest for path, _, rest in (line.partition(",") for line in lines)}
            files = {path.relative_to(folder.parent).as_posix(): path.stat() for path in triton_files()}
            written = record.stat().st_mtime_ns
            if all(is_recorded(hashes.get(name, ""), state, written) for name, state in files.items()):
                return hashlib.sha256("\n".join(f"{name},{hashes[name]}" for name in files).encode()).hexdigest()
    return ""


def is_recorded(entry: str, state: os.stat_result, written: int) -> bool:
    """Whether an entry ``sha256=HASH,SIZE``, of a record that was written then, is of a file in this state."""
    known, _, size = entry.partition(",")
    return known.startswith("sha256=") and size == str(state.st_size) and state.st_mtime_ns <= written


def kept_key(compute: Callable[[], str]) -> str:
    """The key in the cache folder, else the computed one, which is kept there if the folder can be written."""
    path = key_path()
    with suppress(OSError, UnicodeError):
        if key := read_file(path, LARGEST_KEY).decode("ascii"):
            return key
    key = compute()
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, key)
    return key


def key_path() -> Path:
    """Where the key is kept: a file whose name changes with the path, size and time of change of any file of Triton."""
    states = ((path, path.stat()) for path in triton_files())
    lines = [sys.version, *(f"{path} {state.st_size} {state.st_mtime_ns}" for path, state in states)]
    digest = hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()
    return cache_folder() / f"triton-key-{digest[:32]}"


def triton_files() -> Iterator[Path]:
    """The files of the installed Triton that its key may depend on."""
    folder = Path(triton.__file__).resolve().parent
    yield from sorted(path for path in folder.rglob("*.py") if path.is_file())
    yield from sorted(path for path in (folder / "_C").glob("*") if path.is_file())
