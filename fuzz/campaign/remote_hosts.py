"""Far: hosts that do not see the campaign's files. What they read travels with requests; what they tell is kept here.

The other end is `away`. A finding is written into the campaign's corpus, a line of a journal into the campaign's
journal, so that a host that is lost with its machine costs what one that is killed costs: its slice, from where it was
last told to stand. Nothing that a host tells is taken for a path: what it may write follows from its request.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fuzz import corpus
from fuzz.campaign.journal import Journal
from fuzz.campaign.local_hosts import Carrier
from fuzz.campaign.protocol import Event, Replay, Request, Slice, line_of
from fuzz.campaign.state import target_name
from fuzz.corpus import codec
from fuzz.errors import CorpusError, UsageError
from fuzz.target.loader import locate

LARGEST = 32 << 20
"""Bytes of all Python files beside a target's file, at most."""


@dataclass
class Turns:
    """Whose turn it is to file a finding in a folder; who has it holds the folder's lock."""

    asked: deque[tuple[int, int]] = field(default_factory=deque)
    lock: ExitStack | None = None


@dataclass
class FarHosts:
    """Hosts behind a carrier."""

    carrier: Carrier
    given: dict[int, Request] = field(default_factory=dict)
    journals: dict[int, Journal] = field(default_factory=dict)
    sources: dict[int, dict[str, dict[str, str]]] = field(default_factory=dict)
    turns: dict[Path, Turns] = field(default_factory=dict)
    refused: deque[tuple[int, Event]] = field(default_factory=deque)
    name: str = ""

    def __post_init__(self) -> None:
        self.name = self.carrier.name

    def start(self, number: int) -> None:
        self.carrier.start(number)

    def interrupt(self, number: int) -> None:
        self.carrier.interrupt(number)

    def kill(self, number: int) -> None:
        self.carrier.kill(number)

    def pid(self, number: int) -> int:
        return self.carrier.pid(number)

    def close(self) -> None:
        self.carrier.close()
        for number in list(self.given):
            self._forget(number)

    def write(self, number: int, data: bytes) -> None:
        self.carrier.write(number, data)

    # Requests.

    def send(self, number: int, request: Request) -> None:
        """Sends a request with every file that it needs."""
        self._leave(number)
        self.given[number] = request
        if isinstance(request, Slice):
            self.journals[number] = Journal(Path(request.journal))
        try:
            data = self._packed(number, request)
        except UsageError as error:
            self.refused += [(number, {"kind": "refused", "why": str(error)}), (number, {"kind": "ready"})]
            return
        self.carrier.write(number, data)

    def _packed(self, number: int, request: Request) -> bytes:
        """The request's line, after one with the files that it needs and the host does not have."""
        folders, target = _folders(request), request.target
        file = target_file(target)
        if file is not None:
            known, sources = self.sources.setdefault(number, {}), beside(file)
            if known.get(str(file.parent)) != sources:
                known[str(file.parent)] = folders[str(file.parent)] = sources
            _, colon, name = target.rpartition(":") if ".py:" in target else ("", "", "")
            target = f"{file}{colon}{name}"
        parcel = {"kind": "parcel", "folders": folders}
        return json.dumps(parcel).encode() + b"\n" + line_of(replace(request, target=target))

    # Events.

    def collect(self, seconds: float) -> Iterator[tuple[int, Event]]:
        """As of any hosts. What only serves that files are kept here ends here."""
        while self.refused:
            yield self.refused.popleft()
        for number, event in self.carrier.collect(seconds):
            try:
                taken = self._take(number, event)
            except CorpusError as error:
                taken = {"kind": "stuck", "why": str(error)}
            if taken is not None:
                yield number, taken

    def _take(self, number: int, event: Event) -> Event | None:
        kind, request = event["kind"], self.given.get(number)
        if kind == "died":
            self._forget(number)
        elif isinstance(request, Slice):
            if kind == "noted":
                self.journals[number].note(event["line"])
                return None
            if kind == "closed":
                self.journals[number].close()
                return None
            if kind in ("turn", "filed"):
                self._on_turn(number, request, event)
                return None
            if kind == "saved":
                return _saved(request, event)
            if kind == "cleared" and event["path"] not in request.suspects:
                return None
        return event

    def _forget(self, number: int) -> None:
        """Lets a host's turns and its journal's file go: it has ended."""
        self._leave(number)
        self.given.pop(number, None)
        self.sources.pop(number, None)
        for folder in list(self.turns):
            self._end_turns(number, folder)

    def _leave(self, number: int) -> None:
        journal = self.journals.pop(number, None)
        if journal is not None:
            journal.leave()

    # Turns.

    def _on_turn(self, number: int, request: Slice, event: Event) -> None:
        if event["kind"] == "filed":
            for folder in list(self.turns):
                self._end_turns(number, folder)
            return
        folder = _place(request)
        turns = self.turns.setdefault(folder, Turns())
        turns.asked.append((number, event["number"]))
        self._next_turn(folder)

    def _end_turns(self, number: int, folder: Path) -> None:
        turns = self.turns[folder]
        if turns.lock is not None and turns.asked[0][0] == number:
            turns.lock.close()
            turns.lock = None
        turns.asked = deque(one for one in turns.asked if one[0] != number)
        self._next_turn(folder)

    def _next_turn(self, folder: Path) -> None:
        """Gives the turn to the one who asked first, with what the folder holds now."""
        turns = self.turns[folder]
        if turns.lock is not None or not turns.asked:
            return
        number, turn = turns.asked[0]
        turns.lock = ExitStack()
        turns.lock.enter_context(corpus.lock(folder))
        reply = {"kind": "turn", "number": turn, "folders": {str(folder): _texts(folder)}}
        self.carrier.write(number, json.dumps(reply).encode() + b"\n")


