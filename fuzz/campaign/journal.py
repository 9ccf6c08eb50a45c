"""Writes down which replica groups run before they do, so that what ended a process is known after it.

One file for each job of a campaign. A line ``+ number text`` stands before a group runs, a line ``- number`` after it
was judged. What has the first and not the second ran when the process ended: these cases are the suspects.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from fuzz.corpus import codec
from fuzz.errors import CorpusError
from fuzz.files import sync_folder, write_file
from fuzz.model.case import Case
from fuzz.model.entry import Entry
from fuzz.worker.protocol import ReplicaGroup

LONGEST = 1 << 20
"""Bytes after which the file is begun anew with what runs now."""


@dataclass
class Journal:
    """Written by one process. With `durable`, a line is on disk before the group runs, even if the machine stops.

    `on_line` is called with each line, for a copy elsewhere, into which `write_line` takes it.
    """

    path: Path
    durable: bool = False
    on_line: Callable[[str], None] = lambda line: None
    file: IO[bytes] | None = None
    _open: dict[int, str] = field(default_factory=dict)

    def start_group(self, group: ReplicaGroup) -> None:
        """Writes a group down that is about to run."""
        text = codec.dumps(Entry(group.plan), digest=False)
        self.write_line(f"+ {group.first} {json.dumps({'text': text, 'replicas': len(group.sampled)})}")

    def finish_group(self, group: ReplicaGroup) -> None:
        """Notes that a group has run and everything about it is kept."""
        self.write_line(f"- {group.first}")

    def write_line(self, line: str) -> None:
        """Writes a line. CorpusError where that cannot be."""
        _take_up(line, self._open)
        starts = line.startswith("+")
        self._write(f"{line}\n", self.durable and starts)
        self.on_line(line)
        if not starts and self.file is not None and self.file.tell() > LONGEST:
            self._renew()

    def close(self) -> None:
        """Ends the journal; nothing runs any more."""
        self.release()
        self._open.clear()
        self.path.unlink(missing_ok=True)

    def release(self) -> None:
        """Lets the file go as it is."""
        if self.file is not None:
            self.file.close()
            self.file = None

    def _write(self, line: str, durable: bool) -> None:
        try:
            if self.file is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self.file = self.path.open("wb", buffering=0)
                sync_folder(self.path.parent)
            self.file.write(line.encode())
            if durable:
                os.fdatasync(self.file.fileno())
        except OSError as error:
            raise CorpusError(f"cannot write the journal {self.path}: {error.strerror}") from None

    def _renew(self) -> None:
        """Puts a short file in the place of the long one."""
        assert self.file is not None
        try:
            write_file(self.path, "".join(f"+ {number} {line}\n" for number, line in self._open.items()))
            self.file.close()
            self.file = self.path.open("ab", buffering=0)
        except OSError as error:
            raise CorpusError(f"cannot write the journal {self.path}: {error.strerror}") from None


def read_suspects(path: Path) -> list[Case]:
    """The cases that ran when the journal's process ended, in the order in which they were started.

    A torn last line never ran.
    """
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    except FileNotFoundError:
        return []
    running: dict[int, str] = {}
    for line in lines:
        if line.endswith("\n"):
            _take_up(line, running)
    return [case for text in running.values() for case in _cases(text)]


def _take_up(line: str, running: dict[int, str]) -> None:
    """Adds the group that a line starts to those that run, by its number, or removes the one that it finishes."""
    sign, _, rest = line.partition(" ")
    number, _, text = rest.partition(" ")
    if sign == "+" and number.isdecimal():
        running[int(number)] = text
    elif number.strip().isdecimal():
        running.pop(int(number), None)


def _cases(text: str) -> list[Case]:
    try:
        value = json.loads(text)
        plan = codec.loads(value["text"].encode(), digest=False).case
        return [plan.replica(number) for number in range(int(value["replicas"]))]
    except (ValueError, KeyError, TypeError, CorpusError):
        # A line of a version with other fields: its group is proposed again from where the job stands.
        return []
