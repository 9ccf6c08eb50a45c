"""Voice: how a host speaks with its campaign: lines of JSON both ways. Both see the same files."""

from __future__ import annotations

import json
import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from fuzz import corpus
from fuzz.campaign.protocol import Request, request_of


@dataclass
class Voice:
    """Writes events, from any thread, and understands requests."""

    out: BinaryIO
    lock: Any = field(default_factory=threading.Lock)

    def say(self, kind: str, **values: Any) -> None:
        self.write(json.dumps({"kind": kind, **values}))

    def write(self, line: str) -> None:
        with self.lock:
            self.out.write(line.encode() + b"\n")
            self.out.flush()

    def heard(self, line: str) -> Request | None:
        """What a line asks for; None where it only tells."""
        return request_of(json.loads(line))

    def noted(self, line: str) -> None:
        """Hears each line of the journal."""

    def closed(self) -> None:
        """Hears that the journal has ended in order."""

    def turn(self, folder: Path) -> AbstractContextManager[None]:
        """Keeps all others from filing a finding in a target's folder of the corpus."""
        return corpus.lock(folder)
