"""Gives hosts that do not see the campaign's files what they read, and keeps what they write.

The other end is `host_channel`. A finding is written into the campaign's corpus and a line of a journal into the
campaign's journal, so that a host that is lost with its machine costs what one that is killed costs: its slice, from
where it last reported to stand. Nothing that a host sends is taken for a path: what it may write follows from its
request.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from fuzz import corpus
from fuzz.campaign import protocol
from fuzz.campaign.hosts.hosts import Hosts
from fuzz.campaign.journal import Journal, note_saved
from fuzz.campaign.protocol import EntrySaved, Files, HostEvent, Message, Replay, Request, Slice
from fuzz.campaign.state import target_name
from fuzz.corpus import codec
from fuzz.errors import CorpusError, UsageError
from fuzz.target.loader import locate
from fuzz.worker.python_process import HostProcess

LARGEST_SOURCES = 32 << 20
"""Characters of all Python files beside a target's file, at most."""


@dataclass
class LockQueue:
    """Grants the lock of a folder to one host after another, in the order in which they asked."""

    grant: Callable[[int, int, Path], None]
    _waiting: dict[Path, deque[tuple[int, int]]] = field(default_factory=dict)
    _held: dict[Path, ExitStack] = field(default_factory=dict)

    def request(self, host: int, number: int, folder: Path) -> None:
        self._waiting.setdefault(folder, deque()).append((host, number))
        self._grant_next(folder)

    def release(self, host: int) -> None:
        """Takes a host's locks, and its requests for them, away."""
        for folder, waiting in self._waiting.items():
            if folder in self._held and waiting[0][0] == host:
                self._held.pop(folder).close()
            self._waiting[folder] = deque(request for request in waiting if request[0] != host)
            self._grant_next(folder)

    def _grant_next(self, folder: Path) -> None:
        if folder not in self._held and self._waiting[folder]:
            self._held[folder] = ExitStack()
            self._held[folder].enter_context(corpus.lock(folder))
            self.grant(*self._waiting[folder][0], folder)


class RemoteHosts(Hosts):
    """Hosts without the campaign's files."""

    def __init__(self, folder: Path, launch: Callable[[], HostProcess]) -> None:
        super().__init__(folder, launch)
        self._requests: dict[int, Request] = {}
        self._journals: dict[int, Journal] = {}
        self._sources: dict[int, dict[str, dict[str, str]]] = {}
        self._refused: deque[tuple[int, HostEvent]] = deque()
        self._locks = LockQueue(lambda host, lock, folder: self.write(host, Files(_entry_texts(folder), lock)))

    def close(self) -> None:
        super().close()
        for number in list(self._requests):
            self.forget(number)

    def send(self, number: int, request: Request) -> None:
        """Sends a request with every file that it needs."""
        self._release_journal(number)
        self._requests[number] = request
        if isinstance(request, Slice):
            self._journals[number] = Journal(Path(request.journal))
        try:
            self.write(number, *self._pack(number, request))
        except UsageError as error:
            self._refused += [(number, protocol.Refused(str(error))), (number, protocol.Ready())]

    def _pack(self, number: int, request: Request) -> tuple[Message, Message]:
        """The files that a request needs and the host does not have, and the request."""
        folders, target = _request_files(request), request.target
        if ".py:" in target or target.endswith(".py"):
            file, name = locate(target)
            sent, sources = self._sources.setdefault(number, {}), python_sources(file)
            if sent.get(str(file.parent)) != sources:
                sent[str(file.parent)] = folders[str(file.parent)] = sources
            target = f"{file}:{name}" if name else str(file)
        return Files(folders), replace(request, target=target)

    def receive(self, seconds: float) -> Iterator[tuple[int, HostEvent]]:
        while self._refused:
            yield self._refused.popleft()
        for number, event in super().receive(seconds):
            try:
                event_of_campaign = self._keep_files(number, event)
            except CorpusError as error:
                event_of_campaign = protocol.Unwritable(str(error))
            if event_of_campaign is not None:
                yield number, event_of_campaign

    def _keep_files(self, number: int, event: HostEvent) -> HostEvent | None:
        """Writes what an event brings; the event for the campaign, if it is one."""
        request = self._requests.get(number)
        if isinstance(event, protocol.HostDied):
            self.forget(number)
        if not isinstance(request, Slice):
            return event
        match event:
            case EntrySaved():
                return _save_entry(request, event)
            case protocol.JournalLine(""):
                self._journals[number].close()
            case protocol.JournalLine(line):
                self._journals[number].write_line(line)
            case protocol.LockRequest(lock):
                self._locks.request(number, lock, _entry_folder(request))
            case protocol.LockRelease():
                self._locks.release(number)
            case protocol.SuspectCleared(path) if path not in request.suspects:
                pass
            case _:
                return event
        return None

    def forget(self, number: int) -> None:
        """Lets go of the locks and the journal's file of a host that has ended."""
        self._release_journal(number)
        self._requests.pop(number, None)
        self._sources.pop(number, None)
        self._locks.release(number)

    def _release_journal(self, number: int) -> None:
        with suppress(KeyError):
            self._journals.pop(number).release()


