"""Requests: what a campaign asks a host to do, as lines of JSON. A host answers with events, lines of JSON too.

ready                      it can take a request
beat                       a sign of life, now and then
progress plan cases ..     where the slice stands: all before is judged and kept
saved path replaced new .. an entry was written
cleared path               a suspect has run
replaying, replayed path   an entry is about to run again; whether it disagrees
done ..                    the request has ended, with its sums
refused why                the request cannot be done: a target, a backend or an engine is wrong
stuck why                  nothing can be kept any more: a full disk, a corpus that cannot be read
failed why                 an error of this program
died why                   told by the pool: the host's process ended
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

Event = Mapping[str, Any]


@dataclass(frozen=True)
class Slice:
    """A stretch of fuzzing in one lane. `suspects` are files of cases that run first; `cases` is a limit, or None."""

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


Request = Slice | Replay
KINDS: dict[str, type[Request]] = {"slice": Slice, "replay": Replay}


def line_of(request: Request) -> bytes:
    """The request as a line."""
    kind = next(name for name, made in KINDS.items() if isinstance(request, made))
    return json.dumps({"kind": kind, **asdict(request)}).encode() + b"\n"


def request_of(value: Mapping[str, Any]) -> Request:
    """The request of a line's value."""
    given: Any = {key: tuple(part) if isinstance(part, list) else part for key, part in value.items() if key != "kind"}
    return KINDS[value["kind"]](**given)
