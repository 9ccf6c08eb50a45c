"""Keeps seeds and findings as text files in a folder that belongs in git."""

from fuzz.corpus.folder import (
    check_size,
    check_writable,
    entry_files,
    find_place,
    lock,
    mark,
    read,
    read_bytes,
    save_entry,
    save_in_folder,
    update,
    write,
)

__all__ = [
    "check_size",
    "check_writable",
    "entry_files",
    "find_place",
    "lock",
    "mark",
    "read",
    "read_bytes",
    "save_entry",
    "save_in_folder",
    "update",
    "write",
]
