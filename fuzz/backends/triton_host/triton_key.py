"""Keeps Triton's key, the hash of its own files that is part of every kernel's key: computing it reads all of them."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import triton
from triton.runtime import cache

from fuzz.cache import cache_folder
from fuzz.files import read_file, write_file

LARGEST = 1 << 16
"""Bytes of a kept key."""


def keep_triton_key() -> None:
    """Has this process take the key that was kept for these files of Triton, or computes and keeps it.

    `triton_key` is private to Triton: where it has moved, nothing changes.
    """
    compute: Callable[[], str] | None = getattr(cache, "triton_key", None)
    if compute is not None:
        key = kept_key(compute)
        cache.triton_key = lambda: key


def kept_key(compute: Callable[[], str]) -> str:
    """The key in the cache folder, else the computed one, which is kept there if the folder can be written."""
    path = key_path()
    with suppress(OSError, UnicodeError):
        if key := read_file(path, LARGEST).decode("ascii"):
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
