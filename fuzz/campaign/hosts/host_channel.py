"""Connects a host with its campaign, whether or not it sees the campaign's files.

A remote host sees none of them. Every file that it reads comes as a Files message, and lies below a folder of its own
at the path that it has at the campaign's. What it writes there travels back as events, so that the campaign writes it
at the same path.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fuzz import corpus
from fuzz.campaign import protocol
from fuzz.campaign.protocol import EntrySaved, Files, Folders, HostEvent, Request, decode, encode


@dataclass
class HostChannel:
    """Sends events, from any thread, and reads requests. The files of a remote host lie below `root`."""

    pipe: Connection[Any, Any]
    root: Path | None = None
    _files: dict[Path, dict[str, str]] = field(default_factory=dict)
    _locks: int = 0
    _writing: Any = field(default_factory=threading.Lock)

    def send(self, event: HostEvent) -> None:
        if self.root is not None and isinstance(event, EntrySaved):
            text, removed = self._changes(Path(event.path))
            event = replace(event, text=text, removed=removed)
        data = encode(event)
        if self.root is not None:
            # Paths and messages name the campaign's own paths.
            data = data.replace(str(self.root).encode(), b"")
        with self._writing:
            self.pipe.send_bytes(data)

    def requests(self) -> Iterator[Request]:
        """Requests as they come; ends with the campaign."""
        for message in self._messages():
            if isinstance(message, Files):
                # A lock that was granted when nobody waited for it any more has been released already.
                self._unpack(message.folders)
            else:
                yield replace(message, **{key: self._localize(value) for key, value in vars(message).items()})

    def _messages(self) -> Iterator[Any]:
        with suppress(EOFError):
            while True:
                yield decode(self.pipe.recv_bytes())

    def _localize(self, value: Any) -> Any:
        """Where a file of the campaign's lies here; a value that is no path stays as it is."""
        if isinstance(value, tuple):
            return tuple(map(self._localize, value))
        if self.root is None or not isinstance(value, str) or not value.startswith("/"):
            return value
        return str(self.root / value.lstrip("/"))

    def _unpack(self, folders: Folders) -> None:
        """Makes each folder hold these files, and none of those that it held before."""
        for name, files in folders.items():
            folder = Path(self._localize(name))
            for gone in self._files.get(folder, {}).keys() - files.keys():
                (folder / gone).unlink(missing_ok=True)
            for file, text in files.items():
                path = folder / file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8", errors="surrogateescape")
            self._files[folder] = dict(files)

    def _changes(self, path: Path) -> tuple[str, tuple[str, ...]]:
        """(the text of an entry that was written, the names that its folder has no more)."""
        before = self._files.get(path.parent, {})
        now = {entry.name: entry.read_text(encoding="utf-8") for entry in path.parent.glob("[!.]*.yaml")}
        self._files[path.parent] = now
        return now[path.name], tuple(sorted(before.keys() - now.keys()))

    def copy_journal_line(self, line: str) -> None:
        if self.root is not None:
            self.send(protocol.JournalLine(line))

    @contextmanager
    def lock(self, folder: Path) -> Iterator[None]:
        """Keeps all others from filing a finding in a target's folder of the corpus."""
        if self.root is None:
            with corpus.lock(folder):
                yield
            return
        self._locks += 1
        self.send(protocol.LockRequest(self._locks))
        try:
            for message in self._messages():
                # What others filed meanwhile.
                self._unpack(message.folders)
                if message.lock == self._locks:
                    break
            else:
                raise SystemExit(0)  # The campaign is gone.
            yield
        finally:
            self.send(protocol.LockRelease())
