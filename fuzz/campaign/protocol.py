"""Defines the messages between a campaign and its hosts: requests one way, events the other, each as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import Field, dataclass
from typing import Any, ClassVar, dataclass_transform

Folders = Mapping[str, Mapping[str, str]]
"""Path of a folder -> name of a file in it -> text. A name may lie deeper."""
KINDS: dict[str, type[Message]] = {}


@dataclass_transform(frozen_default=True)
class Message:
    """Makes every subclass a frozen dataclass, whose name is its `kind` in JSON."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)
        KINDS[cls.__name__] = cls


class Request(Message):
    """What a host is to do."""

    target: str
    backend: str


class HostEvent(Message):
    """What a host reports."""


class Slice(Request):
    """A stretch of fuzzing of one job. `suspects` are files of cases that run first; `cases` is a limit, or None.

    At its end so many cases of the job measure the coverage as `coverage` says; 0 is none. `saved` is the file that
    gets the names of new findings, and of what takes the place of entries, before they are written. With
    `grid_order_only` an earlier slice of the job has learnt that programs wait for earlier ones.
    """

    planted: str
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
    coverage: int = 0
    saved: str = ""
    grid_order_only: bool = False


class Replay(Request):
    """Entries of one target that are to run again."""

    paths: tuple[str, ...]


class Files(Message):
    """What folders hold from now on, for a remote host. `lock` is the number of the LockRequest it grants, or 0."""

    folders: Folders
    lock: int = 0


class Ready(HostEvent):
    """The host can take a request; its last one has ended."""


class HostHeartbeat(HostEvent):
    """A sign of life, every few seconds."""


class Waiting(HostEvent):
    """The host waits for room in its cluster."""


class Started(HostEvent):
    """A slice has loaded its target; `possible` is the number of cells that its cases can visit."""

    possible: int


class Progress(HostEvent):
    """The progress of a slice, whose cases so far are saved. `cells` are those visited since the last event."""

    plans: int
    cases: int
    rejected: int
    worst: float
    seconds: float
    cells: tuple[str, ...]


class SliceDone(Progress):
    """A slice has ended. `rejection` says why the last case was refused, where every case of the slice was;
    `grid_order_only` that programs wait for earlier ones, so that no other order of them was tried."""

    unconfirmed: int = 0
    rejection: str = ""
    grid_order_only: bool = False


class Hit(HostEvent):
    """A finding that the slice has hit so many times, the first time with this case; sent when the slice ends."""

    path: str
    known: bool
    hits: int
    case: int


class EntrySaved(Hit):
    """An entry was written; `finding` is the JSON document of the finding.

    A remote host adds the entry's text, and the names of entries of the folder that it has removed.
    """

    replaced: str
    backend: str
    finding: Mapping[str, Any]
    text: str = ""
    removed: tuple[str, ...] = ()


class FindingTriaged(HostEvent):
    """Nothing is left to do of a finding that was saved; `name` is that of its entry, without the suffix."""

    name: str


class CoverageMeasured(HostEvent):
    """What the cases of a job have reached, as ``fuzz coverage --json`` prints it."""

    report: Mapping[str, Any]


class SuspectCleared(HostEvent):
    """A suspect has run, and the host is still there."""

    path: str


class Replaying(HostEvent):
    """An entry is about to run again."""

    path: str


class Replayed(HostEvent):
    """An entry has run again. `disagrees` is None where it could not run, and `why` says why."""

    path: str
    disagrees: bool | None
    status: str = ""
    why: str = ""


class RequestEnded(HostEvent):
    """A request or a host has failed, and `why`."""

    why: str


class Refused(RequestEnded):
    """The request cannot be done: a target, a backend or an engine is wrong."""


class Unwritable(RequestEnded):
    """Results can no longer be saved: a full disk, or a corpus that cannot be read."""


class Failed(RequestEnded):
    """An internal error ended the request, or a machine that could not start a worker: another try may succeed."""


class HostDied(RequestEnded):
    """The host's process ended. Whoever started it says so."""


class JournalLine(HostEvent):
    """A line of a remote host's journal; an empty one where it has ended in order."""

    line: str


class LockRequest(HostEvent):
    """A remote host asks for the lock of its slice's folder of entries."""

    number: int


class LockRelease(HostEvent):
    """A remote host has filed its finding."""


def encode(message: Message) -> bytes:
    """The message as JSON."""
    return json.dumps({"kind": type(message).__name__, **vars(message)}).encode()


def decode(data: bytes) -> Any:
    """The message of such JSON."""
    values: dict[str, Any] = json.loads(data)
    kind = KINDS[values.pop("kind")]
    return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()})
