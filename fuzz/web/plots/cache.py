"""PlotCache: plots and scripts of entries, made in a worker when they are asked for and kept for the next time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field

from fuzz.errors import UsageError, one_line
from fuzz.web.corpus_index import IndexedEntry, entry_of
from fuzz.web.plots.client import studies
from fuzz.web.plots.data import PlotData
from fuzz.web.plots.protocol import PlotConfig, PlotRequest, PlotResult
from fuzz.worker.process import InternalError

KEPT = 256
"""Studies that are kept; the ones longest unseen go first."""
BUSY = 60.0
"""Seconds that a request waits for the one before it."""


@dataclass
class PlotCache:
    """Draws one entry at a time."""

    gallery: PlotConfig
    kept: OrderedDict[tuple[str, float], PlotResult] = field(default_factory=OrderedDict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def study(self, book: IndexedEntry, repeat: str) -> PlotResult:
        """What is drawn of an entry, from before where its file is still the same."""
        name = str(book.path), book.changed
        known = self.kept.get(name)
        if known is not None:
            return known
        if not self.lock.acquire(timeout=BUSY):
            return PlotResult(PlotData(why="other entries are being drawn; try again in a minute"))
        try:
            return self.kept.get(name) or self._made(name, book, repeat)
        finally:
            self.lock.release()

    def _made(self, name: tuple[str, float], book: IndexedEntry, repeat: str) -> PlotResult:
        entry, wrong = entry_of(book)
        if entry is None:
            return PlotResult(PlotData(why=wrong))
        try:
            (made,) = studies([PlotRequest(book.path, entry, repeat)], self.gallery)
        except (UsageError, InternalError) as error:
            return PlotResult(PlotData(why=f"nothing to draw: {one_line(error)[-300:]}"))
        self.kept[name] = made
        while len(self.kept) > KEPT:
            self.kept.popitem(last=False)
        return made
