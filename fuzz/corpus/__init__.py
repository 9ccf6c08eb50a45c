"""Corpus: the folder of cases on disk, seeds and findings, as text in git."""

from fuzz.corpus.folder import add, check_writable, entry_files, lock, mark, read, sync, write

__all__ = ["add", "check_writable", "entry_files", "lock", "mark", "read", "sync", "write"]