def _saved(request: Slice, event: Event) -> Event:
    """Writes an entry that a host tells of, in the place of the one that it replaces."""
    entry, folder = codec.loads(event["text"].encode()), _place(request)
    if entry.case.target != folder.name:
        raise CorpusError(f"a host that runs {folder.name} told of a finding of {entry.case.target}")
    previous = folder / Path(event["replaced"]).name if event["replaced"] else None
    path = corpus.add(Path(request.corpus), entry, previous)
    for name in event["gone"]:
        # It was filed as another cause before it showed that both are one.
        (folder / Path(name).name).unlink(missing_ok=True)
    told: dict[str, Any] = {key: value for key, value in event.items() if key not in ("text", "gone")}
    return told | {"path": str(path), "replaced": str(previous or "")}


def _folders(request: Request) -> dict[str, dict[str, str]]:
    """Folder -> name -> text of all that a request names."""
    if isinstance(request, Replay):
        return _by_folder(request.paths)
    place = _place(request)
    return {**_by_folder(request.suspects), str(place): _texts(place)}


def _place(request: Slice) -> Path:
    """The folder of a slice's entries."""
    return Path(request.corpus) / target_name(request)


def _by_folder(paths: Iterable[str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        text = _text(Path(path))
        found.setdefault(folder, {}).update({} if text is None else {name: text})
    return found


def _texts(folder: Path) -> dict[str, str]:
    """The entries of a folder."""
    found = {path.name: _text(path) for path in sorted(folder.glob("[!.]*.yaml"))}
    return {name: text for name, text in found.items() if text is not None}


def _text(path: Path) -> str | None:
    """A file's text; None where it is gone by now, or cannot be read: whoever needs it tells."""
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None


def target_file(target: str) -> Path | None:
    """The file of a target that is not installed with this package."""
    return locate(target)[0] if ".py:" in target or target.endswith(".py") else None


def beside(file: Path) -> dict[str, str]:
    """Name -> text of the Python files that a target's file may import: all beside it and below.

    Hidden folders and environments are left out. UsageError where there is too much to send.
    """
    found: dict[str, str] = {}
    size = 0
    for path in _python(file.parent):
        text = _text(path) or ""
        found[str(path.relative_to(file.parent))] = text
        size += len(text)
        if size > LARGEST:
            raise UsageError(f"{file.parent} holds too much Python to send to workers; give targets their own folder")
    return found


def _python(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.name.startswith((".", "__pycache__")) and not (path / "pyvenv.cfg").exists():
            yield from _python(path)
        elif path.suffix == ".py":
            yield path
