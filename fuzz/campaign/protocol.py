"""Defines the messages between a campaign and its hosts: requests one way, events the other, each a line of JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

Folders = Mapping[str, Mapping[str, str]]
"""Path of a folder -> name of a file in it -> text. A name may lie deeper."""


@dataclass(frozen=True)
class Slice:
    """A stretch of fuzzing of one job. `suspects` are files of cases that run first; `cases` is a limit, or None."""

    target: str
    planted: str
    backend: str
    engine: str
    seed: int
    plan: int
    case: int
    seconds: float
    cases: int | None
    corpus: str
    journal: str
    memory: int
    suspects: tuple[str, ...] = ()


@dataclass(frozen=True)
class Replay:
    """Entries of one target that are to run again."""

    target: str
    backend: str
    paths: tuple[str, ...]


@dataclass(frozen=True)
class Files:
    """What folders hold from now on, for a remote host. `lock` is the number of the LockRequest it grants, or 0."""

    folders: Folders
    lock: int = 0


@dataclass(frozen=True)
class Ready:
    """The host can take a request."""

    pid: int = 0


@dataclass(frozen=True)
class Beat:
    """A sign of life, every few seconds."""


@dataclass(frozen=True)
class Waiting:
    """The host waits for room in its cluster."""


@dataclass(frozen=True)
class Started:
    """A slice has loaded its target; `possible` is the number of cells that its cases can visit."""

    possible: int
    backend: str


@dataclass(frozen=True)
class Progress:
    """Where a slice stands: everything before is judged and kept. `cells` are those visited since the last event."""

    plans: int
    cases: int
    rejected: int
    worst: float
    seconds: float
    cells: tuple[str, ...]


@dataclass(frozen=True)
class SliceDone(Progress):
    """A slice has ended. `rejection` says why the last case was refused, where every case of the slice was."""

    unconfirmed: int = 0
    rejection: str = ""


@dataclass(frozen=True)
class Hit:
    """A finding that the slice has hit so many times, the first time with this case; sent when the slice ends."""

    path: str
    known: bool
    accepted: bool
    hits: int
    case: int


@dataclass(frozen=True)
class Saved(Hit):
    """An entry was written; `finding` is the JSON document of the finding.

    A remote host adds the entry's text, and the names of entries of the folder that it has removed.
    """

    replaced: str
    backend: str
    finding: Mapping[str, Any]
    text: str = ""
    removed: tuple[str, ...] = ()


@dataclass(frozen=True)
class SuspectCleared:
    """A suspect has run, and the host is still there."""

    path: str


@dataclass(frozen=True)
class Replaying:
    """An entry is about to run again."""

    path: str


@dataclass(frozen=True)
class Replayed:
    """An entry has run again. `disagrees` is None where it could not run, and `why` says why."""

    path: str
    disagrees: bool | None
    status: str = ""
    why: str = ""


@dataclass(frozen=True)
class ReplayDone:
    """A request to replay has ended."""


@dataclass(frozen=True)
class Failure:
    """A request or a host has ended otherwise than it should, and `why`."""

    why: str


class Refused(Failure):
    """The request cannot be done: a target, a backend or an engine is wrong."""


class Unwritable(Failure):
    """Nothing can be kept any more: a full disk, or a corpus that cannot be read."""


class Failed(Failure):
    """An internal error ended the request."""


class Died(Failure):
    """The host's process ended. Whoever started it says so."""


@dataclass(frozen=True)
class JournalLine:
    """A line of a remote host's journal."""

    line: str


@dataclass(frozen=True)
class JournalClosed:
    """A remote host's journal has ended in order."""


@dataclass(frozen=True)
class LockRequest:
    """A remote host asks for the lock of its slice's folder of entries."""

    number: int


@dataclass(frozen=True)
class LockRelease:
    """A remote host has filed its finding."""


Request = Slice | Replay
SyncEvent = JournalLine | JournalClosed | LockRequest | LockRelease
"""Events that keep a remote host's files in step with the campaign's, and that end there."""
Event = (
    Ready | Beat | Waiting | Started | Progress | SliceDone | Hit | Saved | SuspectCleared | Replaying | Replayed
    | ReplayDone | Refused | Unwritable | Failed | Died | SyncEvent
)  # fmt: skip
Message = Request | Files | Event
KINDS: dict[str, type] = {kind.__name__: kind for kind in get_args(Message)}


def encode(message: Message) -> bytes:
    """The message as a line."""
    return json.dumps({"kind": type(message).__name__, **vars(message)}).encode() + b"\n"


def decode(line: str | bytes) -> Any:
    """The message of a line."""
    values: dict[str, Any] = json.loads(line)
    kind = KINDS[values.pop("kind")]
    return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()})
