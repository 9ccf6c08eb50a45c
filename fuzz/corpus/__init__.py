"""Keeps seeds and findings as text files in a folder that belongs in git."""

from fuzz.corpus.folder import add, check_writable, entry_files, lock, mark, read, save, sync, write

__all__ = ["add", "check_writable", "entry_files", "lock", "mark", "read", "save", "sync", "write"]
