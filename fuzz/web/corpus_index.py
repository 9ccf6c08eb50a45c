"""Indexes the corpus folders of the service. Entries are found by listing, so that no name becomes a path."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from fuzz import corpus
from fuzz.errors import CorpusError
from fuzz.model.entry import Entry

FRESH = 2.0
"""Seconds for which a listing is taken as it is."""


@dataclass(frozen=True)
class IndexedEntry:
    """One entry's file. `key` is its name without the ending, `target` the folder that it stands in."""

    key: str
    target: str
    path: Path
    corpus: Path
    changed: float


@dataclass
class CorpusIndex:
    """The entries of some folders, by key; of entries with one key, which are one case, the first folder's.

    `places` names the folders, which may change while the service runs.
    """

    places: Callable[[], Iterable[Path]]
    listed: dict[str, IndexedEntry] = field(default_factory=dict)
    at: float = float("-inf")
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def folders(self) -> tuple[Path, ...]:
        """Each folder once."""
        return tuple({place.resolve(): place for place in self.places()}.values())

    def books(self) -> dict[str, IndexedEntry]:
        """Every entry by its key, in order of target and name."""
        with self.lock:
            if time.monotonic() - self.at > FRESH:
                self.listed = {book.key: book for book in sorted(self._list(), key=lambda one: (one.target, one.key))}
                self.at = time.monotonic()
            return self.listed

    def _list(self) -> Iterable[IndexedEntry]:
        found: dict[str, IndexedEntry] = {}
        for folder in self.folders:
            for path in corpus.entry_files([folder]) if folder.is_dir() else ():
                book = self._book(folder, path)
                if book is not None:
                    found.setdefault(book.key, book)
        return found.values()

    def _book(self, folder: Path, path: Path) -> IndexedEntry | None:
        """The file as an entry; None for one that is a link out of the folder, or gone by now."""
        try:
            if not path.resolve().is_relative_to(folder.resolve()):
                return None
            return IndexedEntry(path.stem, path.parent.name, path, folder, path.stat().st_mtime)
        except OSError:
            return None

    def find(self, key: str) -> IndexedEntry | None:
        return self.books().get(key)

    def forget(self) -> None:
        """Lists anew at the next look."""
        self.at = float("-inf")


def entry_of(book: IndexedEntry) -> tuple[Entry | None, str]:
    """(the entry, or what is wrong with its file)."""
    try:
        return corpus.read(book.path), ""
    except CorpusError as error:
        return None, str(error)
