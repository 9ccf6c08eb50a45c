"""Journal: which groups run, written down before they do, so that what ended a process is known after it.

One file for each worker of a campaign. A line ``+ number text`` stands before a group runs, a line ``- number`` after
it was judged. What has the first and not the second ran when the process ended: these cases are the suspects.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from fuzz.corpus import codec
from fuzz.corpus.folder import sync
from fuzz.errors import CorpusError
from fuzz.model.case import Case
from fuzz.model.entry import Entry
from fuzz.worker.protocol import ReplicaGroup

LONGEST = 1 << 20
"""Bytes after which the file is begun anew with what runs now."""


@dataclass
class Journal:
    """Written by one process. With `durable`, a line is on disk before the group runs, even if the machine stops.

    `told` hears each line, for a copy elsewhere: `note` takes it there.
    """

    path: Path
    durable: bool = False
    told: Callable[[str], None] = lambda line: None
    _open: dict[int, str] = field(default_factory=dict)
    _file: IO[bytes] | None = None

    def asked(self, group: ReplicaGroup) -> None:
        """Writes a group down."""
        text = codec.dumps(Entry(group.plan), digest=False)
        self.note(f"+ {group.first} {json.dumps({'text': text, 'replicas': len(group.sampled)})}")

    def judged(self, group: ReplicaGroup) -> None:
        """Notes that a group has run and everything about it is kept."""
        self.note(f"- {group.first}")

    def note(self, line: str) -> None:
        """Takes up a line."""
        sign, _, rest = line.partition(" ")
        number, _, told = rest.partition(" ")
        if sign == "+":
            self._open[int(number)] = told
        else:
            self._open.pop(int(number), None)
        self._write(f"{line}\n", self.durable and sign == "+")
        self.told(line)
        if sign == "-" and self._file is not None and self._file.tell() > LONGEST:
            self._renew()

    def close(self) -> None:
        """Ends the journal; nothing runs any more."""
        self.leave()
        self.path.unlink(missing_ok=True)

    def leave(self) -> None:
        """Lets the file go as it is."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, line: str, durable: bool) -> None:
        try:
            if self._file is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self.path.open("wb", buffering=0)
                sync(self.path.parent)
            self._file.write(line.encode())
            if durable:
                os.fdatasync(self._file.fileno())
        except OSError as error:
            raise CorpusError(f"cannot write the journal {self.path}: {error.strerror}") from None

    def _renew(self) -> None:
        """Puts a short file in the place of the long one."""
        assert self._file is not None
        temporary = self.path.with_suffix(".new")
        try:
            with temporary.open("w", encoding="utf-8") as file:
                file.writelines(f"+ {number} {line}\n" for number, line in self._open.items())
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path)
            self._file.close()
            self._file = self.path.open("ab", buffering=0)
        except OSError as error:
            raise CorpusError(f"cannot write the journal {self.path}: {error.strerror}") from None


def suspects(path: Path) -> list[Case]:
    """The cases that ran when the journal's process ended, the first asked first; a torn last line never ran."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    except FileNotFoundError:
        return []
    running: dict[int, str] = {}
    for line in lines:
        sign, _, rest = line.partition(" ")
        number, _, told = rest.partition(" ")
        if not line.endswith("\n") or not number.strip().isdecimal():
            continue
        if sign == "+":
            running[int(number)] = told
        else:
            running.pop(int(number), None)
    return [case for told in running.values() for case in _cases(told)]


def _cases(told: str) -> list[Case]:
    try:
        value = json.loads(told)
        plan = codec.loads(value["text"].encode(), digest=False).case
        return [plan.replica(number) for number in range(int(value["replicas"]))]
    except (ValueError, KeyError, TypeError, CorpusError):
        # A line of a version with other fields: its group is proposed again from where the lane stands.
        return []
