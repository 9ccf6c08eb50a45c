"""Keeps the object files that the in-process compiler makes of kernels: a later process only links them."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

from fuzz.backends.cpu.compilers.compiler import source_hash
from fuzz.backends.cpu.compilers.kernel_text import KernelText
from fuzz.backends.cpu.compilers.objects import kept_path
from fuzz.backends.cpu.compilers.tiny_compiler import MachineCode, compile_object, library_hash, link_object
from fuzz.files import replace_file

DIGEST = 32
"""The bytes at a file's end that are the hash of its name and its other bytes."""


def load_quick(c: KernelText, name: str) -> MachineCode:
    """The machine code of a kernel's C, from the object file that is kept, or one that is made and kept.

    Raises NoCompiler where the library is missing, or CompilerFailed.
    """
    path = quick_path(c)
    data = read_object(path)
    if data is None:
        data = compile_object(c.text, name)
        keep_object(path, data)
    return link_object(data, name)


def quick_path(c: KernelText) -> Path:
    """Where the object file of a kernel's C is kept. NoCompiler where the library is missing."""
    return kept_path(f"{library_hash()}-{source_hash()}", c, ".o")


def read_object(path: Path) -> bytes | None:
    """A kept object file; None where there is none, or another one or a part of it stands there."""
    with suppress(OSError):
        data = path.read_bytes()
        if digest(path, data[:-DIGEST]) == data[-DIGEST:]:
            return data[:-DIGEST]
    return None


def keep_object(path: Path, data: bytes) -> None:
    """Keeps an object file, if the folder can be written."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, data + digest(path, data))


def digest(path: Path, data: bytes) -> bytes:
    return hashlib.sha256(path.name.encode() + data).digest()
