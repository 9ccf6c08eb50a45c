"""Indexes the corpus folders of the service. Entries are found by listing, so that no name becomes a path."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from fuzz import corpus
from fuzz.campaign.store.rebuild import entries_in
from fuzz.errors import CorpusError, one_line
from fuzz.escaping import printable
from fuzz.model.entry import Entry

MAX_AGE = 2.0
"""Seconds for which a listing is used again."""


@dataclass(frozen=True)
class IndexedEntry:
    """One entry's file. `key` is its name without the ending, `target` the folder that it stands in."""

    key: str
    target: str
    path: Path
    corpus: Path
    changed: float

    @property
    def relative_path(self) -> str:
        return printable(self.path.relative_to(self.corpus).as_posix())

    def read(self) -> tuple[Entry | None, str]:
        """The entry as it was when it was listed, or None and what is wrong with its file. What fails is read again."""
        try:
            return read_entry(self), ""
        except CorpusError as error:
            return None, one_line(error)


@lru_cache(maxsize=4096)
def read_entry(indexed: IndexedEntry) -> Entry:
    return corpus.read(indexed.path)


@dataclass
class CorpusIndex:
    """The entries of some folders, by key; of entries with one key, which are one case, the first folder's.

    `list_folders` names the folders, which may change while the service runs.
    """

    list_folders: Callable[[], Iterable[Path]]
    listed: dict[str, IndexedEntry] = field(default_factory=dict)
    listed_at: float = float("-inf")
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def folders(self) -> tuple[Path, ...]:
        """Each folder once."""
        return tuple({folder.resolve(): folder for folder in self.list_folders()}.values())

    def entries(self) -> dict[str, IndexedEntry]:
        """Every entry by its key, in order of target and name."""
        with self.lock:
            if time.monotonic() - self.listed_at > MAX_AGE:
                found = {entry.key: entry for entry in reversed(list(self._list()))}
                self.listed = dict(sorted(found.items(), key=lambda item: (item[1].target, item[0])))
                self.listed_at = time.monotonic()
            return self.listed

    def _list(self) -> Iterator[IndexedEntry]:
        """The entries of all folders, those of the first folder first."""
        for folder in self.folders:
            for path in entries_in(folder):
                with suppress(OSError):
                    names = printable(path.stem), printable(path.parent.name)
                    yield IndexedEntry(*names, path, folder, path.stat().st_mtime)

    def invalidate(self) -> None:
        """Makes the next call list the folders again."""
        self.listed_at = float("-inf")
