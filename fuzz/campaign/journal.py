"""Writes down which replica groups run before they do, so that what ended a process is known after it.

One file for each job of a campaign. A line ``+ number text`` stands before a group runs, a line ``- number`` after it
was judged. What has the first and not the second ran when the process ended: these cases are the suspects, which are
kept until each has run again, each as a file whose name ends with the number of deaths beside it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from fuzz.corpus import codec
from fuzz.errors import CorpusError, os_errors_as
from fuzz.files import append, append_line, sync_folder, write_file
from fuzz.model.case import Case
from fuzz.model.entry import Entry
from fuzz.worker.protocol import ReplicaGroup

LONGEST_JOURNAL = 1 << 20
"""Bytes after which the file is begun anew with what runs now."""
ALONE_DEATHS, MOST_DEATHS = 2, 10
"""Deaths beside a suspect from which on it runs alone, and after which it is only kept."""


@dataclass
class Journal:
    """Written by one process. With `durable`, a line is on disk before the group runs, even if the machine stops.

    `on_line` is called with each line, for a copy elsewhere, into which `write_line` takes it, and with an empty one
    at the end.
    """

    path: Path
    durable: bool = False
    on_line: Callable[[str], None] = lambda line: None
    file: IO[bytes] | None = None
    _open: dict[int, str] = field(default_factory=dict)

    def start_group(self, group: ReplicaGroup) -> None:
        """Writes a group down that is about to run."""
        text = codec.dumps(Entry(group.plan), digest=False)
        shares = group.plan.shares_integers
        line = json.dumps({"text": text, "replicas": len(group.sampled), "shares_integers": shares})
        self.write_line(f"+ {group.first} {line}")

    def finish_group(self, group: ReplicaGroup) -> None:
        """Notes that a group has run and everything about it is kept."""
        self.write_line(f"- {group.first}")

    def write_line(self, line: str) -> None:
        """Writes a line. CorpusError where that cannot be."""
        _take_up(line, self._open)
        with os_errors_as(CorpusError, f"cannot write the journal {self.path}"):
            self._write(f"{line}\n", line.startswith("+"))
        self.on_line(line)

    def close(self) -> None:
        """Ends the journal; nothing runs any more."""
        self.release()
        self._open.clear()
        self.path.unlink(missing_ok=True)
        self.on_line("")

    def release(self) -> None:
        """Lets the file go as it is."""
        if self.file is not None:
            self.file.close()
            self.file = None

    def _write(self, line: str, starts: bool) -> None:
        if self.file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.file = self.path.open("wb", buffering=0)
            sync_folder(self.path.parent)
        append(self.file, line.encode())
        if self.durable and starts:
            os.fdatasync(self.file.fileno())
        if not starts and self.file.tell() > LONGEST_JOURNAL:
            # A short file takes the place of the long one.
            write_file(self.path, "".join(f"+ {number} {line}\n" for number, line in self._open.items()))
            self.file.close()
            self.file = self.path.open("ab", buffering=0)


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
        plan = replace(plan, shares_integers=bool(value["shares_integers"]))
        return [plan.replica(number) for number in range(int(value["replicas"]))]
    except (ValueError, KeyError, TypeError, CorpusError):
        # A line of a version with other fields: its group is proposed again from where the job stands.
        return []


def note_saved(path: Path, name: str, replaced: str = "") -> None:
    """Adds the name of an entry to a file, and that of the one whose place it takes; on disk when this returns.

    CorpusError where that cannot be.
    """
    with os_errors_as(CorpusError, f"cannot write {path}"):
        is_first = not path.exists()
        path.parent.mkdir(parents=True, exist_ok=True)
        append_line(path, f"{name}/{replaced}", sync=True)
        if is_first:
            # The folder may be as new as its file.
            sync_folder(path.parent)
            sync_folder(path.parent.parent)


def read_saved(path: Path) -> list[tuple[str, str]]:
    """(the name of an entry without its ending, that of the one whose place it takes or "") of each that was noted."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    pairs = (line.partition("/") for line in lines)
    return [(name.removesuffix(".yaml"), replaced.removesuffix(".yaml")) for name, _, replaced in pairs]


@dataclass
class Suspects:
    """The suspects of all jobs of a campaign. A job is named by its tag; `say` gets lines for people."""

    folder: Path
    say: Callable[[str], None]

    def record(self, tag: str, journal: Path, *, blamed: bool) -> int:
        """Turns what a journal says to run into suspects; how many there are. CorpusError where that fails.

        `blamed` is whether one of them may have ended the slice: a campaign that is stopped ends its slices itself.
        """
        cases = read_suspects(journal)
        # Where that fails the journal stays, and is read again when the campaign goes on.
        with os_errors_as(CorpusError, f"cannot write {self.folder}"):
            for case in cases:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._write(tag, case, blamed)
        journal.unlink(missing_ok=True)
        return len(cases)

    def _write(self, tag: str, case: Case, blamed: bool) -> None:
        text = codec.dumps(Entry(case), digest=False)
        name = f"{tag}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        old = next(self.folder.glob(f"{name}.*"), None)
        deaths = (_deaths(old) if old else 0) + blamed
        write_file(self.folder / f"{name}.{deaths}", text)
        if old is not None and _deaths(old) != deaths:
            old.unlink(missing_ok=True)

    def tags(self) -> set[str]:
        """The jobs with suspects that are to run."""
        paths = self.folder.glob("[!.]*-*") if self.folder.is_dir() else ()
        return {path.name.partition("-")[0] for path in paths if _deaths(path) < MOST_DEATHS}

    def select(self, tag: str) -> tuple[str, ...]:
        """The suspects of a job that its next slice runs first."""
        paths = sorted(self.folder.glob(f"{tag}-*"), key=_deaths)
        for path in paths:
            if _deaths(path) == MOST_DEATHS:
                self.say(f"{path}: whatever ran it ended {MOST_DEATHS} times; it is kept, and runs no more")
                path.rename(path.with_suffix(f".{MOST_DEATHS + 1}"))
        left = [path for path in paths if _deaths(path) < MOST_DEATHS]
        together = [path for path in left if _deaths(path) < ALONE_DEATHS]
        # One that kills is distinguished from those that only waited beside it by running alone.
        return tuple(str(path) for path in together or left[:1])


def _deaths(path: Path) -> int:
    return int(path.suffix[1:])