def _save_entry(request: Slice, event: EntrySaved) -> EntrySaved:
    """Writes an entry that a host has saved, in the place of the one that it replaces."""
    entry, folder = codec.loads(event.text.encode()), _entry_folder(request)
    if entry.case.target != folder.name:
        raise CorpusError(f"a host that runs {folder.name} sent a finding of {entry.case.target}")
    previous = folder / Path(event.replaced).name if event.replaced else None
    place = corpus.find_place(folder, entry)
    if (previous or not event.known) and not place.exists():
        note_saved(Path(request.saved), place.name, previous.name if previous else "")
    path = corpus.save_entry(Path(request.corpus), entry, previous)
    for name in event.removed:
        # It was filed as another cause before it showed that both are one.
        (folder / Path(name).name).unlink(missing_ok=True)
    return replace(event, text="", removed=(), path=str(path), replaced=str(previous or ""))


def _request_files(request: Request) -> dict[str, dict[str, str]]:
    """Folder -> name -> text of all that a request names."""
    if isinstance(request, Replay):
        return _texts(map(Path, request.paths))
    assert isinstance(request, Slice)
    return {**_texts(map(Path, request.suspects)), **_entry_texts(_entry_folder(request))}


def _entry_folder(request: Slice) -> Path:
    return Path(request.corpus) / target_name(request)


def _texts(paths: Iterable[Path]) -> dict[str, dict[str, str]]:
    """Folder -> name -> text of files that can be read."""
    folders: dict[str, dict[str, str]] = {}
    for path in paths:
        text = _text(path)
        folders.setdefault(str(path.parent), {}).update({} if text is None else {path.name: text})
    return folders


def _entry_texts(folder: Path) -> dict[str, dict[str, str]]:
    return {str(folder): {}, **_texts(sorted(folder.glob("[!.]*.yaml")))}


def _text(path: Path) -> str | None:
    """A file's text; None where it is gone or cannot be read: the host that needs it reports that."""
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None


def python_sources(file: Path) -> dict[str, str]:
    """Name -> text of the Python files that a target's file may import: all beside it and below.

    Hidden folders and environments are left out. UsageError where there is too much to send.
    """
    sources: dict[str, str] = {}
    size = 0
    for folder, below, names in os.walk(file.parent, followlinks=True):
        below[:] = (one for one in below if not one.startswith((".", "__pycache__")))
        below[:] = (one for one in below if not Path(folder, one, "pyvenv.cfg").exists())
        for path in (Path(folder, name) for name in names if name.endswith(".py")):
            text = sources[str(path.relative_to(file.parent))] = _text(path) or ""
            size += len(text)
            if size > LARGEST_SOURCES:
                many = f"{file.parent} holds too much Python to send to workers"
                raise UsageError(f"{many}; give targets their own folder")
    return sources
